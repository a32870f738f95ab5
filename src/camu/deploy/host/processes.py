"""Processes that a deployment starts, all ended with it, and temporary directories of one user.

A temporary directory is removed by the next start if its owner was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from camu.errors import CamuError
from camu.work import end_with_parent

log = logging.getLogger(__name__)

STARTER = "CAMU_STARTER_PID"
LISTENER = "CAMU_LISTENER"  # number of a socket's file descriptor
END_SECONDS = 8.0
# Everything that a deployment starts talks to its own machines only.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
INSECURE = "--insecure: plain text, and nodes are not asked for keys"
PRIVATE = 0o077  # umask with which only their owner can read files
PREFIX = "camu-deploy-"  # of temporary directories
OWNED = "owned"  # file that the owner holds a lock on; the system ends the lock with the owner
LONGEST_SOCKET_PATH = 100  # the system allows about 107 characters


class Processes:
    """A set of processes; leaving the context ends them and all their descendants."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        listener: socket.socket | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process whose output goes to the end of a log file.

        It inherits `listener`, a bound socket, which `inherited_listener` gives it.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        inherited = [] if listener is None else [listener.fileno()]
        own = {STARTER: str(os.getpid())}
        if listener is not None:
            own[LISTENER] = str(listener.fileno())
        with log.open("ab") as stream:
            self.running[name] = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**quiet_environment(), **environment, **own},
                pass_fds=inherited,
                # A group of its own, in which its descendants are found and ended. Ctrl-C reaches
                # camu only.
                start_new_session=True,
            )
        return self.running[name]

    def dead(self) -> list[str]:
        """The names of those that have ended by themselves."""
        return [name for name, process in self.running.items() if process.poll() is not None]

    def end(self) -> None:
        """Ask all to end; kill those that have not ended after a while."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.running.values():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + END_SECONDS
            while self._any_alive() and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in self.running.values():
            # One that looks ended can only be collected when its last thread has.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)

    def _any_alive(self) -> bool:
        """Whether a process runs, or one of its descendants."""
        groups = {process.pid for process in self.running.values()}
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(ProcessLookupError):
                running = process.info["status"] != psutil.STATUS_ZOMBIE
                if running and os.getpgid(process.pid) in groups:
                    return True
        return False


def quiet_environment() -> dict[str, str]:
    """The environment of Flower's processes: no telemetry, and its commands on the path."""
    commands = str(Path(sys.executable).parent)
    path = os.pathsep.join([commands, os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "PATH": path}


def inherited_listener() -> socket.socket | None:
    """The socket that this process was started with; None if it has to bind one itself."""
    number = os.environ.pop(LISTENER, None)
    return None if number is None else socket.socket(fileno=int(number))


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


def end_with_child(what: str, child: subprocess.Popen[bytes]) -> None:
    """End this process when a child that it cannot do without has ended; systemd starts it again.

    The child must end with this process (`camu.work.end_with_parent`).
    """

    def wait() -> None:
        code = child.wait()
        log.error("%s has ended (code %s), and so does this process", what, code)
        os.kill(os.getpid(), signal.SIGTERM)  # so a node says goodbye, and can return
        time.sleep(END_SECONDS)
        os._exit(1)

    threading.Thread(target=wait, name=f"end of {what}", daemon=True).start()


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Let only their owner read the files that are made meanwhile."""
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def ending_with_a_sentence() -> Iterator[None]:
    """End this program with a sentence and a code after an error of camu's."""
    try:
        yield
    except CamuError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)


@contextlib.contextmanager
def temporary_folder(for_socket: bool = False) -> Iterator[Path]:
    """A new directory of mode 700; directories of processes that are gone are removed first.

    Its path is short enough for a unix socket if it is to hold one.
    """
    parent = tempfile.gettempdir()
    if for_socket and len(f"{parent}/{PREFIX}12345678/runtime") > LONGEST_SOCKET_PATH:
        parent = "/tmp"  # nosec B108
    remove_stale(Path(parent))
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as name,
        (Path(name) / OWNED).open("w") as lock,
    ):  # made with mode 700
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def remove_stale(parent: Path) -> None:
    """Remove this user's directories whose owner was killed, with the keys in them.

    A directory without a lock file is just being made, or not ours.
    """
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # also where its owner holds the lock
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                with (folder / OWNED).open("r") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
