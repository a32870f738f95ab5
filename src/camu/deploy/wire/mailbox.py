"""Letters to nodes and their answers: sent together, collected as they come, never waited for long.

A letter that is not answered in time is given up; an answer that still comes is noted and dropped.
Everything else about a letter is the sender's business.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3


@dataclass(frozen=True)
class Answer:
    """What came back from a node: content, or the reason why there is none."""

    node: int
    content: RecordDict | None
    reason: str = ""


@dataclass(frozen=True)
class _Letter:
    node: int
    subject: str
    on_answer: Callable[[Answer], None] | None  # None: it was given up


class Post:
    """Sends letters over a grid; nodes go by Flower's node ids."""

    def __init__(self, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        self.grid, self.clock = grid, clock
        self._open: dict[str, _Letter] = {}

    def online(self) -> set[int]:
        """The nodes that the SuperLink heard of lately."""
        return set(self.grid.get_node_ids())

    def send(
        self,
        contents: Mapping[int, RecordDict],
        kind: str,
        subject: str,
        seconds: float,
        on_answer: Callable[[Answer], None],
    ) -> list[str]:
        """Send each node its letter; answers come through `poll`. Returns the letters' ids."""
        # The SuperLink forgets a letter with its time, so that a node that comes back does not
        # work through what nobody waits for.
        letters = [
            Message(content, node, kind, ttl=seconds, group_id=subject)
            for node, content in sorted(contents.items())
        ]
        sent = []
        for letter, number in zip(letters, self.grid.push_messages(letters), strict=False):
            node = letter.metadata.dst_node_id
            if not number:
                on_answer(Answer(node, None, "the SuperLink did not take the message"))
                continue
            self._open[number] = _Letter(node, subject, on_answer)
            sent.append(number)
        return sent

    def poll(self) -> None:
        """Hand out the answers that have come."""
        if not self._open:
            return
        for message in self.grid.pull_messages(list(self._open)):
            letter = self._open.pop(message.metadata.reply_to_message_id, None)
            if letter is None:
                continue
            if letter.on_answer is None:
                if not message.has_error():
                    log.warning(
                        "an answer to %s from node %s comes late and is not used",
                        letter.subject,
                        letter.node,
                    )
                continue
            if message.has_error():
                letter.on_answer(Answer(letter.node, None, _reason(message)))
            elif message.metadata.src_node_id != letter.node:
                letter.on_answer(Answer(letter.node, None, "another node answered in its place"))
            else:
                letter.on_answer(Answer(letter.node, message.content))

    def give_up(self, numbers: Iterable[str]) -> None:
        """Expect no more answers to these letters."""
        for number in numbers:
            if number in self._open:
                letter = self._open[number]
                self._open[number] = _Letter(letter.node, letter.subject, None)

    def exchange(
        self, contents: Mapping[int, RecordDict], kind: str, subject: str, seconds: float
    ) -> dict[int, Answer]:
        """Send letters and wait for the answers until all are there or the time is over."""
        answers: dict[int, Answer] = {}
        deadline = self.clock() + seconds

        def keep(answer: Answer) -> None:
            answers[answer.node] = answer

        numbers = self.send(contents, kind, subject, seconds, keep)
        while len(answers) < len(contents) and self.clock() < deadline:
            time.sleep(POLL_SECONDS)
            self.poll()
        self.give_up(numbers)
        for node in contents.keys() - answers.keys():
            answers[node] = Answer(node, None, f"no answer within {seconds:g} s")
        return answers


def _reason(message: Message) -> str:
    return f"error {message.error.code}: {message.error.reason or 'no reason given'}"


TRAIN, QUERY = MessageType.TRAIN, MessageType.QUERY
