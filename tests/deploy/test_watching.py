"""Status, metrics and certificates, as an owner sees them from outside."""

from __future__ import annotations

import datetime
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from prometheus_client import CollectorRegistry, generate_latest

from camu import __version__
from camu.cli.deploy.run import ProgressDisplay
from camu.deploy.host import control, keys
from camu.deploy.host.control import (
    Control,
    Follower,
    NodeState,
    RunState,
    UnreachableError,
)
from camu.deploy.host.keys import Expiry, expiry, make_keys, renew_server
from camu.deploy.host.superlink import load_certificate
from camu.deploy.status import Journal, RoundStatus, RunMetrics, read_status, serve_metrics
from camu.errors import CamuError, InputError
from camu.schemes import make_scheme
from camu.simulation.result import simulate
from camu.world import build_world
from helpers.configs import small

NODES = [
    {
        "name": 'pump, "fan"',
        "online": True,
        "devices": ["pump", "fan"],
        "joules": ["rapl"],
        "kernel": "native avx2",
        "version": "0.3.0",
    },
    {"name": "mill", "online": False, "devices": ["mill"], "joules": ["model"]},
]


def running(folder: Path) -> Journal:
    journal = Journal(folder, 77)
    journal.update(
        state="running", devices=4, known=3, quorum=2, nodes=NODES, waiting_for=["mill"],
        round=3, rounds=9, accuracy=0.5, joules=1.25, virtual_seconds=6.5, wall_seconds=2.0,
        faults={"silent": 2, "refused": 0},
    )  # fmt: skip
    return journal


def test_the_status_is_shown_in_words_and_as_json(camu: Callable[..., Any], tmp_path: Path) -> None:
    assert camu("deploy", "status", tmp_path).code == 2
    running(tmp_path)
    outcome = camu("deploy", "status", tmp_path)
    assert outcome.code == 0, outcome.err
    for words in (
        "run 77: running",
        "round 3 of 9, accuracy 50.00%, 1.25 J, 6.5 virtual and 2 real seconds",
        "3 of 4 devices are known; the quorum is 2",
        "waiting for mill",
        'online  pump, "fan" (2 devices; joules: rapl; kernel: native avx2; camu 0.3.0)',
        "away    mill (1 device; joules: model)",
        "another version of camu than the server's: pump",
        "faults: 2 silent",
    ):
        assert words in outcome.out
    assert json.loads(camu("deploy", "status", tmp_path, "--json").out)["round"] == 3


def test_a_falling_error_is_shown_by_its_name(camu: Callable[..., Any], tmp_path: Path) -> None:
    journal = running(tmp_path)
    journal.update(accuracy=None, metric="rmse", score=52.125)
    words = camu("deploy", "status", tmp_path).out
    assert "round 3 of 9, RMSE 52.12, 1.25 J" in words
    registry = CollectorRegistry()
    registry.register(RunMetrics(tmp_path))
    labels = {"run": tmp_path.name, "metric": "rmse"}
    assert registry.get_sample_value("camu_score", labels) == 52.125
    assert registry.get_sample_value("camu_accuracy", {"run": tmp_path.name}) is None


def test_rounds_of_a_regression_tell_their_score(tmp_path: Path) -> None:
    keys = {"data__dataset": "diabetes", "data__standardise": True, "data__with_replacement": True}
    config = small(
        **keys, training__model="linear", training__learning_rate=0.02, run__rounds=3,
        run__eval_every=2, run__eval_last=1,
    )  # fmt: skip
    history = simulate(
        build_world(config), make_scheme(config), [RoundStatus(Journal(tmp_path))]
    ).history
    found = json.loads((tmp_path / "status.json").read_text())
    assert (found["accuracy"], found["metric"]) == (None, "rmse")
    assert found["score"] == history.final_score < history.records[0].score


