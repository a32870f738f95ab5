"""Nodes of a deployment in this process, and a clock on which only waiting takes time."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import RecordDict

from camu.config import Config
from camu.deploy import node_app
from camu.deploy.messages import Report, read_task, write_report, write_result
from camu.deploy.node_app import Node
from camu.deploy.server import app as server
from camu.deploy.server import mailbox
from camu.learning.configured import model_layout


class WaitingClock:
    """Seconds that pass only while the server waits, so that a busy machine misses no deadline."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait_without_time(monkeypatch: pytest.MonkeyPatch) -> WaitingClock:
    """Let the server wait on a clock of its own."""
    clock = WaitingClock()
    monkeypatch.setattr(mailbox, "time", SimpleNamespace(sleep=clock.sleep))
    monkeypatch.setattr(server, "Mailbox", partial(mailbox.Mailbox, clock=clock))
    return clock


def honest(node: Node, message: Any) -> RecordDict:
    """What a node without faults answers."""
    if message.metadata.message_type == "query":
        return write_report(node.report())
    task, states = read_task(message.content, model_layout(node.config))
    return write_result(task, node.train(task, states))


def report_of(context: Any) -> Report:
    """What the node of a context reports."""
    return node_app.answer_query(context.run_config, context.node_config)


def result_of(content: RecordDict, context: Any) -> RecordDict:
    """What the node of a context answers to a task."""
    return node_app.answer("train", content, context.run_config, context.node_config)


def partition_nodes(config: Config, count: int) -> dict[int, Node]:
    """Nodes of a trial under Flower's kind of ids."""
    return {
        10_000 - 7 * number: Node.of(config, {"partition-id": number, "num-partitions": count})
        for number in range(count)
    }
