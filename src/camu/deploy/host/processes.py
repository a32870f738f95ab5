"""Processes that a deployment starts: logged, marked, and all ended with it.

Every process carries a mark in its environment. Its descendants inherit the mark, so all of them
can be found and ended, in any session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from camu.errors import CamuError
from camu.work import end_with_parent

MARK = "CAMU_DEPLOYMENT"
STARTER = "CAMU_STARTER_PID"
END_SECONDS = 8.0
# Everything that a deployment starts talks to its own machines only.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


class Processes:
    """A set of processes; leaving the context ends them and all their descendants."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process whose output goes to the end of a log file."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={
                    **quiet_environment(),
                    **environment,
                    MARK: self.mark,
                    STARTER: str(os.getpid()),
                },
                start_new_session=True,  # Ctrl-C reaches camu only, which then ends them in order
            )
        self.running[name] = process
        return process

    def dead(self) -> list[str]:
        """The names of those that have ended by themselves."""
        return [name for name, process in self.running.items() if process.poll() is not None]

    def end(self) -> None:
        """Ask all to end; kill those that have not ended after a while."""
        for process in self.running.values():
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline and (marked(self.mark) or not self._all_ended()):
            time.sleep(0.1)
        for process in self.running.values():
            if process.poll() is None:
                _signal_group(process.pid, signal.SIGKILL)
        for left in marked(self.mark):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                left.kill()
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=END_SECONDS)
        while marked(self.mark) and time.monotonic() < deadline + END_SECONDS:
            time.sleep(0.05)

    def _all_ended(self) -> bool:
        return all(process.poll() is not None for process in self.running.values())


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that carry a mark, without this one."""
    return [
        process
        for process in psutil.process_iter(["environ"])
        # The environment is None where it is another user's, or the process has ended.
        if (process.info["environ"] or {}).get(MARK) == mark and process.pid != os.getpid()
    ]


def quiet_environment() -> dict[str, str]:
    """The environment of Flower's processes: no telemetry, and its commands on the path."""
    commands = str(Path(sys.executable).parent)
    path = os.pathsep.join([commands, os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "PATH": path}


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback address."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Wait until a process listens on a loopback port."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        if process.poll() is not None:
            raise CamuError(f"the SuperLink ended at its start ({last_line(log)}); see {log}")
        if time.monotonic() > deadline:
            raise CamuError(f"the SuperLink did not answer within {seconds:g} s; see {log}")
        time.sleep(0.1)


def last_line(log: Path) -> str:
    """The last line of a log that is not empty."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return "no output"
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def end_with_starter() -> None:
    """In a process of `Processes`: end when the process that started it is gone."""
    starter = os.environ.get(STARTER)
    if starter:
        end_with_parent(int(starter), END_SECONDS)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
