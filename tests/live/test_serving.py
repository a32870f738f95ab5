"""A server leaves nothing behind: no process, no port, and trainings that can go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from camu.simulation.directory import RunDirectory
from helpers.configs import small

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_and_no_port_is_left(start: Start, number: int) -> None:
    server = start("--set", "machine.workers=2") if number == signal.SIGKILL else start()
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


def test_a_training_goes_on_after_a_restart_and_a_damaged_one_says_why_not(
    start: Start, tmp_path: Path
) -> None:
    first = start()
    begin_training(first)
    first.end()
    folder = tmp_path / "runs" / "live"
    run = RunDirectory(folder / "training-0001" / "0-camu")
    before = run.read_records()[-1].round
    damaged = _damaged_copy(folder / "training-0001", folder / "training-0002")
    unreadable = folder / "training-0007"
    unreadable.mkdir()
    (unreadable / "training.json").write_text('{"state": {"schemes": 3')

    second = start()
    found = _trainings(second)
    assert sorted(found) == [1, 2]
    assert [one["state"] for one in found[1]["runs"]] == ["paused", "paused"]
    assert found[1]["state"]["changes"] == LONG["changes"]
    second.post("trainings/2/continue", {})
    _wait_until_idle(second, 2)
    broken = _trainings(second)[2]["runs"][0]
    assert broken["state"] == "failed"
    assert str(damaged) in broken["error"]
    # A new training does not write into a directory that could not be read.
    assert second.post("train", {"schemes": ["fedavg"]})["number"] == 8
    assert [path.name for path in unreadable.iterdir()] == ["training.json"]
    second.post("trainings/8/stop", {})

    second.post("trainings/1/continue", {})
    while run.read_records()[-1].round <= before + 2:
        time.sleep(0.05)
    assert second.post("trainings/1/stop", {})["over"]
    _wait_until_idle(second, 1)
    assert "was stopped" in second.post("trainings/1/continue", {})["errors"][0]["text"]


def _damaged_copy(training: Path, copy: Path) -> Path:
    """A training with one run, whose checkpoint is damaged."""
    shutil.copytree(training, copy)
    document = json.loads((copy / "training.json").read_text())
    document["state"]["schemes"] = ["camu"]
    (copy / "training.json").write_text(json.dumps(document))
    checkpoint = RunDirectory(copy / "0-camu").checkpoint
    checkpoint.write_bytes(b"damaged")
    (checkpoint.parent / "previous.safetensors").unlink(missing_ok=True)
    return Path(*checkpoint.parts[-5:])


def _trainings(server: Any) -> dict[int, Any]:
    found = json.loads(server.ask("GET", f"/{server.token}/trainings")[1])
    return {training["number"]: training for training in found}


def _wait_until_idle(server: Any, number: int) -> None:
    busy = {"waiting", "running", "stopping"}
    while busy & {run["state"] for run in _trainings(server)[number]["runs"]}:
        time.sleep(0.05)


def test_a_plan_that_nobody_waits_for_does_not_keep_the_page_away(server: Any) -> None:
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


def test_a_named_pipe_below_a_followed_directory_does_not_keep_the_server(
    start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "study" / "run"
    run.mkdir(parents=True)
    (run / "config.toml").write_text(small().to_toml())
    os.mkfifo(run / "rounds.jsonl")
    server = start("--follow", str(tmp_path / "study"))
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        host = f"host: 127.0.0.1:{server.port}"
        line.sendall(f"GET /{server.token}/follow/events HTTP/1.1\r\n{host}\r\n\r\n".encode())
        text = b""
        while b'"total": 1' not in text:
            text += line.recv(4096)
    assert server.end() == 0


def test_a_second_server_has_a_directory_and_a_token_of_its_own(server: Any, start: Start) -> None:
    other = start(folder=server.folder)
    assert other.token != server.token
    assert sorted(path.name for path in (server.folder / "runs").iterdir()) == ["live", "live-2"]
    assert other.ask("GET", f"/{server.token}/")[0] == 403


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
