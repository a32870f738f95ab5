"""The server on 127.0.0.1: it lets in its own page only, and leaves no process and no port."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from camu.config import Config
from camu.errors import InputError
from camu.live.app import Live

HOST = "127.0.0.1"
LARGEST_BODY = 2**20
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' "
    "'unsafe-inline'; connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


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
        token, number = secrets.token_urlsafe(24), listener.getsockname()[1]
        address = f"http://{HOST}:{number}/{token}/"

        def ready() -> None:
            announce(address, folder)
            if open_browser:
                asyncio.get_running_loop().run_in_executor(None, webbrowser.open, address)

        async def run() -> None:
            live = Live(base, folder, follow)
            guarded = Guard(live.app(), token, number)
            await _Server(guarded, live, ready).serve(sockets=[listener])

        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a server ends
            asyncio.run(run())


class _Server(uvicorn.Server):
    """A server that says when it is ready, and ends its streams before it waits for them."""

    def __init__(self, app: ASGIApp, live: Live, on_ready: Callable[[], None]) -> None:
        self.live, self.on_ready = live, on_ready
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=2,
            )
        )

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


class Guard:
    """Refuses what does not come from the page, and adds headers to every answer.

    Every address starts with the token: `/TOKEN/plan`. What follows it is the path that the
    application sees.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refused = self._refusal(scope)
        if refused is not None:
            status, text = refused
            answer = PlainTextResponse(f"refused: {text}\n", status)
            await answer(scope, receive, _with_headers(send))
            return
        path = scope["path"][len(self.token) + 1 :]
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self.app(inner, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is refused, with the status; None if it is not."""
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self.hosts:
            return 403, "this address is for 127.0.0.1 only"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        other = origin is not None and origin.removeprefix("http://") not in self.hosts
        if other or site not in ("none", "same-origin"):
            return 403, "the request comes from another site"
        given, slash, _ = scope["path"][1:].partition("/")
        if not slash or not secrets.compare_digest(given.encode(), self.token.encode()):
            return 403, "open the address that camu live printed, with its token"
        kind = headers.get("content-type", "").partition(";")[0]
        if scope["method"] == "POST" and kind != "application/json":
            return 415, "send JSON"
        return None


def _bounded(receive: Receive) -> Receive:
    """The body, up to the limit."""
    total = 0

    async def bounded() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > LARGEST_BODY:
            raise HTTPException(413, f"refused: a request is at most {LARGEST_BODY} bytes")
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def extended(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return extended
