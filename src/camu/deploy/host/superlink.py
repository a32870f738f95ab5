"""A SuperLink that only its own machine controls: `python -m camu.deploy.host.superlink ARGS`.

Flower serves nodes, control and runtime on one port, and its control interface does not ask callers
who they are: anyone who reaches it could register a node or start a run. Here only the nodes'
interface, where every call is signed, is open to other machines. Connections without TLS are
logged, which Flower does not do. The arguments are those of flower-superlink.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
import sys
from pathlib import Path
from typing import Any

from camu.deploy.flower_compat import run_superlink
from camu.deploy.host.keys import ServerKeys
from camu.deploy.host.processes import end_with_starter

log = logging.getLogger(__name__)

OPEN_PATHS = ("/v1/fleet/",)


def superlink_command(
    host: str, port: int, keys: ServerKeys | None, database: Path | None = None
) -> list[str]:
    """The command line of a SuperLink; without keys it uses plain text and takes every node."""
    command = [sys.executable, "-m", "camu.deploy.host.superlink"]
    command += ["--host", host, "--port", str(port), "--disable-runtime-dependency-installation"]
    if database is not None:
        command += ["--database", str(database)]
    if keys is None:
        return [*command, "--insecure"]
    keys.check()
    return [
        *command,
        *("--ssl-ca-certfile", str(keys.authority)),
        *("--ssl-certfile", str(keys.certificate)),
        *("--ssl-keyfile", str(keys.key)),
        "--enable-supernode-auth",
    ]


class LocalControl:
    """ASGI middleware: other machines reach the nodes' interface and nothing else."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] in ("http", "websocket") and not allowed(scope):
            host = (scope.get("client") or ("unknown",))[0]
            log.warning("%s from %s is refused: only this machine may", scope["path"], host)
            if scope["type"] == "http":
                headers = [(b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 403, "headers": headers})
                await send({"type": "http.response.body", "body": b"only from this machine\n"})
            return
        await self.app(scope, receive, send)


def allowed(scope: Any) -> bool:
    """Whether a request may pass."""
    if str(scope["path"]).startswith(OPEN_PATHS):
        return True
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


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


def main() -> None:
    """Run Flower's SuperLink with the middleware around it."""
    end_with_starter()
    run_superlink(LocalControl, LoggedHandshake)


if __name__ == "__main__":
    main()
