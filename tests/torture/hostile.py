"""Hostile nodes, and users of the SuperLink's machine who are not its owner.

Every act must be refused and logged, and must leave the model of a run without the hostile node.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np

from helpers.foreign_app import disguised_bundle
from torture.calls import tell
from torture.deployments import LONGEST_SECONDS, Place, clean, left_behind, make_place
from torture.hostile_node import ACT_FILE, REPORTS, RESULTS

# Acts of other users of the SuperLink's machine, and of an owner who was given a foreign app.
OUTSIDERS = ("run without the token", "task without the token", "foreign bundle")
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
[machine]
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


@dataclass(frozen=True)
class Fleet:
    """A fleet with a hostile node; `carry_out(act, wait_seconds)` does a run with an act on it."""

    carry_out: Callable[[str, float], Path]
    local: Any
    control: Any


@contextlib.contextmanager
def hostile_fleet(place: Place, nodes: int, rounds: int) -> Iterator[Fleet]:
    """A SuperLink, a hostile node 0 and honest ones.

    Each node has data of its own, and its key is bound to its devices.
    """
    from camu.config import load_config
    from camu.deploy.deployment import Deployment, make_bundle
    from camu.deploy.host.local import open_local

    own_samples(place.folder / "data", HELD * nodes)
    path = place.folder / "run.toml"
    path.write_text(HOSTILE_RUN.format(rounds=rounds, devices=HELD * nodes))
    # `nodes` is for the keys; the run itself takes whoever holds the devices.
    whole = Deployment(
        load_config(path), str(place.out), nodes=nodes, quorum="1", most_samples=10.0
    )
    environment = {**place.environment(), ACT_FILE: str(place.folder / "act")}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(tempfile, "tempdir", str(place.temporary)),
        open_local(whole) as local,
    ):
        local.start_superlink()
        place.ports.add(local.port)
        with local.control() as control:
            for number in range(nodes):
                start_bound(local, control, number, place.folder / "data")

            def carry_out(act: str, wait_seconds: float) -> Path:
                (place.folder / "act").write_text(act)
                out = place.folder / "runs" / act.replace(" ", "-")
                asked = replace(whole, out=str(out), nodes=0, wait_seconds=wait_seconds)
                run = control.start(make_bundle(asked))
                wait_for(control, run)
                return out

            yield Fleet(carry_out, local, control)


def start_bound(local: Any, control: Any, number: int, data: Path) -> None:
    """Start a node whose key is registered for its devices; node 0 is hostile."""
    from camu.deploy.host import node
    from camu.deploy.server.mailbox import binding

    devices = [str(device) for device in range(HELD * number, HELD * (number + 1))]
    name, keys = f"node-{number}", local.keys
    control.register(keys.node_public_key(number), binding(devices))
    module = "torture.hostile_node" if number == 0 else node.MODULE
    with mock.patch.object(node, "MODULE", module):
        table = {"devices": ",".join(devices), "data": str(data)}
        files = keys.authority, keys.node_key(number)
        command = node.node_command(local.address, *files, table)
    local._start(name, command)


def hostile(
    folder: Path,
    nodes: int = 3,
    rounds: int = 3,
    acts: tuple[str, ...] = (*REPORTS, *RESULTS, *OUTSIDERS),
) -> tuple[dict[str, int], list[str]]:
    """Every hostile act: the run completes, and its model is that of a run without the node."""
    place = make_place(folder / "h")
    failures = []
    try:
        with hostile_fleet(place, nodes, rounds) as fleet:
            fleet.carry_out("honest", 120.0)  # all nodes are up after this
            without: dict[bool, dict[str, Any]] = {}
            for act in acts:
                if act in OUTSIDERS:
                    if wrong := outside(fleet, act, place.folder):
                        failures.append(tell(f"{act}: {wrong}"))
                    continue
                reports = act in REPORTS
                wait = 15.0 if reports else 120.0
                if reports not in without:
                    without[reports] = ending(fleet.carry_out("mute" if reports else "idle", wait))
                out = fleet.carry_out(act, wait)
                if wrong := compared(ending(out), without[reports], rounds):
                    log = out / "server.log"
                    said = log.read_text()[-400:] if log.exists() else "no log"
                    failures.append(tell(f"{act}: {wrong}: {said}"))
        if left := left_behind(place):
            failures.append(tell(f"hostile: {left}"))
    finally:
        clean(place)
    return dict.fromkeys(acts, 1), failures


def wait_for(control: Any, run: int) -> str:
    """How a run has ended; empty: not in time. A busy SuperLink is asked again."""
    from camu.deploy.host.control import UnreachableError

    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(UnreachableError):
            state = control.state(run)
            if state.status == "finished":
                return str(state.sub_status)
        time.sleep(0.3)
    return ""


def outside(fleet: Fleet, act: str, folder: Path) -> str:
    """Do what only the owner may, or what nobody may; what is wrong with the answer."""
    from camu.deploy.host.control import Control
    from camu.errors import CamuError

    local, marker, log = fleet.local, folder / "marker", fleet.local.logs / "superlink.log"
    before = len(log.read_bytes())
    if act == "task without the token":
        with httpx.Client(verify=str(local.keys.authority)) as client:
            answer = client.post(f"https://{local.address}/v1/runtime/acquire-task", content=b"")
        if answer.status_code != 403:
            return f"it is answered with {answer.status_code}"
    elif act == "run without the token":
        wrong = folder / "wrong.token"
        wrong.write_text("0" * 64)
        wrong.chmod(0o600)
        with Control(local.address, local.keys.authority, wrong) as stranger:
            try:
                return f"the run {stranger.start(disguised_bundle(marker))} has started"
            except CamuError as error:
                if "403" not in str(error):
                    return str(error)
    else:
        run = fleet.control.start(disguised_bundle(marker))
        if wait_for(fleet.control, run) != "failed":
            return "the run did not fail"
    if marker.exists():
        return "foreign code has run"
    return "" if b"refused" in log.read_bytes()[before:] else "the log does not say it"


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
