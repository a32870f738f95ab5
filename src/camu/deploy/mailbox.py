"""Send messages to nodes and collect their replies until a deadline.

A message without a reply in time is abandoned; a reply that arrives later is logged and dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from camu.deploy.claims import Owner, owners

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3
NOTE_SECONDS = 5.0  # between two notes on who is waited for
TRAIN, QUERY = MessageType.TRAIN, MessageType.QUERY


@dataclass(frozen=True)
class Reply:
    """A node's reply: its content, or the reason why there is none."""

    node: int
    content: RecordDict | None
    reason: str = ""


@dataclass(frozen=True)
class _Sent:
    """A message without a reply so far."""

    node: int
    subject: str
    on_reply: Callable[[Reply], None] | None  # None: it was abandoned


class Mailbox:
    """Sends messages over a Flower grid; nodes are named by Flower's node ids."""

    def __init__(self, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        self.grid, self.clock = grid, clock
        self._open: dict[str, _Sent] = {}

    def online(self) -> set[int]:
        """The nodes that have called the SuperLink lately."""
        return set(self.grid.get_node_ids())

    def owners(self) -> dict[int, Owner]:
        """The registered keys behind the nodes; empty where the grid knows none."""
        nodes = getattr(self.grid, "get_nodes", None)  # Flower's base class does not have it
        return {} if nodes is None else owners(nodes())

    def send(
        self,
        contents: Mapping[int, RecordDict],
        kind: str,
        subject: str,
        seconds: float,
        on_reply: Callable[[Reply], None],
    ) -> list[str]:
        """Send each node its message; `poll` handles replies. Returns the messages' ids."""
        # The SuperLink drops a message after this time, so that a node that comes back does not
        # work on a task that is over.
        messages = [
            Message(content, node, kind, ttl=seconds, group_id=subject)
            for node, content in sorted(contents.items())
        ]
        sent = []
        for message, number in zip(messages, self.grid.push_messages(messages), strict=False):
            node = message.metadata.dst_node_id
            if not number:
                on_reply(Reply(node, None, "the SuperLink did not take the message"))
                continue
            self._open[number] = _Sent(node, subject, on_reply)
            sent.append(number)
        return sent

    def poll(self) -> None:
        """Hand over the replies that have arrived."""
        if not self._open:
            return
        for message in self.grid.pull_messages(list(self._open)):
            sent = self._open.pop(message.metadata.reply_to_message_id, None)
            if sent is None:
                continue
            if sent.on_reply is None:
                if not message.has_error():
                    log.warning(
                        "a reply to %s from node %s is late and is not used",
                        sent.subject,
                        sent.node,
                    )
                continue
            if message.has_error():
                sent.on_reply(Reply(sent.node, None, _reason(message)))
            elif message.metadata.src_node_id != sent.node:
                sent.on_reply(Reply(sent.node, None, "another node replied in its place"))
            else:
                sent.on_reply(Reply(sent.node, message.content))

    def abandon(self, numbers: Iterable[str]) -> None:
        """Expect no more replies to these messages."""
        for number in numbers:
            if number in self._open:
                self._open[number] = replace(self._open[number], on_reply=None)

    def ask(
        self,
        contents: Mapping[int, RecordDict],
        kind: str,
        subject: str,
        seconds: float,
        on_wait: Callable[[set[int]], None] = lambda nodes: None,
    ) -> dict[int, Reply]:
        """Send messages and wait until all replies are here or the time is over.

        `on_wait` is told every few seconds which nodes have not replied yet.
        """
        replies: dict[int, Reply] = {}
        deadline = self.clock() + seconds

        def keep(reply: Reply) -> None:
            replies[reply.node] = reply

        numbers = self.send(contents, kind, subject, seconds, keep)
        noted = self.clock()
        while len(replies) < len(contents) and self.clock() < deadline:
            pause()
            self.poll()
            if self.clock() - noted >= NOTE_SECONDS:
                noted = self.clock()
                on_wait(contents.keys() - replies.keys())
        self.abandon(numbers)
        for node in contents.keys() - replies.keys():
            replies[node] = Reply(node, None, f"no reply within {seconds:g} s")
        return replies


def pause() -> None:
    """Wait until it is time to look for replies again."""
    time.sleep(POLL_SECONDS)


def _reason(message: Message) -> str:
    return f"error {message.error.code}: {message.error.reason or 'no reason given'}"
