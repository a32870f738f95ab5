"""Processes end with what started them; plain-text callers of the SuperLink are logged."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy.deployment import Deployment
from camu.deploy.host.connections import LoggedHandshake
from camu.deploy.host.local import open_local
from camu.deploy.host.processes import Processes, last_line, wait_for_port
from camu.errors import CamuError
from camu.files import Tail
from helpers.configs import small

# A process with a child, both of which do not listen to SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, "ready", flush=True)
time.sleep(600)
"""


def wait_until(what: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_no_descendant_outlives_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camu.deploy.host.processes.END_SECONDS", 0.5)
    log = tmp_path / "logs" / "stubborn.log"
    with Processes() as processes:
        processes.start("stubborn", [sys.executable, "-c", STUBBORN], log, {})
        wait_until(lambda: last_line(log).endswith("ready"))
        pids = [int(word) for word in last_line(log).split()[:2]]
        assert all(map(is_alive, pids))
    wait_until(lambda: not any(map(is_alive, pids)))


CHILDREN = {
    "on its own": "from camu.work import end_with_parent; end_with_parent()",
    "asked": "from camu.deploy.host.processes import end_with_starter; end_with_starter()",
    # It does not listen to SIGTERM, so its grace must end.
    "forced": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "from camu.work import end_with_parent; end_with_parent(grace_seconds=0.5)",
}


@pytest.mark.parametrize("how", CHILDREN)
def test_a_process_ends_when_its_starter_is_killed(tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"
    child = f"{CHILDREN[how]}; import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    starter = (
        "import sys, time; from pathlib import Path;"
        "from camu.deploy.host.processes import Processes;"
        f"Processes().start("
        f"'child', [sys.executable, '-c', {child!r}], Path({str(log)!r}), {{}});"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", starter])
    try:
        wait_until(lambda: last_line(log).isdecimal())
        pid = int(last_line(log))
        assert is_alive(pid)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not is_alive(pid))


def test_a_process_whose_starter_is_already_gone_ends() -> None:
    code = "import time; from camu.work import end_with_parent; end_with_parent(-1);"
    assert subprocess.run([sys.executable, "-c", code + "time.sleep(600)"], timeout=60).returncode


def test_a_watched_process_keeps_its_exit_code_however_long_its_end_takes() -> None:
    code = (
        "import sys, time; from camu.work import end_with_parent\n"
        "class Slow:\n"
        "    def __del__(self, sleep=time.sleep): sleep(1.5)\n"  # after the handlers are gone
        "slow = Slow(); end_with_parent(); sys.exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 7


def test_a_superlink_that_ends_at_once_is_reported_with_its_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Processes() as processes:
        command = [sys.executable, "-c", "raise SystemExit('the key is wrong')"]
        process = processes.start("superlink", command, log, {})
        with pytest.raises(CamuError, match="the key is wrong"):
            wait_for_port(1, process, log, 60)
        assert processes.dead() == ["superlink"]


def test_nobody_can_take_the_port_before_the_superlink_has_it(tmp_path: Path) -> None:
    code = """
from camu.deploy.deployment import Deployment
from camu.deploy.host.local import open_local
from camu.deploy.host.processes import inherited_listener
listener = inherited_listener()
assert inherited_listener() is None
listener.listen()
print(listener.accept()[1])
"""
    deployment = Deployment(small(), str(tmp_path / "run"), nodes=1)
    with open_local(deployment, insecure=True) as local:
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(("127.0.0.1", local.port))
        command = [sys.executable, "-c", code]
        process = local.processes.start("child", command, tmp_path / "log", {}, local.listener)
        local.listener.close()
        wait_for_port(local.port, process, tmp_path / "log", 60)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("first_bytes", "expected"),
    [(b"GET / HTTP/1.1\r\n", ssl.SSLError), (b"", ssl.SSLWantReadError)],
)
def test_a_connection_that_is_no_tls_is_logged(
    first_bytes: bytes, expected: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = LoggedHandshake
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    received.write(first_bytes)
    connection = context.wrap_bio(received, sent, server_side=True)
    with pytest.raises(expected):
        connection.do_handshake()
    assert ("no TLS handshake" in caplog.text) == (expected is ssl.SSLError)


PARENT = """
import signal, subprocess, sys, time
from camu.deploy.host import processes
processes.END_SECONDS = 0.1
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
processes.end_with_child("the helper", child)
time.sleep(600)
"""


@pytest.mark.parametrize(("how", "code"), [("willing", -signal.SIGTERM), ("stubborn", 1)])
def test_a_process_ends_with_a_child_that_it_needs(how: str, code: int) -> None:
    command = [sys.executable, "-c", PARENT, how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code
    assert "the helper has ended (code 3)" in ended.stderr


def test_a_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    tail = Tail(path)
    assert tail.lines() == []
    path.write_text("one\ntwo\nthr")
    assert tail.lines() == ["one", "two"]
    path.write_text("one\ntwo\nthree\n")
    assert tail.lines() == ["three"]
    path.write_text("new\n")  # written anew by a restarted server
    assert tail.lines() == ["new"]
    assert Tail(path, skip_present=True).lines() == []
