"""Messages to nodes and their replies until a deadline, and the registered keys behind nodes.

A message without a reply in time is given up; a reply that arrives later is logged and dropped.

The SuperLink checks the signature of every call, so it knows the key behind each node. The owner
binds devices to a key when he registers it; the binding is kept with the key, in the name that
Flower gives a node.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from camu.deploy.array_records import Refusal, refusing
from camu.deploy.flower import replies_of
from camu.deploy.messages import Report
from camu.errors import InputError

log = logging.getLogger(__name__)

BINDING = "devices="  # begins the name of a node whose key is bound to devices
REGISTERED = "registered_nodes"  # of a grid: a function that lists all registered nodes
POLL_SECONDS = 0.3
NOTE_SECONDS = 5.0  # between two notes on who is waited for
TRAIN, QUERY = MessageType.TRAIN, MessageType.QUERY


class Silence(Refusal):
    """The reason why there is no reply at all."""


class Opposed(Refusal):
    """An update that is not used because its sender has long sent the opposite of the others'."""


OnReply = Callable[[int, RecordDict | Refusal], None]  # node, content


@dataclass(frozen=True)
class _Sent:
    """A message without a reply so far."""

    node: int
    kind: str
    subject: str
    seconds: float  # how long a reply is waited for
    due: float
    on_reply: OnReply | None  # None: it was given up


class Mailbox:
    """Sends messages over a Flower grid; nodes are named by Flower's node ids."""

    def __init__(self, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        self.grid, self.clock = grid, clock
        self._open: dict[str, _Sent] = {}

    def online(self) -> set[int]:
        """The nodes that have called the SuperLink lately."""
        return set(self.grid.get_node_ids())

    def owners(self) -> dict[int, Owner]:
        """The registered keys behind the nodes, also of those that are not online.

        Empty where the grid knows none. camu's server adds the list of all nodes to Flower's grid.
        """
        nodes = getattr(self.grid, REGISTERED, None) or getattr(self.grid, "get_nodes", None)
        return {} if nodes is None else owners(nodes())

    def send(
        self,
        contents: Mapping[int, RecordDict],
        kind: str,
        subject: str,
        seconds: float,
        most_bytes: int,
        on_reply: OnReply,
    ) -> None:
        """Send each node its message; `poll` calls `on_reply` for each of them.

        The SuperLink stores no more than so many bytes of a reply.
        """
        # The SuperLink drops a message after this time, so that a node that comes back does not
        # work on a task that is over.
        messages = [
            Message(content, node, kind, ttl=seconds, group_id=subject)
            for node, content in sorted(contents.items())
        ]
        due = self.clock() + seconds
        with replies_of(most_bytes):
            numbers = list(self.grid.push_messages(messages))
        numbers += [""] * (len(messages) - len(numbers))  # it takes none if they are too large
        for message, number in zip(messages, numbers, strict=True):
            node = message.metadata.dst_node_id
            if number:
                self._open[number] = _Sent(node, kind, subject, seconds, due, on_reply)
            else:
                on_reply(node, Silence("the SuperLink did not take the message"))

    def poll(self) -> None:
        """Hand over the replies that have arrived, and give up messages whose time is over."""
        for message in self.grid.pull_messages(list(self._open)) if self._open else ():
            sent = self._open.pop(message.metadata.reply_to_message_id, None)
            if sent is not None and sent.on_reply is not None:
                sent.on_reply(sent.node, _content(message, sent.node))
            elif sent is not None and not message.has_error():
                what = (sent.subject, sent.node)
                log.warning("a reply to %s from node %s is late and is not used", *what)
        for number, sent in list(self._open.items()):
            if sent.on_reply is not None and self.clock() >= sent.due:
                self._open[number] = replace(sent, on_reply=None)
                why = (
                    f"no reply within {sent.seconds:g} s, or the SuperLink refused it (see its log)"
                )
                sent.on_reply(sent.node, Silence(why))

    def give_up(self, kind: str) -> None:
        """Expect no more replies to messages of a kind."""
        for number, sent in self._open.items():
            if sent.kind == kind:
                self._open[number] = replace(sent, on_reply=None)

    def ask(
        self,
        contents: Mapping[int, RecordDict],
        kind: str,
        subject: str,
        seconds: float,
        most_bytes: int,
        on_wait: Callable[[set[int]], None],
    ) -> dict[int, RecordDict | Refusal]:
        """Send messages and wait until all replies are here or the time is over.

        `on_wait` is told every few seconds which nodes have not replied yet.
        """
        replies: dict[int, RecordDict | Refusal] = {}
        self.send(contents, kind, subject, seconds, most_bytes, replies.__setitem__)
        noted = self.clock()
        while len(replies) < len(contents):
            pause()
            self.poll()
            if self.clock() - noted >= NOTE_SECONDS:
                noted = self.clock()
                on_wait(contents.keys() - replies.keys())
        return replies


def pause() -> None:
    """Wait until it is time to look for replies again."""
    time.sleep(POLL_SECONDS)


def _content(message: Message, node: int) -> RecordDict | Refusal:
    try:
        with refusing("its reply"):
            if message.has_error():
                error = message.error
                return Silence(f"error {error.code}: {error.reason or 'no reason given'}")
            if message.metadata.src_node_id != node:
                return Silence("another node replied in its place")
            return message.content
    except Refusal as refusal:
        return refusal


class Owner(NamedTuple):
    """The registered key behind a node, and the devices that it is bound to (None: to none)."""

    key: str
    devices: frozenset[str] | None = None
    public: str = ""  # the key itself


def binding(devices: Sequence[str]) -> str:
    """The name of a node whose key is bound to devices."""
    names = [name.strip() for name in devices]
    if not all(names) or len(set(names)) < len(names):
        raise InputError(f"--devices {','.join(devices)}: name each device once, as in a,b,c")
    return BINDING + ",".join(sorted(names))


def owners(nodes: Iterable[Any]) -> dict[int, Owner]:
    """The owners of Flower's nodes by their ids; a node that nobody registered has none."""
    found = {}
    for node in nodes:
        if node.name and node.public_key:
            bound = node.name.startswith(BINDING)
            names = frozenset(node.name.removeprefix(BINDING).split(",")) if bound else None
            own = bytes(node.public_key)
            public = own.decode("ascii", "replace")
            found[int(node.node_id)] = Owner(hashlib.sha256(own).hexdigest(), names, public)
    return found


def check_claim(
    report: Report, node: int, known: Mapping[int, Owner], earlier: Report | None
) -> Report:
    """The report of a node with its key; a Refusal if it claims what is not its own.

    `known` has the owners of all registered nodes, and `earlier` is what a node of the same name
    reported. A key that is bound to its devices takes them back from whoever reported them.
    """
    owner = known.get(node, Owner(""))
    claimed = [device.id for device in report.devices]
    for other in known.values():
        taken = [name for name in claimed if name in (other.devices or ())]
        if taken and other.key != owner.key:
            raise Refusal(f"it claims device {taken[0]}, which is registered for another key")
    if owner.devices is not None:
        strange = [name for name in claimed if name not in owner.devices]
        if strange or report.partition is not None:
            what = f"device {strange[0]}" if strange else f"part {report.partition} of the data"
            raise Refusal(f"it claims {what}, which its key is not registered for")
    if owner.devices is None and earlier is not None and earlier.key not in ("", owner.key):
        raise Refusal(f"its key is not that of the node that reported {report.name} before")
    return replace(report, key=owner.key)
