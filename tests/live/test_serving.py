"""A server leaves nothing behind: no process, no port, and trainings that can go on."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from camu.simulation.directory import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
SLOW = {"allocation.solver": "ppo", "allocation.ppo_steps": 1_000_000}
LONG = {"schemes": ["camu", "fedavg"], "changes": {"run.rounds": 100_000}}
Start = Callable[..., Any]


def family(server: Any) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


def begin_training(server: Any) -> None:
    server.post("train", LONG)
    rounds = server.folder / "runs" / "live" / "training-0001" / "0-camu" / "rounds.jsonl"
    while not rounds.exists() or rounds.read_text().count("\n") < 8:
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_process_and_no_port_is_left(start: Start, number: int) -> None:
    server = start("--set", "run.workers=2") if number == signal.SIGKILL else start()
    begin_training(server)
    processes = family(server)
    assert len(processes) >= 4  # two that plan, two that train
    code = server.end(number)
    if number == signal.SIGINT:
        assert code == 0
    gone, alive = psutil.wait_procs(processes, timeout=60)
    assert alive == []
    assert len(gone) == len(processes)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", server.port))


def test_a_training_goes_on_after_a_restart(start: Start, tmp_path: Path) -> None:
    first = start()
    begin_training(first)
    first.end()
    run = RunDirectory(tmp_path / "runs" / "live" / "training-0001" / "0-camu")
    before = run.read_records()[-1].round
    second = start()
    (training,) = json.loads(second.ask("GET", f"/{second.token}/trainings")[1])
    assert [one["state"] for one in training["runs"]] == ["paused", "paused"]
    assert training["state"]["changes"] == LONG["changes"]
    second.post("trainings/1/continue", {})
    while run.read_records()[-1].round <= before + 2:
        time.sleep(0.05)
    answer = second.post("trainings/1/stop", {})
    assert answer["over"]
    while {"running", "stopping"} & _states(second):
        time.sleep(0.05)
    assert "was stopped" in second.post("trainings/1/continue", {})["errors"][0]["text"]


def test_a_damaged_training_is_left_out_or_says_so_and_its_directory_stays(
    start: Start, tmp_path: Path
) -> None:
    first = start()
    first.post("train", {"schemes": ["fedavg"], "changes": {"run.rounds": 100_000}})
    folder = tmp_path / "runs" / "live"
    run = folder / "training-0001" / "0-fedavg"
    checkpoint = RunDirectory(run).checkpoint
    while not checkpoint.exists():
        time.sleep(0.05)
    first.end()
    checkpoint.write_bytes(b"damaged")
    (checkpoint.parent / "previous.safetensors").unlink(missing_ok=True)
    (folder / "training-0007").mkdir()
    (folder / "training-0007" / "training.json").write_text('{"state": {"schemes": 3')
    second = start()
    (training,) = json.loads(second.ask("GET", f"/{second.token}/trainings")[1])
    assert training["number"] == 1
    second.post("trainings/1/continue", {})
    while _states(second) & {"waiting", "running"}:
        time.sleep(0.05)
    (training,) = json.loads(second.ask("GET", f"/{second.token}/trainings")[1])
    assert training["runs"][0]["state"] == "failed"
    assert "state.safetensors" in training["runs"][0]["error"]
    # A new one does not write into a directory that could not be read.
    new = second.post("train", {"schemes": ["fedavg"], "changes": {"run.rounds": 1}})
    assert new["number"] == 8
    assert [path.name for path in (folder / "training-0007").iterdir()] == ["training.json"]


def test_connections_that_never_ask_do_not_keep_the_page_away(start: Start) -> None:
    server = start()
    lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    for line in lines:
        line.sendall(b"GET / HTTP/1.1\r\nhost: 127")  # and no more
    assert server.ask("GET", f"/{server.token}/")[0] == 200
    for line in lines:
        line.settimeout(60)
        assert line.recv(100) == b""  # closed
        line.close()
    assert server.ask("GET", f"/{server.token}/")[0] == 200


def test_a_plan_that_nobody_waits_for_is_given_up(start: Start) -> None:
    server = start()
    planning = [one for one in family(server) if "camu.live.worker" in one.cmdline()]
    assert len(planning) == 2
    body = json.dumps({"schemes": ["camu-joint"], "changes": SLOW})
    for _ in planning:
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(
                f"POST /{server.token}/plan HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                f"{body}".encode()
            )
    gone, _ = psutil.wait_procs(planning, timeout=60)
    assert len(gone) == 2
    assert server.post("plan", {"schemes": ["fedavg"]})["errors"] == []


def _states(server: Any) -> set[str]:
    (training,) = json.loads(server.ask("GET", f"/{server.token}/trainings")[1])
    return {one["state"] for one in training["runs"]}


def test_two_servers_have_two_directories(start: Start, tmp_path: Path) -> None:
    one, other = start(), start()
    assert one.token != other.token
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["live", "live-2"]
    assert other.ask("GET", f"/{one.token}/")[0] == 403


def test_a_port_in_use_is_refused_in_words(camu: Callable[..., Any]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        outcome = camu("live", "--no-browser", "--port", port)
    assert outcome.code == 2
    assert f"--port {port}: cannot be used" in outcome.err


def test_a_directory_that_cannot_be_made_is_refused_in_words(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("a file")
    outcome = camu("live", "--no-browser")
    assert outcome.code == 2
    assert "runs/live: cannot be written" in outcome.err


def test_follow_takes_no_other_settings(camu: Callable[..., Any]) -> None:
    outcome = camu("live", "--follow", ".", "--preset", "demo")
    assert outcome.code == 2
    assert "leave the other options out" in outcome.err
