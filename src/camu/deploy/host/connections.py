"""The connections of a SuperLink: none stays open without a call, and only so many do.

Before a call's headers are complete nobody knows who calls. So handshakes and headers have a time
and a size, and of the connections that wait for a call only the newest are kept: whoever opens
thousands ends his own.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
HEADER_SECONDS = 10.0  # until a call's headers are complete, also between two calls
LARGEST_HEADERS = 16_384  # bytes
MOST_WAITING = 500  # connections without a call
MOST_CONNECTIONS = 4096  # a call on a further one is answered with "busy"
MOST_FILES = 8192  # open files of the process; a connection takes one, and 50 KB


class Loop(uvloop.Loop):
    """uvloop's loop, whose servers give a TLS handshake little time.

    A connection in a handshake takes 50 KB here, and 300 KB with the loop of Python.
    """

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """A server as the loop makes it."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HANDSHAKE_SECONDS)
        return await super().create_server(*args, **options)


class Connection(H11Protocol):
    """A connection that ends when no call comes in time, or too many newer ones wait."""

    def __init__(self, *args: Any, waiting: dict[Connection, None], **options: Any) -> None:
        super().__init__(*args, **options)
        self.waiting = waiting
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a call."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data; when a call has begun, the wait is over."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_more()

    def on_response_complete(self) -> None:
        """Wait for the next call."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._wait()

    def _wait(self) -> None:
        self._wait_no_more()
        self.timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)
        self.waiting[self] = None
        if len(self.waiting) > MOST_WAITING:
            oldest = next(iter(self.waiting))
            oldest._wait_no_more()
            oldest.transport.abort()

    def _wait_no_more(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        self.waiting.pop(self, None)


def bounded_connections() -> dict[str, Any]:
    """The options of uvicorn with which connections are bounded."""
    return {
        "http": partial(Connection, waiting={}),
        "ws": "none",
        "loop": f"{__name__}:Loop",
        "h11_max_incomplete_event_size": LARGEST_HEADERS,
        "limit_concurrency": MOST_CONNECTIONS,
    }


def allow_files() -> None:
    """Let this process have as many files open as it needs for its connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class LoggedHandshake(ssl.SSLObject):
    """A TLS connection that logs a failed handshake, such as that of a plain-text client."""

    def do_handshake(self) -> None:
        """Shake hands; a connection without TLS is logged and refused by an error."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise  # not yet: the rest is on its way
        except ssl.SSLError as error:
            log.warning("a connection is refused: no TLS handshake (%s)", error.reason or error)
            raise


class Quota(logging.Filter):
    """So many lines of a log per minute: callers without a key must not fill the disk."""

    def __init__(self, most: int = 60, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.most, self.clock = most, clock
        self.minute, self.count = clock(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; the first of a minute says how many were not."""
        if self.clock() - self.minute >= 60:
            left_out = self.count - self.most
            self.minute, self.count = self.clock(), 0
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out} lines before it were left out)"
                record.args = ()
        self.count += 1
        return self.count <= self.most
