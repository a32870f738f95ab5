"""Status, alarms, metrics and certificates, as an owner sees them from outside."""

from __future__ import annotations

import datetime
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.cli.deploy.options import ProgressDisplay
from camu.deploy import watching
from camu.deploy.host import certificates, keys
from camu.deploy.host.certificates import End, end_of, renew_server
from camu.deploy.host.control import (
    Control,
    Follower,
    NodeState,
    RunListing,
    RunState,
    UnreachableError,
)
from camu.deploy.host.keys import make_keys
from camu.deploy.host.processes import free_ports
from camu.deploy.host.reloading import Reloader
from camu.deploy.server.journal import Journal
from camu.deploy.watching import Alarm, Watcher, metrics, read_status, serve_metrics
from camu.errors import CamuError, InputError
from camu.simulation.history import Record
from helpers.configs import small

NODES = [
    {"name": 'pump, "fan"', "online": True, "devices": ["pump", "fan"], "joules": ["rapl"]},
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
        'online  pump, "fan" (2 devices; joules: rapl)',
        "away    mill (1 devices; joules: model)",
        "faults: 2 silent",
    ):
        assert words in outcome.out
    assert json.loads(camu("deploy", "status", tmp_path, "--json").out)["round"] == 3


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


def test_metrics_have_the_format_of_prometheus(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    folder.mkdir()
    journal = running(folder)
    now = journal.status["updated"] + 12
    end = End(Path("server.crt"), datetime.datetime.fromtimestamp(now + 100, datetime.UTC))
    text = metrics(folder, [end], now)
    found = parse(text)
    for name, value in {
        'camu_up{run="first"}': 1,
        'camu_run_state{run="first",state="running"}': 1,
        'camu_status_age_seconds{run="first"}': 12,
        'camu_devices_online{run="first"}': 2,
        'camu_nodes_online{run="first"}': 1,
        'camu_node_online{run="first",node="pump, \\"fan\\""}': 1,
        'camu_node_online{run="first",node="mill"}': 0,
        'camu_round{run="first"}': 3,
        'camu_joules{run="first"}': 1.25,
        'camu_faults{run="first",kind="silent"}': 2,
        'camu_certificate_seconds_left{run="first",file="server.crt"}': 100,
    }.items():
        assert found[name] == pytest.approx(value), name
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert {name.split("{")[0] for name in found} == set(names)


def code_of(address: str) -> int:
    """The code with which a page is refused."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address, timeout=60)
    with refused.value as error:
        return error.code


def test_metrics_are_served_on_loopback_alone(tmp_path: Path) -> None:
    running(tmp_path)
    server = serve_metrics(0, lambda: metrics(tmp_path))
    try:
        host, port = server.server_address[:2]
        assert host == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
            assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "camu_up" in reply.read().decode()
        assert code_of(f"http://127.0.0.1:{port}/") == 404
        assert code_of(f"http://127.0.0.1:{port}/metrics/..") == 404
        (tmp_path / "status.json").unlink()
        assert code_of(f"http://127.0.0.1:{port}/metrics") == 503
        with pytest.raises(InputError, match="cannot be used"):
            serve_metrics(int(port), str)
    finally:
        server.shutdown()
        server.server_close()


def wait(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_alarm_gets_facts_in_its_environment_and_no_shell(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = tmp_path / "alarm.sh"
    script.write_text(
        '#!/bin/sh\nprintf "%s|%s|%s|%s\\n" "$1" "$CAMU_EVENT" "$CAMU_NODE" "$CAMU_TEXT" '
        f">> {said}\n"
    )
    script.chmod(0o755)
    folder = tmp_path / "run"
    folder.mkdir()
    journal = running(folder)
    journal.event("node-lost", "an old event")
    alarm = Alarm(f"{script} 'two words; rm -rf x'")
    watcher = Watcher(folder, alarm)
    evil = f"pump$(touch {tmp_path / 'evil'}); `touch {tmp_path / 'evil'}`\0"
    journal.event("node-lost", "node is away", node=evil)
    watcher.update()
    wait(said.exists)
    wait(lambda: said.read_text().endswith("\n"))
    first = said.read_text()
    assert first == f"two words; rm -rf x|node-lost|{evil[:-1]}|node is away\n"
    assert not (tmp_path / "evil").exists()
    journal.update(pid=-1)
    watcher.update()
    watcher.update()  # once
    wait(lambda: said.read_text().count("\n") == 2)
    assert "|run-failed||the server of the run is gone" in said.read_text()
    wait(lambda: alarm.look() or not alarm._running)


def test_an_alarm_never_holds_up_the_watcher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    alarm = Alarm("sleep 600", lambda: now[0])
    for _ in range(20):
        alarm.raise_for(tmp_path, {"event": "node-lost"})
    assert len(alarm._running) == watching.MOST_ALARMS
    assert "are still running" in caplog.text
    processes = [process for process, _ in alarm._running]
    now[0] = watching.ALARM_SECONDS + 1
    alarm.look()
    assert not alarm._running
    assert all(process.returncode is not None for process in processes)
    Alarm("/no/such/program").raise_for(tmp_path, {"event": "node-lost"})
    assert "cannot be started" in caplog.text
    failing = Alarm("false")
    failing.raise_for(tmp_path, {})
    wait(lambda: failing.look() or not failing._running)
    assert "ended with code 1" in caplog.text
    for wrong in ("", "'open"):
        with pytest.raises(InputError, match="--alarm"):
            Alarm(wrong)


def test_certificates_that_end_soon_are_an_event_once_a_day(tmp_path: Path) -> None:
    events: list[Any] = []

    class Kept(Alarm):
        def raise_for(self, folder: Path, event: Any) -> None:
            events.append(event)

    now = [0.0]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    far = later + datetime.timedelta(days=3000)
    ends = [End(Path("server.crt"), later), End(Path("ca.crt"), far)]
    watcher = Watcher(tmp_path, Kept("true"), lambda: ends, lambda: now[0])
    for _ in range(49):
        watcher.update()
        now[0] += 3600
    assert [event["event"] for event in events] == ["certificate-ends-soon"] * 3
    assert "server.crt ends on" in events[0]["text"]


def test_a_renewed_certificate_has_the_same_key_and_names(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "SERVER_DAYS", 10)
    made = make_keys(tmp_path / "keys", 1, ["superlink.example"])
    assert end_of(made.server).soon
    assert not end_of(made.authority).soon
    before = certificates.read_certificate(made.server)
    monkeypatch.setattr(keys, "SERVER_DAYS", 825)
    outcome = camu("deploy", "renew", made.path)
    assert outcome.code == 0, outcome.err
    assert f"{made.server} ends on" in outcome.out
    after = certificates.read_certificate(made.server)
    assert after.public_key() == before.public_key()
    assert after.serial_number != before.serial_number
    assert not end_of(made.server).soon
    kind = certificates.x509.SubjectAlternativeName
    names = [c.extensions.get_extension_for_class(kind).value for c in (before, after)]
    assert names[0] == names[1]
    after.verify_directly_issued_by(certificates.read_certificate(made.authority))
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
    return certificates.x509.load_der_x509_certificate(shown).serial_number


def test_a_server_shows_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    made = make_keys(tmp_path / "keys", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.server_key)
    reloader = Reloader(context, str(made.server), str(made.server_key))
    first = serial_of(context, made.authority)
    assert not reloader.look()
    renew_server(made.path)
    assert serial_of(context, made.authority) == first
    assert reloader.look()
    second = serial_of(context, made.authority)
    assert second == certificates.read_certificate(made.server).serial_number != first
    made.server.write_text("nothing")
    assert not reloader.look()
    assert serial_of(context, made.authority) == second  # the old one stays


class Listed:
    """A control interface with two runs and a node."""

    def __init__(self) -> None:
        self.stopped: list[int] = []

    def runs(self) -> list[tuple[int, str, str, str]]:
        return [(5, "finished", "completed", "Monday"), (6, "running", "", "Tuesday")]

    def nodes(self) -> list[tuple[int, str, str]]:
        return [(9, "node-0", "online")]

    def stop_run(self, run: int) -> bool:
        self.stopped.append(run)
        return True

    def close(self) -> None: ...


def test_runs_and_nodes_are_listed_and_a_run_is_stopped(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, listed = make_keys(tmp_path / "keys", 1), Listed()
    monkeypatch.setattr(Control, "__init__", lambda self, *_, **__: setattr(self, "address", "x"))
    monkeypatch.setattr(Control, "_client", listed, raising=False)
    with Control("x", None) as control:
        assert control.runs()[1] == RunListing(6, "running", "", "Tuesday")
        assert control.nodes() == [NodeState(9, "node-0", "online")]
    outcome = camu("deploy", "list", "--ca", made.authority)
    assert outcome.code == 0, outcome.err
    assert "run 5: finished (completed), started Monday\nrun 6: running, started" in outcome.out
    assert "node 9: node-0, online" in outcome.out
    assert f"{made.server} ends on" in outcome.out
    document = json.loads(camu("deploy", "list", "--ca", made.authority, "--json").out)
    assert document["runs"][1]["run"] == "6"
    assert camu("deploy", "stop", 6, "--ca", made.authority).code == 0
    assert listed.stopped == [6]
    for run, words in ((5, "has already ended"), (7, "there is no such run")):
        outcome = camu("deploy", "stop", run, "--ca", made.authority)
        assert outcome.code == 2
        assert words in outcome.err


def test_progress_names_the_devices_that_are_waited_for(tmp_path: Path) -> None:
    said: list[str] = []

    class Display:
        def say(self, state: str) -> None:
            said.append(state)

        def warn(self, text: str) -> None: ...

        def show(self, record: Any) -> None: ...

    follower = Follower(tmp_path, Display())
    follower.update()
    journal = running(tmp_path)
    follower.update()
    follower.update()
    journal.update(waiting_for=[f"gw-{k}" for k in range(8)])
    follower.update()
    journal.update(waiting_for=[])
    follower.update()
    assert said == ["waiting for mill", "waiting for gw-0, gw-1, gw-2, gw-3, gw-4 and 3 more"]


def test_a_follower_is_patient_with_a_busy_superlink(tmp_path: Path) -> None:
    world: dict[str, Any] = {"now": 0.0, "answers": True}

    class Busy:
        def state(self, run: int) -> RunState:
            if not world["answers"]:
                raise UnreachableError("timed out")
            return RunState("running", "", "")

    follower = Follower(tmp_path, ProgressDisplay(small()), lambda: world["now"])
    control: Any = Busy()
    for now, answers in ((0.0, True), (50.0, False), (59.0, True), (110.0, False), (119.0, False)):
        world.update(now=now, answers=answers)
        assert not follower.has_ended(control, 1)
    world["now"] = 119.5
    with pytest.raises(CamuError, match="timed out"):
        follower.has_ended(control, 1)


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    with ProgressDisplay(small(run__rounds=9, scheme__name="fedavg"), lambda: now) as display:
        display.say("starting the nodes")
        for number in range(9):
            now = 4.0 * number
            display.show(Record(number, 0.5, 1.0, 2.0, {"compute": 1.0, "transmit": 0.5}))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fedavg: starting the nodes"
    assert [line.split(",")[0] for line in lines[1:]] == [
        "fedavg: round 3 of 9",
        "fedavg: round 6 of 9",
    ]


def test_watching_ends_with_a_signal_and_prints_where_its_page_is(tmp_path: Path) -> None:
    running(tmp_path)
    command = [sys.executable, "-m", "camu.cli", "deploy", "watch", str(tmp_path), "--port"]
    port = free_ports(1)[0]
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
