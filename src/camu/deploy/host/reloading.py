"""A server's certificate that is replaced on disk is used for the next connections."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0


class Reloader:
    """Loads a certificate into a TLS context again after its file has changed."""

    def __init__(self, context: ssl.SSLContext, certificate: str, key: str) -> None:
        self.context, self.certificate, self.key = context, certificate, key
        self.seen = self._stamp()

    def look(self) -> bool:
        """Load the certificate if its file has changed; whether it was loaded."""
        stamp = self._stamp()
        if stamp is None or stamp == self.seen:
            return False
        self.seen = stamp
        try:
            # On a context of its own first: a wrong file must not take the place of a good one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            self.context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            log.error("%s: cannot be used (%s); the old one stays", self.certificate, error)
            return False
        log.warning("%s was renewed and is used from now on", self.certificate)
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            state = Path(self.certificate).stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_size, state.st_ino


def keep_reloading(
    context: ssl.SSLContext,
    certificate: str,
    key: str,
    pause: Callable[[float], None] = time.sleep,
) -> threading.Thread:
    """Look for a renewed certificate every few seconds, as long as this process runs."""
    reloader = Reloader(context, certificate, key)

    def keep() -> None:
        while True:
            pause(LOOK_SECONDS)
            reloader.look()

    thread = threading.Thread(target=keep, name="certificates", daemon=True)
    thread.start()
    return thread
