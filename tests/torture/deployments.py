"""Whole deployments on this machine: killed and stopped processes, and blocked ports.

Each is a `camu deploy local` over loopback with TLS and keys. It holds if it completes, if need be
with `--resume`, with every round counted once, and leaves no process and no temporary directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from torture.calls import tell
from torture.partition import BLOCKED_FILE, EVERY_NODE

MARK = "CAMU_TORTURE"
TESTS = Path(__file__).parents[1]
LONGEST_SECONDS = 900.0  # of one episode, on a busy machine
RUN = """extends = "demo"
[training]
model = "logistic"
[run]
rounds = {rounds}
eval_every = 1
[machine]
workers = 1
"""
# What is killed or stopped, by words of its command line.
VICTIMS = {
    "node": "host.node ",
    "server": "host.superlink --server",
    "superlink": "host.superlink --token",
    "starter": "deploy local",
}
FAULTS = (
    "kill node", "kill server", "kill superlink", "kill starter",
    "stop node", "stop superlink", "stop server", "block node", "block superlink",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a deployment runs; its processes carry the mark."""

    mark: str
    folder: Path
    ports: set[int] = field(default_factory=set)  # that its SuperLinks have had

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def blocked(self) -> Path:
        """Names the node whose port is blocked, while it is."""
        return self.folder / "blocked"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        return {
            MARK: self.mark,
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": path,
            BLOCKED_FILE: str(self.blocked),
        }

    def rounds(self) -> list[int]:
        """The rounds in the history so far."""
        return [record["round"] for record in self.records()]

    def records(self) -> list[dict[str, Any]]:
        """The lines of the history so far."""
        path = self.out / "rounds.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]


def make_place(folder: Path, config: str = "") -> Place:
    """A new place, for a run with this configuration."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    (folder / "run.toml").write_text(config)
    return Place(uuid.uuid4().hex, folder)


def living(mark: str, kind: str = "") -> list[psutil.Process]:
    """The living processes of a deployment, of one kind or of all."""
    return [
        process
        for process in psutil.process_iter(["environ", "cmdline"])
        if (process.info["environ"] or {}).get(MARK) == mark
        and process.pid != os.getpid()
        and kind in ("", kind_of(process))
    ]


def kind_of(process: psutil.Process) -> str:
    """What a process of a deployment is, by its command line; empty: something else."""
    line = " ".join(process.info["cmdline"] or ())
    return next((kind for kind, words in VICTIMS.items() if words in line), "")


def start(place: Place, nodes: int, module: str = "camu.cli") -> subprocess.Popen[bytes]:
    """Start a deployment, or go on with it, by a module with camu's commands."""
    config = place.folder / "run.toml"
    command = [sys.executable, "-m", module, "deploy", "local", "--nodes", str(nodes)]
    command += ["--deadline", "20", "--out", str(place.out)]
    begun = (place.out / "config.toml").exists()
    command += ["--resume"] if begun else ["-c", str(config)]
    with (place.folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, env={**os.environ, **place.environment()}, stdout=log, stderr=log
        )


def note_ports(place: Place) -> None:
    """Remember the port of the SuperLink, to see later that it is closed."""
    for process in living(place.mark, "superlink"):
        line = process.info["cmdline"]
        place.ports.add(int(line[line.index("--port") + 1]))


def strike(place: Place, fault: str, dice: random.Random) -> None:
    """Kill a process of the deployment, stop it for a while, or block its port."""
    how, kind = fault.split()
    if how == "block":
        one = str(dice.randrange(len(living(place.mark, "node")) or 1))
        place.blocked.write_text(one if kind == "node" else EVERY_NODE)
        time.sleep(dice.uniform(5.0, 45.0))  # some are longer than the deadline of a round
        place.blocked.unlink()
        return
    victims = living(place.mark, kind)
    if not victims:
        return
    victim = dice.choice(victims)
    with contextlib.suppress(psutil.NoSuchProcess):
        if how == "kill":
            victim.send_signal(signal.SIGKILL)
        else:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(2.0, 12.0))
            victim.send_signal(signal.SIGCONT)


def episode(number: int, seed: int, folder: Path, nodes: int, rounds: int) -> tuple[str, str]:
    """One deployment with a fault or two; the first fault, and what went wrong, if anything."""
    dice = random.Random(f"{seed}/deployment/{number}")
    place = make_place(folder, RUN.format(rounds=rounds))
    faults = [FAULTS[number % len(FAULTS)], *dice.choices(FAULTS, k=dice.randrange(2))]
    when = sorted(dice.sample(range(rounds), len(faults)))
    deadline = time.monotonic() + LONGEST_SECONDS
    process = start(place, nodes, "torture.partition")
    starts, done = 1, 0
    waiting = list(zip(when, faults, strict=True))
    try:
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if done < (done := len(place.rounds())):
                note_ports(place)
            if waiting and done > waiting[0][0]:
                strike(place, waiting.pop(0)[1], dice)
            if process.poll() is not None:
                if process.returncode == 0 or starts > 4:
                    break
                starts += 1
                process = start(place, nodes, "torture.partition")
        return faults[0], judge(place, process, rounds)
    finally:
        clean(place)


def judge(place: Place, process: subprocess.Popen[bytes], rounds: int) -> str:
    """What is wrong after a deployment; empty if nothing is."""
    if process.poll() != 0:
        log = (place.folder / "log").read_text(errors="replace").strip()
        return f"exit code {process.returncode}: {log[-300:]}"
    if place.rounds() != list(range(rounds + 1)):
        return f"rounds {place.rounds()}"
    return left_behind(place)


def left_behind(place: Place, seconds: float = 20.0) -> str:
    """Processes, open ports, temporary files and keys that are still there after this time."""
    deadline = time.monotonic() + seconds
    while (left := living(place.mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if left:
        return f"processes left: {[' '.join(each.cmdline())[:80] for each in left]}"
    if ports := [port for port in place.ports if is_open(port)]:
        return f"ports left: {ports}"
    # Whoever was killed could not remove its directory; the next start does.
    from camu.deploy.host.processes import remove_stale

    remove_stale(place.temporary)
    if names := [path.name for path in place.temporary.iterdir()]:
        return f"temporary files left: {names}"
    files = [path for path in place.folder.rglob("*") if path.is_file()]
    if keys := [path.name for path in files if b"PRIVATE KEY" in path.read_bytes()]:
        return f"keys left: {keys}"
    return ""


def is_open(port: int) -> bool:
    """Whether something listens on a port of the loopback address."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def clean(place: Place) -> None:
    """End what a failed episode has left."""
    for process in living(place.mark):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
            process.kill()


def deployments(
    count: int, seed: int, folder: Path, at_once: int = 1, nodes: int = 3, rounds: int = 5
) -> tuple[dict[str, int], list[str]]:
    """Disturb deployments; the number tried by kind, and a line for each that went wrong."""
    tried: dict[str, int] = {}
    failures = []

    def one(number: int) -> tuple[str, str]:
        fault, wrong = episode(number, seed, folder / f"d{number}", nodes, rounds)
        print(f"deployment {number}: {fault}: {wrong or 'held'}", file=sys.stderr, flush=True)
        return fault, wrong

    with ThreadPoolExecutor(at_once) as pool:
        for number, (fault, wrong) in enumerate(pool.map(one, range(count))):
            tried[fault] = tried.get(fault, 0) + 1
            if wrong:
                failures.append(tell(f"{fault}: deployment {number}: {wrong}"))
    return tried, failures
