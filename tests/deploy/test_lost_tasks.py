"""A node whose task ends without an answer goes on: it answers with an error itself."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from camu.deploy.host.supernode import answer_for_lost_tasks


class OwnState(InMemoryNodeState):
    """Flower's state as a node of camu has it."""


answer_for_lost_tasks(OwnState)


@pytest.fixture(autouse=True)
def _task(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def busy_node(kind: type[InMemoryNodeState]) -> tuple[Any, int, Message]:
    """A node that has received a message and given it to a task."""
    state = kind(ObjectStoreFactory().store())
    state.set_node_id(5)
    message = Message(RecordDict({"a": ConfigRecord({"b": 1})}), 5, "train", ttl=600.0)
    message.metadata.__dict__["_message_id"] = message.object_id
    task = state.create_task(task_type=TaskType.CLIENT_APP, run_id=1, fab_hash="f")
    assert task is not None
    assert state.store_message(message)
    assert state.claim_task(task)
    assert state.activate_task(task)
    return state, task, message


def pass_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """More time than a task may be silent."""
    now = in_memory_corestate.now
    hours = datetime.timedelta(hours=2)
    monkeypatch.setattr(in_memory_corestate, "now", lambda: now() + hours)


def end(how: str, state: Any, task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if how.startswith("killed"):
        pass_time(monkeypatch)
    else:
        assert state.finish_task(task, getattr(SubStatus, how.upper()), "")


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("how", ["killed", "failed", "completed"])
def test_a_task_that_ends_without_an_answer_is_answered_for_once(
    how: str, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, task, message = busy_node(OwnState)
    if read:
        assert state.get_messages_legacy(is_reply=False) == [message]
    assert state.get_messages_legacy(is_reply=True) == []
    end(how, state, task, monkeypatch)
    (reply,) = state.get_messages_legacy(is_reply=True)
    assert reply.has_error()
    assert reply.metadata.reply_to_message_id == message.metadata.message_id
    assert state.get_messages_legacy(is_reply=True) == []


def test_a_task_that_has_answered_is_not_answered_for() -> None:
    state, task, message = busy_node(OwnState)
    assert state.get_messages_legacy(is_reply=False) == [message]
    reply = Message(message.content, reply_to=message)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    assert state.store_message(reply)
    assert state.finish_task(task, SubStatus.COMPLETED, "")
    assert state.get_messages_legacy(is_reply=True) == [reply]


def test_flower_alone_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # When this fails, Flower does it itself and answer_for_lost_tasks can go.
    for how in ("failed", "completed", "killed"):
        state, task, _ = busy_node(InMemoryNodeState)
        end(how, state, task, monkeypatch)
        assert state.get_messages_legacy(is_reply=True) == []
