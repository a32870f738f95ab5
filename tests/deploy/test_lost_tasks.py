"""A node whose task ends without an answer goes on: it answers with an error itself."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from camu.deploy.host.supernode import answer_for_lost_tasks, push_in_time


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


def test_the_end_of_an_earlier_task_does_not_answer_for_the_message_of_the_next() -> None:
    state, first, message = busy_node(OwnState)
    state.delete_messages(message_ids=[message.metadata.message_id])  # it has been answered
    later = Message(RecordDict({"a": ConfigRecord({"b": 2})}), 5, "train", ttl=600.0)
    later.metadata.__dict__["_message_id"] = later.object_id
    second = state.create_task(task_type=TaskType.CLIENT_APP, run_id=1, fab_hash="f")
    assert state.store_message(later)
    assert state.finish_task(first, SubStatus.COMPLETED, "")
    assert state.get_messages_legacy(is_reply=True) == []
    assert state.get_messages_legacy(is_reply=False) == [later]
    assert state.claim_task(second)
    assert state.activate_task(second)
    assert state.finish_task(second, SubStatus.FAILED, "")
    (reply,) = state.get_messages_legacy(is_reply=True)
    assert reply.has_error()


class Outbox:
    """Flower's function that sends replies; a pause is a second of a made-up clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.sent = 0.0, []
        monkeypatch.setattr(
            "camu.deploy.host.supernode.time", SimpleNamespace(monotonic=lambda: self.seconds)
        )

    def pause(self) -> None:
        self.seconds += 1.0

    def push(self, state: Any, object_store: Any) -> None:
        self.sent.append(state.get_messages_legacy(is_reply=True))

    def wait(self, state: Any) -> Message:
        push_in_time(self.push, self.pause)(state=state, object_store=state.object_store)
        ((message,),) = self.sent
        return message


def begin_reply(state: Any, question: Message, whole: bool) -> Message:
    """The reply of a task, with all its parts or with none."""
    reply = Message(RecordDict({"c": ConfigRecord({"d": 3})}), reply_to=question)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    state.object_store.preregister(1, get_object_tree(reply))
    for number, part in get_all_nested_objects(reply).items() if whole else ():
        state.object_store.put(number, part.deflate())
    assert state.store_message(reply)
    return reply


def test_a_whole_reply_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state, _, message = busy_node(OwnState)
    reply = begin_reply(state, message, whole=True)
    outbox = Outbox(monkeypatch)
    assert outbox.wait(state) == reply
    assert outbox.seconds == 0.0


@pytest.mark.parametrize("begun", [False, True])
def test_a_message_that_is_never_answered_is_given_up_after_its_time(
    begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _, message = busy_node(OwnState)
    reply = begin_reply(state, message, whole=False) if begun else None
    outbox = Outbox(monkeypatch)
    sent = outbox.wait(state)
    assert sent.has_error()
    assert sent.metadata.reply_to_message_id == message.metadata.message_id
    assert outbox.seconds == message.metadata.ttl
    assert reply is None or reply.metadata.message_id not in state.object_store


@pytest.mark.parametrize("kept", [False, True])
def test_a_reply_to_an_earlier_message_is_not_sent_in_place_of_the_latest(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Flower's node keeps a message whose run ended while it was received.
    state, _, old = busy_node(OwnState)
    if not kept:
        state.delete_messages(message_ids=[old.metadata.message_id])
    message = Message(RecordDict({"a": ConfigRecord({"b": 7})}), 5, "query", ttl=600.0)
    message.metadata.__dict__["_message_id"] = message.object_id
    assert state.store_message(message)
    late = begin_reply(state, old, whole=True)
    outbox = Outbox(monkeypatch)
    pause = outbox.pause
    monkeypatch.setattr(outbox, "pause", lambda: (pause(), begin_reply(state, message, whole=True)))
    sent = outbox.wait(state)
    assert sent.metadata.reply_to_message_id == message.metadata.message_id
    assert outbox.seconds == 1.0
    assert old.metadata.message_id not in state.msg_store
    assert late.metadata.message_id not in state.object_store
