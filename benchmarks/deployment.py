"""What a deployment on this machine costs: memory and processor seconds of nodes and SuperLink.

`python benchmarks/deployment.py --nodes 3 --rounds 20` runs `camu deploy local` and looks at the
processes of it (Linux). `--python` names the interpreter of another installation to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil


def part_of(process: psutil.Process) -> str | None:
    """What a process is in the deployment: superlink, server, node N, or nothing."""
    environment, command = process.environ(), " ".join(process.cmdline())
    home = Path(environment.get("FLWR_HOME", "")).name
    if "camu.deploy.host." not in command:
        return None
    if "--server" in command:
        return "server"
    return home or None


def pss_megabytes(process: psutil.Process) -> float:
    """Memory of a process, shared pages counted in part."""
    return float(process.memory_full_info().pss) / 1e6


class Watch:
    """Samples of the processes of a deployment."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)
        self.memory: dict[str, list[float]] = defaultdict(list)
        self.seconds: dict[str, dict[int, float]] = defaultdict(dict)

    def look(self, root: psutil.Process, memory: bool) -> None:
        """Add up memory and processor seconds by part."""
        megabytes: dict[str, float] = defaultdict(float)
        for process in root.children(recursive=True):
            try:
                if part := part_of(process):
                    used = process.cpu_times()
                    self.seconds[part][process.pid] = used.user + used.system
                    if memory:
                        megabytes[part] += pss_megabytes(process)
            except psutil.Error:
                continue
        for part, found in megabytes.items():
            self.memory[part].append(found)

    def used(self, part: str) -> float:
        """Processor seconds of a part so far."""
        return sum(self.seconds[part].values())


def measure(python: str, nodes: int, rounds: int, granularity: str, extra: list[str]) -> Any:
    """Run a deployment and return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [python, "-m", "camu.cli", "deploy", "local", "--nodes", str(nodes)]
        command += ["--granularity", granularity, "--out", str(out), "--set", "run.eval_every=1000"]
        command += ["--set", f"run.rounds={rounds}", *extra]
        lines, watch, began = out / "rounds.jsonl", Watch(out), time.monotonic()
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        root, seen, marks = psutil.Process(process.pid), -1, {}
        start: dict[str, float] = {}
        while process.poll() is None:
            number = len(lines.read_text().splitlines()) - 1 if lines.exists() else -1
            if number != seen:
                seen, marks[number] = number, time.monotonic() - began
            watch.look(root, memory=number >= 1)
            if number >= 1 and not start:
                start = {part: watch.used(part) for part in watch.seconds}
                marks[0] = marks.get(0, marks[number])
                first = number
            if number < rounds:
                end = {part: watch.used(part) for part in watch.seconds}
                last = number
            time.sleep(0.5)
        if process.returncode:
            raise SystemExit((Path(folder) / "log").read_text()[-2000:])
        plan = json.loads((out / "plan.json").read_text())
        history = [json.loads(line) for line in lines.read_text().splitlines()]
    updates = [unit.get("local_updates", 1) for unit in plan["units"]]
    exchanges = 1 if granularity == "leader" else max(updates)
    done = last - first
    names = sorted(part for part in watch.memory if part.startswith("node-"))
    wall = [b["wall_seconds"] - a["wall_seconds"] for a, b in pairwise(history[1:])]
    return {
        "nodes": nodes,
        "granularity": granularity,
        "rounds": rounds,
        "exchanges a round and node": exchanges,
        "MB of a node, median of the highest": median(max(watch.memory[name]) for name in names),
        "MB of the SuperLink": max(watch.memory["superlink"]),
        "seconds until round 1": marks.get(1, min(v for k, v in marks.items() if k >= 1)),
        "wall seconds a round, median": median(wall) if wall else None,
        "CPU s of a node a round": median((end[n] - start[n]) / done for n in names),
        "CPU ms of the SuperLink a message": 1000
        * (end["superlink"] - start["superlink"])
        / (2 * done * nodes * exchanges),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print a line of JSON for the deployment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--granularity", choices=["leader", "device"], default="leader")
    parser.add_argument("--python", default=sys.executable)
    given, extra = parser.parse_known_args()
    found = measure(given.python, given.nodes, given.rounds, given.granularity, extra)
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}))


if __name__ == "__main__":
    main()
