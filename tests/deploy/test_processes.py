"""Processes end with what started them; plain-text callers of the SuperLink are logged."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy.host.processes import Processes, free_ports, last_line, marked, wait_for_port
from camu.deploy.host.superlink import LoggedHandshake
from camu.deploy.tail import Tail
from camu.errors import CamuError

# A process that hides its child in another session and does not listen to SIGTERM.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


def test_no_descendant_outlives_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camu.deploy.host.processes.END_SECONDS", 0.5)
    mark, log = uuid.uuid4().hex, tmp_path / "logs" / "stubborn.log"
    with Processes(mark) as processes:
        processes.start("stubborn", [sys.executable, "-c", STUBBORN], log, {})
        deadline = time.monotonic() + 60
        while last_line(log) != "ready" or len(marked(mark)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert marked(mark) == []


CHILDREN = {
    "on its own": "from camu.work import end_with_parent; end_with_parent()",
    "asked": "from camu.deploy.host.processes import end_with_starter; end_with_starter()",
    # It does not listen to SIGTERM, so its grace must end.
    "forced": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "from camu.work import end_with_parent; end_with_parent(grace_seconds=0.5)",
}


@pytest.mark.parametrize("how", CHILDREN)
def test_a_process_ends_when_its_starter_is_killed(tmp_path: Path, how: str) -> None:
    mark, log = uuid.uuid4().hex, tmp_path / "log"
    child = f"{CHILDREN[how]}; import time; print('watching', flush=True); time.sleep(600)"
    starter = (
        "import sys, time; from pathlib import Path;"
        "from camu.deploy.host.processes import Processes;"
        f"Processes({mark!r}).start("
        f"'child', [sys.executable, '-c', {child!r}], Path({str(log)!r}), {{}});"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", starter])
    try:
        deadline = time.monotonic() + 60
        while last_line(log) != "watching":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(marked(mark)) == 1
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    while marked(mark):
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
    with Processes(uuid.uuid4().hex) as processes:
        command = [sys.executable, "-c", "raise SystemExit('the key is wrong')"]
        process = processes.start("superlink", command, log, {})
        with pytest.raises(CamuError, match="the key is wrong"):
            wait_for_port(free_ports(1)[0], process, log, 60)
        assert processes.dead() == ["superlink"]


def test_free_ports_differ() -> None:
    assert len(set(free_ports(5))) == 5


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
