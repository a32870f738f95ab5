"""What idle nodes cost: `python benchmarks/idle_nodes.py --nodes 200` (Linux, iproute2).

Starts a SuperLink with TLS and keys, and so many connections of nodes in this process, which ask
for work as `camu deploy node --idle SECONDS` does. Prints a line of JSON: bytes of a question on
the wire, megabytes a day where one is asked every 270 s, and the SuperLink's memory and processor.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from camu.deploy.host.control import Control, Registration
from camu.deploy.host.keys import make_keys
from camu.deploy.host.node_connection import LONGEST_HOLD, Connection
from camu.deploy.host.processes import quiet_environment
from camu.deploy.host.superlink import superlink_command
from camu.errors import CamuError

HEAD_BYTES = 52  # of IPv4, TCP and its time stamps, in every segment
AT_ONCE = 5  # nodes that connect at a time
FIRST_SECONDS = 120.0  # that the SuperLink may take to answer


def traffic(port: int) -> Counter[str]:
    """Bytes and segments of this process's connections to a port so far."""
    shown = subprocess.run(
        ["ss", "-tinpH", f"dport = :{port}"], capture_output=True, text=True, check=True
    ).stdout
    found: Counter[str] = Counter()
    own = False
    for line in shown.splitlines():
        if line[:1].strip():
            own = f"pid={os.getpid()}," in line
            found["connections"] += own
        elif own:
            pairs = re.findall(r"(bytes_sent|bytes_received|segs_out|segs_in):(\d+)", line)
            found.update({name: int(number) for name, number in pairs})
    return found


def be_node(address: str, authority: Path, key: Path, idle: float, asked: Counter[str]) -> None:
    """Ask for work again and again."""
    with Connection(address, authority, key, idle) as connection:
        asked["connected"] += 1
        while True:
            connection.next_message()
            asked["questions"] += 1


def register(control: Control, wanted: list[Registration]) -> None:
    """Register the keys as soon as the SuperLink answers."""
    until = time.monotonic() + FIRST_SECONDS
    while True:
        try:
            list(control.register_all(wanted))
            return
        except CamuError:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def measure(folder: Path, nodes: int, idle: float, seconds: float) -> dict[str, Any]:
    """What so many nodes cost in so many seconds."""
    keys = make_keys(folder / "keys", nodes, [])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address, asked = f"127.0.0.1:{port}", Counter[str]()
    environment = {**quiet_environment(), "FLWR_HOME": str(folder / "flwr")}
    command = superlink_command("127.0.0.1", port, keys, folder / "nodes.db")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        public = [keys.node_public_key(number) for number in range(nodes)]
        with Control(address, keys.authority) as control:
            register(control, [Registration(key, key.stem) for key in public])
        for number in range(nodes):
            given = (address, keys.authority, keys.node_key(number), idle, asked)
            threading.Thread(target=be_node, args=given, daemon=True).start()
            while asked["connected"] < number - AT_ONCE:
                time.sleep(0.1)
        while asked["connected"] < nodes:
            time.sleep(0.5)
        time.sleep(2 * idle)  # all of them wait, evenly spread
        link = psutil.Process(process.pid)
        before, used, count, began = traffic(port), link.cpu_times(), Counter(asked), time.time()
        time.sleep(seconds)
        after, spent, took = traffic(port), link.cpu_times(), time.time() - began
        memory = link.memory_full_info().pss / 1e6
    finally:
        process.terminate()
        process.wait()
    questions = asked["questions"] - count["questions"]
    cpu = spent.user + spent.system - used.user - used.system
    wire = sum(after[name] - before[name] for name in ("bytes_sent", "bytes_received"))
    wire += HEAD_BYTES * sum(after[name] - before[name] for name in ("segs_out", "segs_in"))
    return {
        "nodes": nodes,
        "nodes online and waiting": after["connections"],
        "questions": questions,
        "wire bytes of a question": round(wire / questions),
        "MB a node and day, asked every 270 s": round(
            wire / questions * 86400 / LONGEST_HOLD / 1e6, 3
        ),
        "CPU ms of the SuperLink a question": round(1000 * cpu / questions, 2),
        "CPU share of the SuperLink, asked every 270 s": round(
            cpu / questions * nodes / LONGEST_HOLD, 4
        ),
        "MB of the SuperLink": round(memory),
        "seconds": round(took),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), given.nodes, given.idle, given.seconds)))
    os._exit(0)  # nodes wait for minutes


if __name__ == "__main__":
    main()
