"""The guard in front of a SuperLink: who may call what, how much and for how long.

Flower reads and parses a call before it checks the caller's key. Here the headers are checked
first: a call of a node must be signed with a registered key, and every other call must come from
this machine and carry the owner's token. Nothing else is read before that. What nodes send is
limited by its path, by what their key has under way, and by what a reply to their message needs.
"""

from __future__ import annotations

import asyncio
import binascii
import datetime
import hmac
import ipaddress
import logging
import time
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    NodeStatus,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from camu.deploy.array_records import printable
from camu.deploy.flower import HOLD_HEADER, REPLY_HEADER, TOKEN_HEADER, VERSION_HEADER
from camu.deploy.host.bodies import Receive, Send, collector, nothing_more, read_body, replay
from camu.deploy.host.replies import Refused, Replies
from camu.deploy.host.versions import VERSIONS, Versions

log = logging.getLogger(__name__)

FLEET = "/v1/fleet/"
ACTIVATE, DEACTIVATE = f"{FLEET}activate-node", f"{FLEET}deactivate-node"
PULL, PUSH, OBJECT = f"{FLEET}pull-messages", f"{FLEET}push-messages", f"{FLEET}push-object"
SMALL_BYTES = 4096
# A node sends an array in pieces of 5 MB; the tree of the pieces comes first.
LIMITS = {
    **{
        FLEET + name: SMALL_BYTES
        for name in ("activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages")
    },
    **{
        FLEET + name: SMALL_BYTES
        for name in ("get-run", "get-fab", "pull-object", "confirm-message-received")
    },
    PUSH: 4_000_000,
    OBJECT: 6_000_000,
}
# Without keys nodes register themselves.
OPEN_LIMITS = {
    **LIMITS,
    **{f"{FLEET}{what}-node": SMALL_BYTES for what in ("register", "unregister")},
}
REGISTRATIONS = ("/v1/control/register-node", "/v1/control/unregister-node")
SEND, COLLECT = "/v1/runtime/push-messages", "/v1/runtime/pull-messages"  # calls of a run's server
OWNERS_BYTES = 64_000_000
LONGEST_HEADER = 1024  # of those that prove who a node is
MOST_BYTES, MOST_BYTES_OF_KEY = 256_000_000, 16_000_000  # of bodies under way
MOST_CALLS_OF_KEY = 8
# That a node waits for work in one call: clients of Flower give up after 30, camu's nodes say it.
HOLD_SECONDS, LONGEST_HOLD = 20.0, 270.0
OLDEST = TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE  # seconds of a signature, as Flower has it

Scope = dict[str, Any]


@dataclass(frozen=True)
class Registered:
    """A registered node: its number, and its parsed public key."""

    node: int
    key: Any


def registered(nodes: Iterable[Any]) -> dict[bytes, Registered]:
    """The registered nodes by their public keys; `nodes` is Flower's list of them."""
    return {
        bytes(each.public_key): Registered(
            int(each.node_id), bytes_to_public_key(bytes(each.public_key))
        )
        for each in nodes
        if each.public_key and each.status != NodeStatus.UNREGISTERED
    }


