"""Versions of camu at a SuperLink: its own, and those that nodes say when they ask for work."""

from __future__ import annotations

import json
import logging
from typing import Any

from camu import __version__
from camu.deploy.array_records import printable
from camu.deploy.host.bodies import Send

log = logging.getLogger(__name__)

VERSIONS = "/camu/versions"  # the owner's call
LONGEST = 40


class Versions:
    """What nodes have said, by their numbers."""

    def __init__(self) -> None:
        self.nodes: dict[int, str] = {}

    def note(self, node: int, said: bytes | None) -> None:
        """Keep what a node says; another version than the SuperLink's is logged once."""
        version = printable((said or b"").decode("ascii", "replace"), LONGEST)
        if version and version != self.nodes.get(node):
            self.nodes[node] = version
            if version != __version__:
                words = "node %s has camu %s, and this SuperLink has %s; install one version"
                log.warning(words, node, version, __version__)

    async def answer(self, send: Send) -> None:
        """Answer the owner."""
        found = {"superlink": __version__, "nodes": {str(k): v for k, v in self.nodes.items()}}
        headers: list[Any] = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(found).encode()})
