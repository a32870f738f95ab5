"""Lets a request in only from the page itself: token, host, origin, size and rate are checked."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


def new_token() -> str:
    """A random token for the address of a server."""
    return secrets.token_urlsafe(24)


@dataclass
class Rate:
    """So many requests per second, with a reserve for a burst."""

    per_second: float
    burst: float
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.left, self.then = self.burst, self.clock()

    def admits(self) -> bool:
        """Whether one more request is within the rate; it is counted if so."""
        now = self.clock()
        self.left = min(self.burst, self.left + (now - self.then) * self.per_second)
        self.then = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Guard:
    """Middleware: refuses what does not come from the page, and adds headers to every answer.

    Every address starts with the token: `/TOKEN/plan`. What follows it is the path that the
    application sees.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.reading, self.asking = Rate(200, 400), Rate(40, 80)

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
            answer = PlainTextResponse(text + "\n", status, headers=dict(_HEADERS))
            if status == 429:
                answer.headers["retry-after"] = "1"
            await answer(scope, receive, send)
            return
        path = scope["path"][len(self.token) + 1 :]
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self.app(inner, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is refused, with the status; None if it is not."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self.hosts:
            return 403, "refused: this address is for 127.0.0.1 only"
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            return 403, "refused: the request comes from another site"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "refused: the request comes from another site"
        given, slash, _ = scope["path"][1:].partition("/")
        if not slash or not secrets.compare_digest(given.encode(), self.token.encode()):
            return 403, "refused: open the address that camu live printed, with its token"
        asks = scope["method"] == "POST"
        if asks and headers.get("content-type", "").partition(";")[0] != "application/json":
            return 415, "refused: send JSON"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, f"refused: a request is at most {LARGEST_BODY} bytes"
        if not (self.asking if asks else self.reading).admits():
            return 429, "refused: too many requests at once; wait a second"
        return None


class TooLargeError(Exception):
    """A body without a declared length is too large."""


def _bounded(receive: Receive) -> Receive:
    """The body, up to the limit."""
    total = 0

    async def bounded() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > LARGEST_BODY:
            raise TooLargeError
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def extended(message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in message["headers"]}
            own = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in known]
            message = {**message, "headers": [*message["headers"], *own]}
        await send(message)

    return extended
