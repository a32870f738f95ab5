"""Who may call a SuperLink: other machines reach the nodes' interface, the owner all of it.

Flower serves nodes, control and runtime on one port, and only the nodes' calls are signed. All
other calls must come from this machine and carry a token that only the SuperLink's owner can read.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from dataclasses import dataclass
from typing import Any

from camu.deploy.flower_compat import TOKEN_HEADER

log = logging.getLogger(__name__)

OPEN_PATHS = ("/v1/fleet/",)
# A node sends an array in pieces of 5 MB; the list of the pieces comes first.
LARGEST_BODY_BYTES = 64_000_000


@dataclass(frozen=True)
class Guard:
    """ASGI middleware: lets calls of nodes pass, and those of the owner on this machine."""

    app: Any
    token: str

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        why = refusal(scope, self.token)
        if why is None:
            await self.app(scope, receive, send)
            return
        host = (scope.get("client") or ("unknown",))[0]
        log.warning("%s from %s is refused: %s", scope["path"], host, why)
        if scope["type"] == "http":
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": f"{why}\n".encode()})


def refusal(scope: Any, token: str) -> str | None:
    """Why a request may not pass; None if it may."""
    if scope.get("method") == "POST" and not _is_small(scope["headers"]):
        return f"it is larger than {LARGEST_BODY_BYTES} bytes, or does not say its size"
    if str(scope["path"]).startswith(OPEN_PATHS):
        return None
    if not _is_local(scope.get("client")):
        return "only this machine may"
    given = [value for name, value in scope["headers"] if name == TOKEN_HEADER.encode()]
    if len(given) != 1 or not hmac.compare_digest(given[0], token.encode()):
        return "only the owner of the SuperLink may; the call has no valid token"
    return None


def _is_small(headers: Any) -> bool:
    sizes = [value for name, value in headers if name == b"content-length"]
    return len(sizes) == 1 and sizes[0].isdigit() and int(sizes[0][:12]) <= LARGEST_BODY_BYTES


def _is_local(client: Any) -> bool:
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
