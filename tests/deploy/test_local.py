"""Whole deployments with processes, TLS and keys: the right weights, faults, refusals, no traces.

Every process inherits a mark from the test that started it, so that what is left can be found.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from safetensors.numpy import load_file

from camu.config import Config
from camu.deploy.deployment import Deployment, make_bundle
from camu.deploy.host.control import Control
from camu.deploy.host.keys import make_keys, renew_server
from camu.deploy.host.local import LocalDeployment, open_local
from camu.deploy.host.node import node_command
from camu.deploy.host.processes import quiet_environment
from camu.deploy.status import read_status
from camu.errors import CamuError, InputError
from camu.simulation.directory import RunDirectory, run_in_directory
from helpers.configs import small
from helpers.foreign_app import disguised_bundle
from helpers.lying_node import LIES
from helpers.replayed_arrivals import replay

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("deployment"),
    pytest.mark.timeout(900),
    # Flower's bundle builder uses a name that pathspec has deprecated.
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),
]

MARK = "CAMU_TEST_MARK"
TESTS = Path(__file__).parents[1]  # nodes import helpers.lying_node from here
ENOUGH_SECONDS = 400.0  # a machine may be busy; alone it needs a tenth of this


def alive(mark: str, *words: str) -> list[int]:
    """The living processes that carry a mark, and these words in their command line."""
    return [
        process.pid
        for process in psutil.process_iter(["environ", "cmdline"])
        if (process.info["environ"] or {}).get(MARK) == mark
        and all(word in " ".join(process.info["cmdline"] or ()) for word in words)
    ]


def wait_until(what: Callable[[], Any], why: str, seconds: float = ENOUGH_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < deadline, f"{why} did not happen within {seconds} s"
        time.sleep(0.1)
    return result


def end(process: subprocess.Popen[str]) -> None:
    """End a command as a user would, so that it can clean up."""
    process.terminate()
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A mark and a place for temporary files; after the test nothing of either is left."""
    name = uuid.uuid4().hex
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv(MARK, name)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield name
    try:
        wait_until(lambda: not alive(name), "the end of the tasks in progress", 60)
        assert list(temporary.glob("camu-deploy-*")) == []
    finally:
        for pid in alive(name):
            os.kill(pid, signal.SIGKILL)


def records(folder: Path) -> list[dict[str, Any]]:
    path = folder / "rounds.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def assert_same_as_run(config: Config, folder: Path, here: Path) -> None:
    run_in_directory(config, RunDirectory(here))
    one, other = (load_file(RunDirectory(path).checkpoint) for path in (folder, here))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=0, atol=1e-6)


