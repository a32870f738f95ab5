"""How much nodes may send in reply to their messages: what the run's server says is needed.

Flower stores whatever a node sends, piece by piece, and the server puts all of it together before
it looks at it. So the bytes of every reply are counted while they arrive.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

UNSAID_BYTES = 64_000_000  # of a reply where the server did not say it
RESENT = 2  # times that a reply may be sent, where answers of the SuperLink were lost


class Refused(Exception):
    """The reason why a call is refused, and the status of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class _Reply:
    """The reply to a message: whose it is, how many bytes may still come, and until when."""

    node: int
    left: int
    due: float


@dataclass(eq=False)
class Replies:
    """The replies that are waited for."""

    clock: Callable[[], float] = time.monotonic
    _expected: dict[str, _Reply] = field(default_factory=dict)  # by the message's number
    _present: dict[int, _Reply] = field(default_factory=dict)  # what each node is sending
    _new: set[int] = field(default_factory=set)

    def expect(self, body: bytes, header: bytes | None) -> None:
        """Messages of a run's server: each of them may be answered once."""
        from flwr.proto.runtime_pb2 import PushAppMessagesRequest

        try:
            call = PushAppMessagesRequest.FromString(body)
            most = UNSAID_BYTES if header is None else int(header)
        except Exception:
            raise Refused(400, "it cannot be read") from None
        now = self.clock()
        for number in [number for number, reply in self._expected.items() if reply.due < now]:
            del self._expected[number]
        self._present = {n: reply for n, reply in self._present.items() if reply.due >= now}
        for message in call.messages_list:
            about = message.metadata
            reply = _Reply(int(about.dst_node_id), RESENT * most, now + about.ttl)
            self._expected[about.message_id] = reply
            self._new.add(reply.node)

    def new_work(self) -> set[int]:
        """The nodes that messages were sent to since the last call."""
        nodes, self._new = self._new, set()
        return nodes

    def begin(self, node: int, call: Any, size: int) -> None:
        """A node announces its reply: one, in its own name, to a message that it was sent."""
        if len(call.messages_list) != 1 or len(call.message_object_trees) != 1:
            raise Refused(400, "it has not one message")
        about = call.messages_list[0].metadata
        if about.src_node_id != node:
            raise Refused(
                403, f"a message in the name of node {about.src_node_id} came from node {node}"
            )
        reply = self._expected.get(about.reply_to_message_id)
        if reply is None or reply.node != node:
            raise Refused(403, f"node {node} answers no message that waits for its answer")
        self._present[node] = reply
        self.add(node, size)

    def add(self, node: int, size: int) -> None:
        """A node sends so many bytes of its reply."""
        reply = self._present.get(node)
        if reply is None:
            raise Refused(403, f"node {node} has announced no reply")
        if size > reply.left:
            raise Refused(413, f"node {node} sends more than a reply to its message can have")
        reply.left -= size
