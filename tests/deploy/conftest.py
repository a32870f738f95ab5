"""A grid of nodes without a network, for the tests of the deployment."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


class FakeGrid:
    """Flower's grid with nodes in this process.

    `answer(node, message)` gives the content of the reply, an Error, or None for silence.
    """

    def __init__(self, nodes: Iterable[int], answer: Callable[[int, Any], Any]) -> None:
        self.nodes, self.answer = set(nodes), answer
        self.replies: dict[str, Any] = {}
        self.count = 0

    def get_node_ids(self) -> list[int]:
        return sorted(self.nodes)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        from flwr.app import Message

        numbers = []
        for message in messages:
            self.count += 1
            number = f"message-{self.count}"
            message.metadata.__dict__["_message_id"] = number
            numbers.append(number)
            content = self.answer(message.metadata.dst_node_id, message)
            if content is not None:
                self.replies[number] = Message(content, reply_to=message)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        there = [number for number in message_ids if number in self.replies]
        # Answers come in any order; the reverse is one that nobody would expect.
        return [self.replies.pop(number) for number in reversed(there)]


@pytest.fixture
def fake_grid(monkeypatch: pytest.MonkeyPatch) -> type[FakeGrid]:
    from flwr.supercore.task_identity import TaskIdentity

    # A message is stamped with the task of its process, which only Flower's runtime sets.
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return FakeGrid


@pytest.fixture(autouse=True)
def _short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("flwr") is not None:
        from camu.deploy import node_app, node_data

        monkeypatch.setattr(node_data, "METER_SECONDS", 0.0)
        monkeypatch.setattr(node_app, "MEASURE_SECONDS", 0.0)
        monkeypatch.setattr(node_data, "POWERCAP", Path("/nowhere"))
