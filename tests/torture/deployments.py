"""Whole deployments on this machine: killed and stopped processes, and hostile nodes.

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
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil

from torture.calls import tell
from torture.hostile_node import ACT_FILE, REPORTS, RESULTS

MARK = "CAMU_TORTURE"
TESTS = Path(__file__).parents[1]
LONGEST_SECONDS = 900.0  # of one episode, on a busy machine
RUN = """extends = "demo"
[training]
model = "logistic"
[run]
rounds = {rounds}
eval_every = 1
workers = 1
"""
# What is killed or stopped: words of the command line, and words that are not in it.
VICTIMS = {
    "node": ("host.supernode --superlink", ""),
    "executor": ("host.supernode --executor", ""),
    "server": ("host.superlink --server", ""),
    "superlink": ("host.superlink --token", ""),
    "starter": ("deploy local", "host."),
}
FAULTS = (
    "kill node", "kill server", "kill superlink", "kill executor", "kill starter",
    "stop node", "stop superlink", "stop server",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a deployment runs; its processes carry the mark."""

    mark: str
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        return {MARK: self.mark, "TMPDIR": str(self.temporary), "PYTHONPATH": path}

    def rounds(self) -> list[int]:
        """The rounds in the history so far."""
        path = self.out / "rounds.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line)["round"] for line in lines]


