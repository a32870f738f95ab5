"""Bodies of calls in ASGI: read whole within a time, given again, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from camu.deploy.host.replies import Refused

READ_SECONDS, SLOWEST_RATE = 30.0, 2000  # for a body: some time, and more for a large one

Receive = Callable[[], Any]
Send = Callable[[Any], Any]


async def read_body(receive: Receive, size: int) -> bytes:
    """The body of a call, of the size that it announced, within a time."""
    parts, seen, more = [], 0, True
    try:
        async with asyncio.timeout(READ_SECONDS + size / SLOWEST_RATE):
            while more:
                event = await receive()
                if event["type"] != "http.request":
                    raise Refused(400, "it was broken off")
                part, more = event.get("body", b""), event.get("more_body", False)
                seen += len(part)
                if seen > size:
                    break
                parts.append(part)
    except TimeoutError:
        raise Refused(408, "its body did not come in time") from None
    if seen != size:
        raise Refused(400, "its body is not of the size that it announced")
    return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read, as the application receives it."""
    given = False

    async def again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def nothing_more() -> Any:
    """An ASGI `receive` of a call that goes on."""
    await asyncio.Event().wait()


def collector(parts: list[Any]) -> Send:
    """An ASGI `send` that keeps what it is given."""

    async def send(part: Any) -> None:
        parts.append(part)

    return send