def test_leaders_on_three_nodes_give_the_weights_of_camu_run(
    camu: Callable[..., Any], mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the fleet file is named from here
    rows = [f"gw-{k},{3 * k},{k},12,{k}" for k in range(1, 6)]
    (tmp_path / "f.csv").write_text("id,x,y,label_6,label_7\n" + "\n".join([*rows, ""]))
    config, out = small(fleet__file="f.csv"), tmp_path / "run"
    (tmp_path / "run.toml").write_text(config.to_toml())
    arguments = ["--nodes", 3, "-c", tmp_path / "run.toml", "--out", out, "--json"]
    outcome = camu("deploy", "local", *arguments)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["rounds"] == 2
    assert_same_as_run(config, out, tmp_path / "here")
    assert sum(sum(record["faults"].values()) for record in records(out)) == 0
    plan = json.loads((out / "plan.json").read_text())
    assert [device["id"] for device in plan["devices"]] == [f"gw-{k}" for k in range(1, 6)]
    assert plan["devices"][3]["label_counts"] == [0, 0, 0, 0, 0, 0, 12, 4, 0, 0]
    files = {"config.toml", "plan.json", "rounds.jsonl", "checkpoint", "summary.json"}
    assert files | {"report.html", "server.log", "logs"} <= {path.name for path in out.iterdir()}
    assert "BEGIN" not in "".join(path.read_text() for path in (out / "logs").iterdir())
    for path in [out, *out.rglob("*")]:  # for their owner alone
        assert path.stat().st_mode & 0o077 == 0, path
    assert alive(mark) == []


def test_a_trial_of_a_wrong_fleet_file_starts_nothing(
    camu: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "f.csv").write_text("id,x,y,label_0\na,0,0,5000\n")
    (tmp_path / "run.toml").write_text(small(fleet__file=str(tmp_path / "f.csv")).to_toml())
    arguments = ["--nodes", 2, "-c", tmp_path / "run.toml", "--out", tmp_path / "run"]
    outcome = camu("deploy", "local", *arguments)
    assert outcome.code == 2
    assert "hold 5000 samples of this label" in outcome.err
    assert not (tmp_path / "run").exists()


def test_a_killed_node_and_a_killed_server_are_counted_and_no_round_is_lost(
    camu: Callable[..., Any], mark: str, tmp_path: Path
) -> None:
    out, config = tmp_path / "run", small(run__rounds=1000, training__model="logistic")
    (tmp_path / "run.toml").write_text(config.to_toml())
    arguments = ["--nodes", "2", "--deadline", "12", "--out", str(out)]
    command = [sys.executable, "-m", "camu.cli", "deploy", "local", *arguments]
    process = subprocess.Popen(
        [*command, "-c", str(tmp_path / "run.toml")],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(records(out)) > 1, "the first round")
        (victim,) = alive(mark, "camu.deploy.host.node", '"partition-id": 1')
        os.kill(victim, signal.SIGSTOP)  # one that was killed may be back before its deadline
        silent = lambda: any(r["faults"]["silent"] for r in records(out))  # noqa: E731
        wait_until(silent, "a round without the node")
        os.kill(victim, signal.SIGKILL)
        whole = lambda: not records(out)[-1]["faults"]["silent"]  # noqa: E731
        wait_until(whole, "a round with the node that was started again")
        (server,) = alive(mark, "camu.deploy.host.superlink", "--token")
        os.kill(server, signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 1
    assert "--resume" in errors
    assert alive(mark) == []
    rounds = len(records(out)) + 1
    (tmp_path / "run.toml").write_text(config.replace({"run.rounds": rounds}).to_toml())
    outcome = camu("deploy", "local", *arguments, "--resume", "-c", tmp_path / "run.toml")
    assert outcome.code == 0, outcome.err
    assert [record["round"] for record in records(out)] == list(range(rounds + 1))
    faults = json.loads((out / "summary.json").read_text())["faults"]
    assert faults["restarts"] == 1
    assert faults["silent"] > 0
    assert records(out)[-1]["faults"]["silent"] == 0


def test_ctrl_c_leaves_nothing_behind(mark: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "camu.cli", "deploy", "local", "--nodes", "1", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: alive(mark, "camu.deploy.host.superlink"), "the start of the SuperLink")
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)  # impatience changes nothing
        _, errors = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 130
    assert "camu deploy local --resume" in errors


@pytest.fixture
def short_folder() -> Iterator[str]:
    """A temporary directory with a short name: Ray's sockets lie below it."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        yield name


def test_flowers_own_simulator_gives_the_weights_of_camu_run(
    camu: Callable[..., Any], mark: str, tmp_path: Path, short_folder: str
) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    config, out, folder = small(run__rounds=1), tmp_path / "run", tmp_path / "app"
    (tmp_path / "run.toml").write_text(config.to_toml())
    arguments = ["--nodes", 2, "-c", tmp_path / "run.toml", "--out", out, "--simulate-faults"]
    outcome = camu("deploy", "app", folder, *arguments)
    assert outcome.code == 0, outcome.err
    assert camu("deploy", "app", folder, *arguments).code == 2  # nothing is overwritten
    fleet = camu("deploy", "app", tmp_path / "other", "--set", "fleet.file=fleet.csv")
    assert fleet.code == 2
    assert "fleet.csv: cannot be read" in fleet.err
    assert not (tmp_path / "other").exists()
    command = shlex.split(outcome.out.splitlines()[0])
    home = {"FLWR_HOME": str(tmp_path / "home"), "TMPDIR": short_folder}
    try:
        for _ in range(3):  # Flower waits 15 s for its SuperLink, too little on a busy machine
            done = subprocess.run(
                command,
                env={**quiet_environment(), **home},
                capture_output=True,
                text=True,
                timeout=ENOUGH_SECONDS,
                check=False,
            )
            if "Failed to start local SuperLink" not in done.stdout + done.stderr:
                break
        assert done.returncode == 0, done.stdout + done.stderr
        wait_until((out / "summary.json").exists, f"the run\n{done.stdout}", 60)
    finally:  # Flower lets its simulator's SuperLink wait for further runs
        for pid in alive(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: alive(mark) == [], "the end of Flower's SuperLink", 60)
    assert_same_as_run(config, out, tmp_path / "here")


# One SuperLink with two nodes serves the tests that only need a run.


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalDeployment, Control]]:
    name = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, name)
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        patch.setattr(
            "camu.deploy.host.node.MODULE", "helpers.lying_node"
        )  # one that lies at times
        deployment = Deployment(small(), str(tmp_path_factory.mktemp("fleet")), nodes=2)
        with open_local(deployment) as local:
            local.start_superlink()
            assert local.keys is not None
            with local.control() as control:
                for number in range(deployment.nodes):
                    control.register(local.keys.node_public_key(number), f"node-{number}")
                    local.start_node(number)
                yield local, control
            port = local.port
        wait_until(lambda: not alive(name), "the end of the tasks in progress", 60)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), 1.0)


def carry_out(control: Control, deployment: Deployment) -> None:
    run = control.start(make_bundle(deployment))
    wait_until(lambda: control.state(run).status == "finished", "the end of the run")
    log = (Path(deployment.out) / "server.log").read_text()
    assert control.state(run).sub_status == "completed", log


def test_the_arrivals_of_real_nodes_give_the_same_bits_in_a_simulation(
    fleet: tuple[LocalDeployment, Control], tmp_path: Path
) -> None:
    local, control = fleet
    buffer = {"buffer": 3}
    own = {"training__model": "logistic", "machine__kernel": "torch"}  # nodes train unit by unit
    config = small(scheme__name="fedbuff", scheme__parameters=buffer, **own)
    carry_out(control, replace(local.deployment, config=config, out=str(tmp_path / "run")))
    history = RunDirectory(tmp_path / "run").read_history()
    assert [len(record.arrivals) for record in history.records] == [0, 3, 3]
    assert replay(config, history.records).weights_sha256 == history.weights_sha256


def test_registering_goes_on_past_keys_that_are_known(
    fleet: tuple[LocalDeployment, Control], camu: Callable[..., Any], tmp_path: Path
) -> None:
    local, _ = fleet
    assert local.keys is not None
    more = make_keys(tmp_path / "more", 2)
    old, new = more.node_public_key(0), more.node_public_key(1)
    options = ["--superlink", local.address, "--ca", local.keys.authority]
    first = camu("deploy", "register", old, *options, "--devices", "pump,fan")
    same = camu("deploy", "register", old, *options, "--devices", "fan,pump")
    other = camu("deploy", "register", old, *options, "--devices", "saw")
    again = camu("deploy", "register", old, new, *options)
    assert first.code == again.code == same.code == 0, first.err + again.err + same.err
    assert other.code == 2
    assert "is registered for fan,pump, which cannot be changed" in other.err
    revoked = camu("deploy", "revoke", new, *options)
    assert revoked.code == 0, revoked.err
    assert f"{new} is revoked: node" in revoked.out
    assert camu("deploy", "revoke", new, *options).code == 2
    late = camu("deploy", "register", new, *options)
    assert "was revoked; make and register another key" in late.err
    node = first.out.split()[-1]
    assert first.out == f"{old} is registered as node {node}\n"
    assert again.out.startswith(f"{old} is already registered as node {node}\n{new} is registered")


def test_a_node_that_is_not_registered_or_was_revoked_says_so_and_ends(
    mark: str, tmp_path: Path
) -> None:
    words = "the SuperLink refuses this node: its key is not registered; register it with"
    with open_local(Deployment(small(), str(tmp_path / "run"), nodes=1)) as local:
        local.start_superlink()
        log = local.logs / "node-0.log"
        local.start_node(0)
        assert local.processes.running["node-0"].wait(ENOUGH_SECONDS) == 1
        assert log.read_text().count(words) == 1
        assert local.keys is not None
        with local.control() as control:
            public = local.keys.node_public_key(0)
            control.register(public, "node-0")
            local.start_node(0)
            wait_until(lambda: control.nodes()[0].status == "online", "the node")
            control.revoke(str(public))
            assert control.nodes() == []
        assert local.processes.running["node-0"].wait(ENOUGH_SECONDS) == 1
        assert log.read_text().count(words) == 2


def test_the_code_of_a_foreign_bundle_is_not_run_anywhere(
    fleet: tuple[LocalDeployment, Control], tmp_path: Path
) -> None:
    local, control = fleet
    marker = tmp_path / "marker"
    run = control.start(disguised_bundle(marker))
    wait_until(lambda: control.state(run).status == "finished", "the end of the foreign run")
    assert "its bundle carries 'camu/__init__.py'" in control.state(run).details
    assert "a run is refused: its bundle" in (local.logs / "superlink.log").read_text()
    assert not marker.exists()
    with pytest.raises(InputError, match="token cannot be read"):
        Control(local.address, None, tmp_path / "none")
    (tmp_path / "wrong").write_text("b" * 64)
    (tmp_path / "wrong").chmod(0o600)
    assert local.keys is not None
    with (
        Control(local.address, local.keys.authority, tmp_path / "wrong") as stranger,
        pytest.raises(CamuError, match="403: only the owner of the SuperLink may"),
    ):
        stranger.start(disguised_bundle(marker))


def test_devices_on_two_nodes_give_the_weights_of_camu_run(
    fleet: tuple[LocalDeployment, Control], tmp_path: Path
) -> None:
    local, control = fleet
    config = small(
        training__normalisation="none", scheme__parameters={"max_extra_updates": 1}, run__rounds=1
    )
    out = tmp_path / "run"
    carry_out(control, replace(local.deployment, config=config, granularity="device", out=str(out)))
    assert_same_as_run(config, out, tmp_path / "here")
    assert (
        max(unit["local_updates"] for unit in json.loads((out / "plan.json").read_text())["units"])
        == 2
    )


def test_a_node_is_started_again_and_a_run_is_listed_stopped_and_resumed(
    fleet: tuple[LocalDeployment, Control], camu: Callable[..., Any], tmp_path: Path
) -> None:
    local, control = fleet
    assert local.keys is not None
    out, options = tmp_path / "run", ["--superlink", local.address, "--ca", local.keys.authority]
    config = small(run__rounds=60, training__model="logistic", data__samples_per_device=20)
    deployment = replace(local.deployment, config=config, out=str(out), deadline_seconds=30.0)
    run = control.start(make_bundle(deployment))
    wait_until(lambda: len(records(out)) > 1, "the first round")
    listed = camu("deploy", "list", *options)
    assert f"run {run}: running" in listed.out
    assert listed.out.count(", online") == 2
    assert f"{local.keys.server} ends on" in listed.out
    assert "run " + str(run) in camu("deploy", "status", out).out
    local.processes.running["node-0"].kill()
    wait_until(lambda: local.processes.dead() == ["node-0"], "the end of the node")
    local.start_node(0)  # as systemd would do
    before = len(records(out))
    wait_until(
        lambda: any(not r["nodes"]["silent"] for r in records(out)[before + 1 :]),
        "a round with the new node",
    )
    superlink = local.processes.running["superlink"]
    shown = ssl.get_server_certificate(("127.0.0.1", local.port))
    renew_server(local.keys.path)
    superlink.send_signal(signal.SIGHUP)
    fresh = local.keys.server.read_text()
    read = lambda: ssl.get_server_certificate(("127.0.0.1", local.port))  # noqa: E731
    wait_until(lambda: read().strip() == fresh.strip() != shown.strip(), "the new certificate")
    assert camu("deploy", "stop", run, *options).code == 0
    wait_until(lambda: read_status(out)["state"] == "stopped", "the end of the server")
    done = len(records(out)) - 1
    assert 0 < done < 60
    assert RunDirectory(out).read_summary()["stopped"] == "stopped"
    assert RunDirectory(out).model.exists()
    few = replace(deployment, config=config.replace({"run.rounds": done + 2}), resume=True)
    carry_out(control, few)
    assert [record["round"] for record in records(out)] == list(range(len(records(out))))
    assert len(records(out)) == done + 3
    assert read_status(out)["state"] == "finished"


def intruders(local: LocalDeployment, folder: Path) -> dict[str, list[str]]:
    """Nodes that must not get in: camu's own, and those of Flower."""
    assert local.keys is not None
    strange = make_keys(folder / "strange", 1)
    table = {"partition-id": 0, "num-partitions": 2}
    flowers = [
        *("flower-supernode", "--superlink", local.address, "--isolation", "process"),
        *("--max-retries", "1", "--max-wait-time", "20"),
    ]
    return {
        "unregistered key": node_command(
            local.address, local.keys.authority, strange.node_key(0), table
        ),
        "missing key": [*flowers, "--root-certificates", str(local.keys.authority)],
        "plain text": [*flowers, "--insecure"],
    }


def test_intruders_and_wrong_updates_are_refused_and_the_run_goes_on(
    fleet: tuple[LocalDeployment, Control], tmp_path: Path
) -> None:
    local, control = fleet
    config = small(run__rounds=4, run__seed=LIES, training__model="logistic")
    out = tmp_path / "run"
    outside = {}
    for number, (name, command) in enumerate(intruders(local, tmp_path).items()):
        port = "--port", str(20_000 + os.getpid() % 10_000 + number)
        with (tmp_path / f"{name}.log").open("wb") as stream:
            outside[name] = subprocess.Popen(
                [*command, *port] if command[0] == "flower-supernode" else command,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**quiet_environment(), "FLWR_HOME": str(tmp_path / "home")},
            )
    try:
        carry_out(control, replace(local.deployment, config=config, out=str(out)))
        for name, process in outside.items():
            text = (tmp_path / f"{name}.log").read_text()
            assert "SuperNode ID" not in text, name
            assert "connected as node" not in text, name
            wait_until(lambda process=process: process.poll() is not None, f"the end of {name}", 60)
            assert process.returncode != 0, name
    finally:
        for process in outside.values():
            process.kill()
            process.wait()
    units = len(json.loads((out / "plan.json").read_text())["units"])
    faults = [record["faults"] for record in records(out)]
    wrong = (units + 1) // 2  # node 0 has the units 0, 2, ...
    assert [each["refused"] for each in faults] == [0, wrong, wrong, wrong, 0]
    assert [record["units"] for record in records(out)] == [0, *[units - wrong] * 3, units]
    log = (out / "server.log").read_text()
    for words in ("entries that are not finite", "numbers in float32", "it is for round 2, not 3"):
        assert words in log
    calls = (local.logs / "superlink.log").read_text().splitlines()
    assert any("no TLS handshake" in line for line in calls)
    for refused in (
        "/v1/fleet/register-node from 127.0.0.1 is refused: nodes have no such call",
        "/v1/fleet/activate-node from 127.0.0.1 is refused: its key is not registered",
    ):
        assert any(refused in line for line in calls), refused
    told = (tmp_path / "unregistered key.log").read_text()
    assert "refuses this node: its key is not registered; register it with camu deploy" in told
    # a closed connection shows as "disconnected" or as "reset by peer", whichever comes first
    assert "could not establish a connection" in (tmp_path / "plain text.log").read_text()
