"""Starts the server on 127.0.0.1, opens the browser, and leaves no process and no port behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout
from uvicorn.protocols.http.h11_impl import H11Protocol

from camu.config import Config
from camu.errors import InputError
from camu.live.app import Live
from camu.live.guard import new_token

HOST = "127.0.0.1"
MOST_CONNECTIONS = 400
REQUEST_SECONDS = 5.0


def serve(
    base: Config,
    port: int,
    follow: Path | None,
    open_browser: bool,
    announce: Callable[[str, Path], None],
) -> None:
    """Serve until Ctrl-C; `announce` gets the address and the run directory."""
    runs = Path("runs")
    own = _own_directory(runs) if follow is None else nullcontext(runs)  # a reader needs none
    with _listening(port) as listener, own as folder:
        token = new_token()
        number = listener.getsockname()[1]
        address = f"http://{HOST}:{number}/{token}/"
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a server ends
            asyncio.run(
                _serve(base, folder, follow, listener, token, address, open_browser, announce)
            )


async def _serve(
    base: Config,
    folder: Path,
    follow: Path | None,
    listener: socket.socket,
    token: str,
    address: str,
    open_browser: bool,
    announce: Callable[[str, Path], None],
) -> None:
    live = Live(base, folder, follow)
    config = uvicorn.Config(
        live.app(token, listener.getsockname()[1]),
        http=_Impatient,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config, live)
    server.on_ready = lambda: _ready(address, folder, open_browser, announce)
    await server.serve(sockets=[listener])


def _ready(
    address: str, folder: Path, open_browser: bool, announce: Callable[[str, Path], None]
) -> None:
    announce(address, folder)
    if open_browser:
        asyncio.get_running_loop().run_in_executor(None, webbrowser.open, address)


class _Impatient(H11Protocol):
    """Closes a connection that does not send a whole request in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and look later whether a request has come."""
        super().connection_made(transport)
        self.loop.call_later(REQUEST_SECONDS, self._look, None)

    def _look(self, last: object) -> None:
        """`last` is the request at the last look; between requests uvicorn itself has a timer."""
        if self.transport.is_closing():
            return
        answered = self.cycle is None or self.cycle.response_complete
        if answered and self.timeout_keep_alive_task is None and self.cycle is last:
            self.transport.close()
            return
        self.loop.call_later(REQUEST_SECONDS, self._look, self.cycle)


class _Server(uvicorn.Server):
    """A server that says when it is ready, and ends its streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self.live = live
        self.on_ready: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then everything else."""
        self.live.ending.set()
        await self.live.workers.close()
        await super().shutdown(sockets)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """A socket on this machine's own address."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"--port {port}: cannot be used ({reason}); give another, or leave it out"
        ) from None
    with listener:
        yield listener


@contextmanager
def _own_directory(root: Path) -> Iterator[Path]:
    """The first of runs/live, runs/live-2, ... that no other server uses."""
    number = 1
    while True:
        folder = root / ("live" if number == 1 else f"live-{number}")
        lock = FileLock(folder / ".lock")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            number += 1
            continue
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror}); start camu live in a directory "
                "that you can write to"
            ) from None
        with lock:
            yield folder
        return
