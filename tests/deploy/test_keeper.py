"""A helper process that dies is started again, and ends with its keeper."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy.host.keeper import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, keep_running
from camu.deploy.host.processes import Processes, last_line, marked


def test_a_process_that_dies_is_started_again_with_longer_pauses() -> None:
    started: list[subprocess.Popen[bytes]] = []
    pauses: list[float] = []
    enough = threading.Event()

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["false"]))
        return started[-1]

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) >= 9:
            enough.set()
            threading.Event().wait()  # for ever, in a daemon thread

    keep_running("the test", start, pause)
    assert enough.wait(60)
    assert len(started) == 9
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS


CHILD = """
from camu.deploy.host.keeper import end_with_keeper
end_with_keeper()
import time
print("here", flush=True)
time.sleep(600)
"""
KEEPER = f"""
import subprocess, sys, time
from camu.deploy.host.keeper import keep_running
keep_running("the child", lambda: subprocess.Popen([sys.executable, "-c", {CHILD!r}]))
time.sleep(600)
"""


def wait(what: object, mark: str) -> None:
    deadline = time.monotonic() + 60
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_child_comes_back_and_ends_with_its_keeper(tmp_path: Path) -> None:
    mark, log = uuid.uuid4().hex, tmp_path / "log"
    with Processes(mark) as processes:
        keeper = processes.start("keeper", [sys.executable, "-c", KEEPER], log, {})
        wait(lambda: last_line(log) == "here", mark)
        (child,) = [each for each in marked(mark) if each.pid != keeper.pid]
        child.kill()
        wait(lambda: log.read_text().count("here") == 2, mark)
        assert len(marked(mark)) == 2
        keeper.kill()
        keeper.wait()
        wait(lambda: not marked(mark), mark)