def make_place(folder: Path) -> Place:
    """A new place."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    return Place(uuid.uuid4().hex, folder)


def living(mark: str, kind: str = "") -> list[psutil.Process]:
    """The living processes of a deployment, of one kind or of all."""
    words, without = VICTIMS.get(kind, ("", ""))
    found = []
    for process in psutil.process_iter(["environ", "cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        ours = (process.info["environ"] or {}).get(MARK) == mark and process.pid != os.getpid()
        if ours and words in line and not (without and without in line):
            found.append(process)
    return found


def start(place: Place, nodes: int, rounds: int) -> subprocess.Popen[bytes]:
    """Start a deployment, or go on with it."""
    config = place.folder / "run.toml"
    config.write_text(RUN.format(rounds=rounds))
    command = [sys.executable, "-m", "camu.cli", "deploy", "local", "--nodes", str(nodes)]
    command += ["--deadline", "20", "--out", str(place.out)]
    begun = (place.out / "config.toml").exists()
    command += ["--resume"] if begun else ["-c", str(config)]
    with (place.folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, env={**os.environ, **place.environment()}, stdout=log, stderr=log
        )


def strike(place: Place, fault: str, dice: random.Random) -> None:
    """Kill a process of the deployment, or stop it for a while."""
    how, kind = fault.split()
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
    place = make_place(folder)
    faults = [FAULTS[number % len(FAULTS)], *dice.choices(FAULTS, k=dice.randrange(2))]
    when = sorted(dice.sample(range(rounds), len(faults)))
    deadline = time.monotonic() + LONGEST_SECONDS
    process = start(place, nodes, rounds)
    starts = 1
    waiting = list(zip(when, faults, strict=True))
    try:
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if waiting and len(place.rounds()) > waiting[0][0]:
                strike(place, waiting.pop(0)[1], dice)
            if process.poll() is not None:
                if process.returncode == 0 or starts > 4:
                    break
                starts += 1
                process = start(place, nodes, rounds)
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
    """Processes and temporary directories that are still there after this time."""
    deadline = time.monotonic() + seconds
    while (left := living(place.mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if left:
        return f"processes left: {[' '.join(each.cmdline())[:80] for each in left]}"
    # Whoever was killed could not remove its directory; the next start does.
    from camu.deploy.host.temporary import temporary_folder

    with mock.patch.object(tempfile, "tempdir", str(place.temporary)), temporary_folder():
        pass
    if names := [path.name for path in place.temporary.glob("camu-deploy-*")]:
        return f"directories left: {names}"
    return ""


def clean(place: Place) -> None:
    """End what a failed episode has left."""
    for process in living(place.mark):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
            process.kill()


def deployments(
    count: int, seed: int, folder: Path, nodes: int = 3, rounds: int = 5
) -> tuple[dict[str, int], list[str]]:
    """Disturb deployments; the number tried by kind, and a line for each that went wrong."""
    tried: dict[str, int] = {}
    failures = []
    for number in range(count):
        fault, wrong = episode(number, seed, folder / "d", nodes, rounds)
        tried[fault] = tried.get(fault, 0) + 1
        if wrong:
            failures.append(tell(f"{fault}: deployment {number}: {wrong}"))
    return tried, failures


HELD = 2  # devices of each node in a hostile fleet
HOSTILE_RUN = """extends = "demo"
[data]
noniid_devices = 0
[scheme]
name = "fedavg"
[training]
model = "logistic"
[run]
rounds = {rounds}
workers = 1
[[fleet.regions]]
name = "I"
devices = {devices}
x = [-10.0, 10.0]
y = [-10.0, 10.0]
"""


def own_samples(folder: Path, devices: int) -> None:
    """Samples of every device, as its node reads them."""
    from sklearn.datasets import load_digits

    folder.mkdir()
    found = load_digits()
    images = (found.images * (255 / 16)).astype(np.uint8)
    for device in range(devices):
        np.save(folder / f"{device}-images.npy", images[device * 30 : device * 30 + 30])
        np.save(folder / f"{device}-labels.npy", found.target[device * 30 : device * 30 + 30])


@contextlib.contextmanager
def hostile_fleet(place: Place, nodes: int, rounds: int) -> Iterator[Any]:
    """A SuperLink, a hostile node 0 and honest ones; gives a function that does a run on them.

    Each node has data of its own, and its key is bound to its devices.
    """
    from camu.config import load_config
    from camu.deploy.deployment import Deployment, make_bundle
    from camu.deploy.host.local import open_local

    own_samples(place.folder / "data", HELD * nodes)
    path = place.folder / "run.toml"
    path.write_text(HOSTILE_RUN.format(rounds=rounds, devices=HELD * nodes))
    # `nodes` is for the keys; the run itself takes whoever holds the devices.
    whole = Deployment(load_config(path), str(place.out), nodes=nodes, quorum="1")
    environment = {**place.environment(), ACT_FILE: str(place.folder / "act")}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(tempfile, "tempdir", str(place.temporary)),
        open_local(whole) as local,
    ):
        local.start_superlink()
        with local.control() as control:
            for number in range(nodes):
                start_bound(local, control, number, place.folder / "data")

            def carry_out(act: str, wait_seconds: float) -> Path:
                (place.folder / "act").write_text(act)
                out = place.folder / "runs" / act.replace(" ", "-")
                asked = replace(whole, out=str(out), nodes=0, wait_seconds=wait_seconds)
                run = control.start(make_bundle(asked))
                deadline = time.monotonic() + LONGEST_SECONDS
                while control.state(run).status != "finished" and time.monotonic() < deadline:
                    time.sleep(0.3)
                return out

            yield carry_out


def start_bound(local: Any, control: Any, number: int, data: Path) -> None:
    """Start a node whose key is registered for its devices; node 0 is hostile."""
    from camu.deploy.claims import binding
    from camu.deploy.host import supernode
    from camu.deploy.host.keys import NodeKeys

    devices = [str(device) for device in range(HELD * number, HELD * (number + 1))]
    name, keys = f"node-{number}", local.keys
    control.register(keys.node_public_key(number), binding(devices))
    module = "torture.hostile_node" if number == 0 else supernode.MODULE
    with mock.patch.object(supernode, "MODULE", module):
        table = {"devices": ",".join(devices), "data": str(data)}
        own = NodeKeys(keys.authority, keys.node_key(number))
        command = supernode.supernode_command(local.address, own, table)
    local.processes.start(name, command, local.logs / f"{name}.log", local._environment(name))


def hostile(
    folder: Path, nodes: int = 3, rounds: int = 3, acts: tuple[str, ...] = (*REPORTS, *RESULTS)
) -> tuple[dict[str, int], list[str]]:
    """Every hostile act: the run completes, and its model is that of a run without the node."""
    place = make_place(folder / "h")
    tried: dict[str, int] = {}
    failures = []
    try:
        with hostile_fleet(place, nodes, rounds) as carry_out:
            carry_out("honest", 120.0)  # all nodes are up after this
            without: dict[bool, dict[str, Any]] = {}
            for act in acts:
                reports = act in REPORTS
                wait = 15.0 if reports else 120.0
                if reports not in without:
                    without[reports] = ending(carry_out("mute" if reports else "idle", wait))
                tried[act] = 1
                out = carry_out(act, wait)
                if wrong := compared(ending(out), without[reports], rounds):
                    log = out / "server.log"
                    said = log.read_text()[-400:] if log.exists() else "no log"
                    failures.append(tell(f"{act}: {wrong}: {said}"))
        if left := left_behind(place):
            failures.append(tell(f"hostile: {left}"))
    finally:
        clean(place)
    return tried, failures


def ending(out: Path) -> dict[str, Any]:
    """How a run ended: its rounds and the digest of its model; empty if it has no summary."""
    if not (out / "summary.json").exists():
        return {}
    summary = json.loads((out / "summary.json").read_text())
    lines = (out / "rounds.jsonl").read_text().splitlines()
    return {
        "rounds": [json.loads(line)["round"] for line in lines],
        "weights": summary["weights_sha256"],
        "log": (out / "server.log").read_text(),
    }


def compared(found: dict[str, Any], without: dict[str, Any], rounds: int) -> str:
    """What differs from the run without the hostile node."""
    if not found or not without:
        return "it did not complete" if without else "the run without the node did not complete"
    if found["rounds"] != list(range(rounds + 1)):
        return f"rounds {found['rounds']}"
    if found["weights"] != without["weights"]:
        return "another model than without the node"
    words = ("not used", "rejected", "refused")
    return "" if any(word in found["log"] for word in words) else "the log does not say it"
