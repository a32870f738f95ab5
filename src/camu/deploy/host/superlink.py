"""A SuperLink that only its own machine controls: `python -m camu.deploy.host.superlink ARGS`.

Flower serves nodes, control and runtime on one port, and its control interface asks nobody who they
are: whoever reaches it could register a node or start a run. Here only the nodes' interface, where
every call is signed, is open to other machines. Connections that are no TLS are logged, which
Flower does not do. The arguments are those of flower-superlink.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from typing import Any

from camu.deploy.host.processes import end_with_starter

log = logging.getLogger(__name__)

OPEN_PATHS = ("/v1/fleet/",)


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
    """A TLS connection that says so when its handshake fails, as a plain-text client's does."""

    def do_handshake(self) -> None:
        """Shake hands; what is no TLS is refused by an error, and logged here."""
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
    ssl.SSLContext.sslobject_class = LoggedHandshake
    from flwr.superlink import main as service
    from flwr.superlink.cli import flower_superlink

    create_app = service.create_app

    def guarded(*args: Any, **options: Any) -> Any:
        app = create_app(*args, **options)
        app.add_middleware(LocalControl)
        return app

    service.create_app = guarded
    flower_superlink()


if __name__ == "__main__":
    main()
