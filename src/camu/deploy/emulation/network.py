"""Network namespaces of this machine, one per device, with links of given rates between them.

Every namespace has one interface on a common bridge; what it sends passes a token bucket (`tbf`).
All names carry the number of this process. They are removed at the end, and those of a process that
was killed by the next start.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import psutil

from camu.errors import CamuError, InputError

Result = TypeVar("Result")

PREFIX = "camu-"
CLONE_NEWNET = 0x40000000
FRAME_BYTES = 1514  # of 1500 bytes and the head of Ethernet
BUCKET_BYTES = 1600  # one frame: what is sent at once when the link was idle
QUEUE_BYTES = 60_000
SLOWEST_BPS, FASTEST_BPS = 8_000, 4_000_000_000
PORT = 7000
MOST_DEVICES = 200
_OWN = re.compile(rf"{PREFIX}(\d+)-\d+$")


def check_machine() -> None:
    """Refuse a machine on which no links can be shaped, before anything is changed."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise InputError(f"camu deploy emulate: {tool} is missing; install iproute2")
    if os.geteuid() != 0:
        raise InputError(
            "camu deploy emulate: only root can make network namespaces; run it with sudo, in a "
            "virtual machine or container of its own"
        )


def run_tool(*words: str) -> str:
    """Run ip or tc; its words in an error."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise CamuError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def remove_stale() -> list[str]:
    """Remove namespaces whose process is gone; returns their names."""
    names = [line.split()[0] for line in run_tool("ip", "netns", "list").splitlines() if line]
    stale = [
        name
        for name in names
        if (own := _OWN.match(name)) and not psutil.pid_exists(int(own.group(1)))
    ]
    for name in stale:
        run_tool("ip", "netns", "delete", name)
    return stale


def rate_words(bits_per_second: float) -> list[str]:
    """The words of tc for a rate; 8 kbit/s at least."""
    rate = min(max(bits_per_second, SLOWEST_BPS), FASTEST_BPS)
    return [
        *("tbf", "rate", f"{rate:.0f}bit", "burst", str(BUCKET_BYTES), "limit", str(QUEUE_BYTES))
    ]


class Network:
    """Namespaces 0, 1, ... on one bridge, which is in the last one; a context manager."""

    def __init__(self, count: int) -> None:
        if count > MOST_DEVICES:
            raise InputError(
                f"camu deploy emulate: {count} namespaces are too many; {MOST_DEVICES} are possible"
            )
        self.count = count
        self._rates: dict[int, float] = {}
        self._listeners: dict[int, socket.socket] = {}
        self._lines: dict[tuple[int, int], tuple[socket.socket, socket.socket]] = {}
        self._lock = threading.Lock()

    def name(self, number: int) -> str:
        """The name of a namespace."""
        return f"{PREFIX}{os.getpid()}-{number}"

    def __enter__(self) -> Network:
        check_machine()
        remove_stale()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        hub = self.name(self.count)
        run_tool("ip", "netns", "add", hub)
        run_tool("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        run_tool("ip", "-n", hub, "link", "set", "bridge", "up")
        for number in range(self.count):
            own, port = self.name(number), f"port{number}"
            run_tool("ip", "netns", "add", own)
            peer = ["peer", "name", "air", "netns", own, "gso_max_segs", "1"]
            run_tool("ip", "-n", hub, "link", "add", port, "type", "veth", *peer)
            run_tool("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
            address = f"10.77.{number // 250}.{1 + number % 250}/16"
            run_tool("ip", "-n", own, "address", "add", address, "dev", "air")
            run_tool("ip", "-n", own, "link", "set", "air", "up")
            self._listeners[number] = self.inside(number, _listen)

    def close(self) -> None:
        """Remove everything."""
        for ends in self._lines.values():
            for end in ends:
                end.close()
        for listener in self._listeners.values():
            listener.close()
        for number in range(self.count + 1):
            with contextlib.suppress(CamuError):
                run_tool("ip", "netns", "delete", self.name(number))

    def inside(self, number: int, work: Callable[[], Result]) -> Result:
        """Do something in a namespace: a thread enters it, and what it opens stays there."""
        done: Future[Result] = Future()

        def enter() -> None:
            try:
                with open(f"/run/netns/{self.name(number)}") as place:
                    if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET):
                        raise CamuError(os.strerror(ctypes.get_errno()))
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=enter, daemon=True).start()
        return done.result()

    def shape(self, number: int, bits_per_second: float) -> None:
        """Let a namespace send at a rate, from now on."""
        if self._rates.get(number) != bits_per_second:
            verb = "change" if number in self._rates else "add"
            words = ["qdisc", verb, "dev", "air", "root", *rate_words(bits_per_second)]
            run_tool("tc", "-n", self.name(number), *words)
            self._rates[number] = bits_per_second

    def line(self, sender: int, receiver: int) -> tuple[socket.socket, socket.socket]:
        """The two ends of a TCP connection, which is kept."""
        with self._lock:
            if (sender, receiver) not in self._lines:
                address = f"10.77.{receiver // 250}.{1 + receiver % 250}", PORT
                one = self.inside(sender, lambda: socket.create_connection(address, 60))
                two, _ = self._listeners[receiver].accept()
                for end in (one, two):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    end.settimeout(600)
                self._lines[sender, receiver] = one, two
            return self._lines[sender, receiver]

    def sent_bytes(self) -> list[int]:
        """What each namespace has sent so far, with the heads of frames."""

        def read() -> int:
            with open("/proc/thread-self/net/dev") as table:
                line = next(line for line in table if line.strip().startswith("air:"))
            return int(line.split()[9])

        return [self.inside(number, read) for number in range(self.count)]


def _listen() -> socket.socket:
    return socket.create_server(("0.0.0.0", PORT), backlog=MOST_DEVICES)  # nosec B104


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """Namespaces for so many ends."""
    with Network(count) as made:
        yield made