def test_a_server_that_is_gone_is_noticed(camu: Callable[..., Any], tmp_path: Path) -> None:
    journal = running(tmp_path)
    assert read_status(tmp_path)["state"] == "running"
    ended = subprocess.Popen(["true"])
    ended.wait()
    journal.update(pid=ended.pid)
    assert read_status(tmp_path)["state"] == "lost"
    # Another process that has the number now: it began after the run.
    journal.update(pid=os.getpid(), started=1000.0)
    assert read_status(tmp_path)["state"] == "lost"
    outcome = camu("deploy", "status", tmp_path)
    assert outcome.code == 1
    assert "its server is gone; continue with --resume" in outcome.out
    (tmp_path / "status.json").write_text("{")
    with pytest.raises(CamuError, match="cannot be read"):
        read_status(tmp_path)


def parse(text: str) -> dict[str, float]:
    """Metrics by their whole name; a plain reader of the text format."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_have_the_format_of_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "first"
    folder.mkdir()
    journal = running(folder)
    journal.update(waiting_until=journal.status["updated"] + 42)
    now = journal.status["updated"] + 12
    monkeypatch.setattr("camu.deploy.status.time.time", lambda: now)
    end = Expiry(Path("server.crt"), datetime.datetime.fromtimestamp(now + 100, datetime.UTC))
    registry = CollectorRegistry()
    registry.register(RunMetrics(folder, lambda: [end]))
    text = generate_latest(registry).decode()
    found = parse(text)
    for name, value in {
        'camu_up{run="first"}': 1,
        'camu_run_state{run="first",state="running"}': 1,
        'camu_status_age_seconds{run="first"}': 12,
        'camu_devices_online{run="first"}': 2,
        'camu_nodes_online{run="first"}': 1,
        'camu_node_online{node="pump, \\"fan\\"",run="first"}': 1,
        'camu_node_online{node="mill",run="first"}': 0,
        f'camu_version{{run="first",version="{__version__}"}}': 1,
        'camu_node_other_version{node="pump, \\"fan\\"",run="first"}': 1,
        'camu_node_other_version{node="mill",run="first"}': 0,
        'camu_wait_seconds_left{run="first"}': journal.status["waiting_until"] - now,
        'camu_round{run="first"}': 3,
        'camu_joules{run="first"}': 1.25,
        'camu_faults{kind="silent",run="first"}': 2,
        'camu_certificate_seconds_left{file="server.crt",run="first"}': 100,
    }.items():
        assert found[name] == pytest.approx(value), name
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert {name.split("{")[0] for name in found} == set(names)


def test_metrics_are_served_on_loopback_alone(tmp_path: Path) -> None:
    running(tmp_path)
    server = serve_metrics(0, RunMetrics(tmp_path))
    try:
        host, port = server.server_address[:2]
        assert host == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
            assert f'camu_up{{run="{tmp_path.name}"}} 1.0' in reply.read().decode()
        (tmp_path / "status.json").unlink()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
            assert f'camu_up{{run="{tmp_path.name}"}} 0.0' in reply.read().decode()
        with pytest.raises(InputError, match="cannot be used"):
            serve_metrics(int(port), RunMetrics(tmp_path))
    finally:
        server.shutdown()
        server.server_close()


def test_a_renewed_certificate_has_the_same_key_and_names(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "SERVER_DAYS", 10)
    made = make_keys(tmp_path / "keys", 1, ["superlink.example"])
    assert expiry(made.server).soon
    assert not expiry(made.authority).soon
    before = keys.read_certificate(made.server)
    monkeypatch.setattr(keys, "SERVER_DAYS", 825)
    outcome = camu("deploy", "renew", made.path)
    assert outcome.code == 0, outcome.err
    assert f"{made.server} ends on" in outcome.out
    after = keys.read_certificate(made.server)
    assert after.public_key() == before.public_key()
    assert after.serial_number != before.serial_number
    assert not expiry(made.server).soon
    kind = keys.x509.SubjectAlternativeName
    names = [c.extensions.get_extension_for_class(kind).value for c in (before, after)]
    assert names[0] == names[1]
    after.verify_directly_issued_by(keys.read_certificate(made.authority))
    other = make_keys(tmp_path / "other", 1)
    made.authority_key.unlink()
    made.authority_key.write_bytes(other.authority_key.read_bytes())
    made.authority_key.chmod(0o600)
    with pytest.raises(InputError, match="is not the key of"):
        renew_server(made.path)
    made.authority_key.unlink()
    assert camu("deploy", "renew", made.path).code == 2


def serial_of(context: ssl.SSLContext, authority: Path) -> int:
    """The number of the certificate that a server with this context shows."""
    inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(inside, outside, server_side=True)
    client = ssl.create_default_context(cafile=str(authority)).wrap_bio(
        outside, inside, server_hostname="localhost"
    )
    done: set[Any] = set()
    while len(done) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return keys.x509.load_der_x509_certificate(shown).serial_number


def test_a_server_shows_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    made = make_keys(tmp_path / "keys", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.server_key)
    reload = partial(load_certificate, context, str(made.server), str(made.server_key))
    first = serial_of(context, made.authority)
    renew_server(made.path)
    assert serial_of(context, made.authority) == first
    reload()
    second = serial_of(context, made.authority)
    assert second == keys.read_certificate(made.server).serial_number != first
    made.server.write_text("nothing")
    reload()
    assert serial_of(context, made.authority) == second  # the old one stays


class Listed:
    """Flower's control interface with two runs and a node."""

    def __init__(self) -> None:
        self.stopped: list[int] = []
        self.revoked: list[int] = []

    def ListRuns(self, request: Any) -> Any:
        def run(status: str, sub_status: str, day: str) -> Any:
            state = SimpleNamespace(status=status, sub_status=sub_status, details="")
            return SimpleNamespace(status=state, pending_at=day)

        runs = {6: run("running", "", "Tuesday"), 5: run("finished", "completed", "Monday")}
        return SimpleNamespace(run_dict=runs)

    def ListNodes(self, request: Any) -> Any:
        gone = SimpleNamespace(node_id=10, unregistered_at="Sunday")
        here = SimpleNamespace(node_id=9, name="node-0", status="online", unregistered_at="")
        return SimpleNamespace(nodes_info=[gone, here])

    def get(self, path: str) -> httpx.Response:
        assert path == "/camu/versions"
        found = {"superlink": "9.0.0", "nodes": {"9": "8.0.0", "10": "7.0.0"}}
        return httpx.Response(200, json=found, request=httpx.Request("GET", "http://x/"))

    def UnregisterNode(self, request: Any) -> None:
        self.revoked.append(request.node_id)

    def StopRun(self, request: Any) -> Any:
        self.stopped.append(request.run_id)
        return SimpleNamespace(success=True)

    def close(self) -> None: ...