@dataclass(eq=False)
class Guard:
    """ASGI middleware: lets calls of registered nodes pass, and those of the owner."""

    app: Any
    token: str
    # The registered nodes; None: nodes are not asked for keys.
    nodes: Callable[[], Mapping[bytes, Registered]] | None
    clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    replies: Replies = field(default_factory=Replies)
    versions: Versions = field(default_factory=Versions)
    _known: Mapping[bytes, Registered] | None = None
    _bytes: Counter[Any] = field(default_factory=Counter)  # under way, by caller; None: of all
    _calls: Counter[Any] = field(default_factory=Counter)
    # Of nodes that wait for work: set when there is some.
    _waiting: dict[int, set[asyncio.Event]] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        try:
            if scope["type"] != "http":
                raise Refused(403, "it is no call of HTTP")
            if scope["path"].startswith(FLEET):
                await self._pass_node(scope, receive, send)
            else:
                await self._pass_owner(scope, receive, send)
        except Refused as refused:
            host = (scope.get("client") or ("unknown",))[0]
            log.warning("%s from %s is refused: %s", printable(scope["path"], 100), host, refused)
            await refuse(scope, send, refused)

    async def _pass_owner(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_owner(scope, self.token)
        path = scope["path"]
        if path == VERSIONS:
            await self.versions.answer(send)
            return
        size = announced_bytes(scope, OWNERS_BYTES) if scope.get("method") == "POST" else 0
        if path == SEND:
            body = await read_body(receive, size)
            self.replies.expect(body, one_header(scope, REPLY_HEADER))
            receive = replay(body, receive)
        await self.app(scope, receive, send)
        if path == COLLECT:
            self._wake(self.replies.new_work())
        if path in REGISTRATIONS:
            self._known = None
            self._wake(list(self._waiting))  # whoever is not registered any more is told at once

    def _wake(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            for news in self._waiting.get(node, ()):
                news.set()

    async def _pass_node(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        limits = OPEN_LIMITS if self.nodes is None else LIMITS
        if path not in limits or scope.get("method") != "POST":
            raise Refused(404, "nodes have no such call")
        key, number = (None, None) if self.nodes is None else await self._signer(scope)
        size = announced_bytes(scope, limits[path])
        async with self._room(key, size):
            body = await read_body(receive, size)
            node = check_identity(parse(path, body), key, number)
            if path == PUSH:
                self.replies.begin(node, parse(path, body), size)
            elif path == OBJECT:
                self.replies.add(node, size)
            if path == ACTIVATE and number is not None:
                await self._leave(number, scope)
            if path == PULL:
                if number is not None:
                    self.versions.note(node, one_header(scope, VERSION_HEADER))
                await self._wait_for_work(node, scope, body, receive, send)
            else:
                await self.app(scope, replay(body, receive), send)

    async def _leave(self, node: int, scope: Scope) -> None:
        """Say goodbye for a node that begins again: it was killed, or has lost its connection.

        Flower lets no node begin that it has heard of lately.
        """
        body = DeactivateNodeRequest(node_id=node).SerializeToString()
        sized = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        headers = [*sized, (b"content-length", b"%d" % len(body))]
        inner = {**scope, "path": DEACTIVATE, "raw_path": DEACTIVATE.encode(), "headers": headers}
        await self.app(inner, replay(body, nothing_more), collector([]))

    async def _wait_for_work(
        self, node: int, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Keep a node's question for work until there is some, so that it need not ask again.

        When a run's server asks for replies, its messages are all there. A node that has gone in
        the meantime is not given the message, which would be lost with it.
        """
        gone, news = asyncio.ensure_future(receive()), asyncio.Event()
        waiting = self._waiting.setdefault(node, set())
        waiting.add(news)
        until = time.monotonic() + hold_seconds(scope)
        try:
            while not gone.done():
                news.clear()
                answer: list[Any] = []
                inner = replay(body, lambda: asyncio.shield(gone))
                await self.app(scope, inner, collector(answer))
                work = any(part.get("body") for part in answer)
                left = until - time.monotonic()
                if work or left <= 0 or answer[0].get("status") != 200:
                    for part in answer:
                        await send(part)
                    return
                waits = asyncio.ensure_future(news.wait())
                await asyncio.wait({gone, waits}, timeout=left, return_when="FIRST_COMPLETED")
                waits.cancel()
                if self.nodes is not None:
                    await self._signer(scope)
        finally:
            gone.cancel()
            waiting.discard(news)
            if not waiting and self._waiting.get(node) is waiting:
                del self._waiting[node]

    async def _signer(self, scope: Scope) -> tuple[bytes, int]:
        """The registered key that signed the headers of a call, and its node."""
        if self._known is None:
            assert self.nodes is not None
            self._known = await asyncio.to_thread(self.nodes)
        known = self._known
        key = check_signature(scope, known, self.clock())
        return key, known[key].node

    @asynccontextmanager
    async def _room(self, caller: bytes | None, size: int) -> AsyncIterator[None]:
        """Count a call and its bytes while it is under way."""
        over = self._bytes[None] + size > MOST_BYTES
        if caller is not None:
            over = over or self._bytes[caller] + size > MOST_BYTES_OF_KEY
            over = over or self._calls[caller] >= MOST_CALLS_OF_KEY
        if over:
            raise Refused(503, "too much is under way; ask again later")
        counted = {None, caller}
        for each in counted:
            self._bytes[each] += size
            self._calls[each] += 1
        try:
            yield
        finally:
            for each in counted:
                self._bytes[each] -= size
                self._calls[each] -= 1
                if not self._calls[each]:
                    del self._bytes[each], self._calls[each]


def one_header(scope: Scope, name: str) -> bytes | None:
    """The value of a header that a call has exactly once; else None."""
    found = [value for key, value in scope["headers"] if key == name.encode()]
    return found[0] if len(found) == 1 else None


def hold_seconds(scope: Scope) -> float:
    """How long a question for work may wait: what its node says, or what every client endures."""
    text = one_header(scope, HOLD_HEADER)
    if text is None or not text.isdigit() or len(text) > 4:
        return HOLD_SECONDS
    return min(float(text), LONGEST_HOLD)


def announced_bytes(scope: Scope, most: int) -> int:
    """The size that a call says its body has."""
    text = one_header(scope, "content-length")
    if text is None or not text.isdigit() or len(text) > 9:
        raise Refused(411, "it does not say its size")
    if int(text) > most:
        raise Refused(413, f"it is larger than {most} bytes")
    return int(text)


def check_owner(scope: Scope, token: str) -> None:
    """Refuse a call that is not from this machine, or has no valid token."""
    if not _is_local(scope.get("client")):
        raise Refused(403, "only this machine may")
    given = one_header(scope, TOKEN_HEADER)
    if given is None or not hmac.compare_digest(given, token.encode()):
        why = "only the owner of the SuperLink may; the call has no valid token"
        raise Refused(403, why)


def _is_local(client: Any) -> bool:
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def check_signature(
    scope: Scope, known: Mapping[bytes, Registered], now: datetime.datetime
) -> bytes:
    """The registered key that signed a call's headers; no key is parsed that is not registered."""
    names = (FLEET_HTTP_PUBLIC_KEY_HEADER, TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
    values = [one_header(scope, name) for name in names]
    if any(value is None or len(value) > LONGEST_HEADER for value in values):
        raise Refused(401, "it is not signed by a node")
    try:
        key, signature = (b64decode(values[place] or b"", validate=True) for place in (0, 2))
        stamp = (values[1] or b"").decode("ascii")
        age = (now - datetime.datetime.fromisoformat(stamp)).total_seconds()
    except (binascii.Error, ValueError, TypeError, OverflowError):
        raise Refused(401, "its signature cannot be read") from None
    if key not in known:
        # Flower's nodes end with an error after this status, and without one after 401.
        raise Refused(
            412, "its key is not registered; register it with camu deploy register NODE.pub"
        )
    if not verify_signature(known[key].key, stamp.encode(), signature):
        raise Refused(401, "its signature is wrong")
    if not -SYSTEM_TIME_TOLERANCE < age < OLDEST:  # said only to whom holds the key
        raise Refused(
            401,
            f"the clock of node {known[key].node} is {abs(age):.0f} s "
            f"{'behind' if age > 0 else 'ahead of'} the SuperLink's; set both clocks, "
            "for example with NTP",
        )
    return key


def parse(path: str, body: bytes) -> Any:
    """The call that a body holds."""
    call = PROTOBUF_REQUEST_TYPES["POST", path]()
    try:
        call.ParseFromString(body)
    except Exception:
        raise Refused(400, "it cannot be read") from None
    return call


def check_identity(call: Any, key: bytes | None, node: int | None) -> int:
    """The node that a call is made for; refused if it is another one than the key's."""
    if hasattr(call, "public_key"):
        if key not in (None, call.public_key):
            raise Refused(401, "it is for another key than its own")
        return node or 0
    claimed = int(call.node.node_id if hasattr(call, "node") else call.node_id)
    if node not in (None, claimed):
        raise Refused(401, f"node {node} makes it in the name of node {claimed}")
    return claimed


async def refuse(scope: Scope, send: Send, refused: Refused) -> None:
    """Answer a call that is refused, and end its connection."""
    if scope["type"] != "http":
        await send({"type": "websocket.close"})
        return
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{refused}\n".encode()})