def test_runs_and_nodes_are_listed_and_a_run_is_stopped(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, listed = make_keys(tmp_path / "keys", 1), Listed()
    monkeypatch.setattr(Control, "__init__", lambda self, *_, **__: setattr(self, "address", "x"))
    for name in ("_client", "_web"):
        monkeypatch.setattr(Control, name, listed, raising=False)
    with Control("x", None) as control:
        assert control.runs()[1] == RunState(6, "running", "", "Tuesday")
        assert control.nodes() == [NodeState(9, "node-0", "online", "8.0.0")]
    outcome = camu("deploy", "list", "--ca", made.authority)
    assert outcome.code == 0, outcome.err
    assert "run 5: finished (completed), started Monday\nrun 6: running, started" in outcome.out
    assert "SuperLink: camu 9.0.0\n" in outcome.out
    assert "node 9: node-0, online, camu 8.0.0\n" in outcome.out
    assert "the SuperLink has camu 9.0.0, and another version have: 9" in outcome.err
    assert f"{made.server} ends on" in outcome.out
    document = json.loads(camu("deploy", "list", "--ca", made.authority, "--json").out)
    assert document["runs"][1]["run"] == "6"
    assert camu("deploy", "stop", 6, "--ca", made.authority).code == 0
    assert listed.stopped == [6]
    revoked = camu("deploy", "revoke", 9, "--ca", made.authority)
    assert revoked.out == "9 is revoked: node 9 is refused from now on\n"
    assert listed.revoked == [9]
    unknown = camu("deploy", "revoke", 10, made.node_public_key(0), "--ca", made.authority)
    assert unknown.code == 2
    assert "10: is not registered; camu deploy list" in unknown.err
    for run, words in ((5, "has already ended"), (7, "there is no such run")):
        outcome = camu("deploy", "stop", run, "--ca", made.authority)
        assert outcome.code == 2
        assert words in outcome.err


def test_progress_names_the_devices_that_are_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    warned: list[str] = []
    shown: list[int] = []

    class Display:
        def say(self, state: str) -> None:
            said.append(state)

        def warn(self, text: str) -> None:
            warned.append(text)

        def show(self, status: Any) -> None:
            shown.append(status["round"])

    follower = Follower(tmp_path, 77, Display())
    follower.update()
    journal = running(tmp_path)
    follower.update()
    follower.update()
    journal.update(waiting_for=[f"gw-{k}" for k in range(8)])
    follower.update()
    moment = time.mktime((2026, 1, 2, 14, 30, 5, 0, 0, -1))
    journal.update(waiting_for=["mill"], waiting_until=moment)
    follower.update()
    journal.update(waiting_for=[])
    follower.update()
    assert said == [
        "waiting for mill",
        "waiting for gw-0, gw-1, gw-2, gw-3, gw-4 and 3 more",
        "waiting for mill, until 14:30:05 at most",
    ]
    journal.event("node-new", "node mill has reported", node="mill")
    journal.event("node-lost", "node mill is no longer online", node="mill")
    journal.update(round=4, last_round={"silent": ["mill"], "refused": []})
    follower.update()
    follower.update()
    assert shown == [3, 4]
    assert warned == [
        "node mill is no longer online",
        "round 4: silent: mill (server.log says why)",
    ]
    Journal(tmp_path, 78).update(state="running", round=9)  # another run in this directory
    follower.update()
    assert shown == [3, 4]


def test_a_run_that_was_stopped_has_ended_when_its_server_has(tmp_path: Path) -> None:
    now = [0.0]
    state = RunState(77, "finished", "stopped")
    controlled: Any = SimpleNamespace(state=lambda run: state)
    follower = Follower(tmp_path, 77, ProgressDisplay(small()), lambda: now[0])
    journal = running(tmp_path)
    assert not follower.has_ended(controlled)
    journal.update(state="stopped")
    assert follower.has_ended(controlled)
    journal.update(state="running")
    assert not follower.has_ended(controlled)
    now[0] = control.PATIENCE_SECONDS + 1  # a server that does not end by itself
    assert follower.has_ended(controlled)
    state = RunState(77, "finished", "failed", "", "details")
    with pytest.raises(CamuError, match="the run has failed: details"):
        follower.has_ended(controlled)
    journal.update(state="failed", error="the disk is full")
    with pytest.raises(CamuError, match="the run has failed: the disk is full"):
        follower.has_ended(controlled)


def test_a_follower_is_patient_with_a_busy_superlink(tmp_path: Path) -> None:
    world: dict[str, Any] = {"now": 0.0, "answers": True}

    class Busy:
        def state(self, run: int) -> RunState:
            if not world["answers"]:
                raise UnreachableError("timed out")
            return RunState(run, "running", "")

    follower = Follower(tmp_path, 1, ProgressDisplay(small()), lambda: world["now"])
    control: Any = Busy()
    for now, answers in ((0.0, True), (50.0, False), (59.0, True), (110.0, False), (119.0, False)):
        world.update(now=now, answers=answers)
        assert not follower.has_ended(control)
    world["now"] = 119.5
    with pytest.raises(CamuError, match="timed out"):
        follower.has_ended(control)


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    with ProgressDisplay(small(run__rounds=9, scheme__name="fedavg"), lambda: now) as display:
        display.say("starting the nodes")
        for number in range(9):
            now = 4.0 * number
            display.show({"round": number, "accuracy": 0.5, "joules": 1.0, "virtual_seconds": 2.0})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fedavg: starting the nodes"
    assert [line.split(",")[0] for line in lines[1:]] == [
        "fedavg: round 3 of 9",
        "fedavg: round 6 of 9",
    ]


def test_watching_ends_with_a_signal_and_prints_where_its_page_is(tmp_path: Path) -> None:
    running(tmp_path)
    command = [sys.executable, "-m", "camu.cli", "deploy", "watch", str(tmp_path), "--port"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*command, str(port)], stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(120, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"http://127.0.0.1:{port}/metrics\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
            assert reply.status == 200
    finally:
        process.terminate()
        process.communicate()
        timer.cancel()
