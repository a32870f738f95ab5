"""The process of a node: its calls, its answers, and what it does when something is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from packaging.utils import canonicalize_name

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import Message, RecordDict
from flwr.app.message.message import make_message
from flwr.app.metadata import Metadata
from flwr.common.serde import message_to_proto
from flwr.proto import fleet_pb2, message_pb2
from flwr.proto.fab_pb2 import Fab, GetFabResponse
from flwr.proto.run_pb2 import GetRunResponse, Run
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from camu.deploy.array_records import Refusal, arrays_in, head_text, parcel
from camu.deploy.deployment import Deployment, make_bundle
from camu.deploy.host import node_connection
from camu.deploy.host.isolated import Isolated
from camu.deploy.host.node import InProcess, answer_to
from camu.deploy.host.node_connection import Connection, GivenUpError, RefusedNodeError
from camu.deploy.node_data import UnfitData
from camu.deploy.node_privacy import LimitReached
from camu.errors import CamuError, InputError
from helpers.configs import small
from helpers.foreign_app import foreign_bundle

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
TRIAL = {"partition-id": 0, "num-partitions": 2, "allow": ""}


def answered(status: int, text: str = "") -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "https://superlink/")
    answer = httpx.Response(status, text=text, request=request)
    return httpx.HTTPStatusError(text, request=request, response=answer)


class SuperLink:
    """The calls that a SuperLink answers, without a network."""

    def __init__(self, bundle: bytes = b"") -> None:
        self.bundle = bundle
        self.errors: list[Exception] = []  # of the next calls
        self.messages: list[Message] = []
        self.late = 0  # how often a part is not there yet
        self.stored: dict[str, bytes] = {}
        self.announced: list[Any] = []
        self.paces: list[float] = []
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(asked: Any, *rest: Any) -> Any:
            self.called.append(name)
            if self.errors and name != "DeactivateNode":
                raise self.errors.pop(0)
            return getattr(self, f"on_{name}")(asked, *rest)

        return call

    def close(self) -> None: ...

    def on_ActivateNode(self, asked: Any) -> Any:
        return fleet_pb2.ActivateNodeResponse(node_id=7)

    def on_DeactivateNode(self, asked: Any) -> Any: ...

    def on_SendNodeHeartbeat(self, asked: Any) -> Any:
        self.paces.append(asked.heartbeat_interval)

    def on_wait_for_work(self, node: Any, seconds: float) -> Any:
        found = fleet_pb2.PullMessagesResponse()
        if self.messages:
            message = self.messages.pop(0)
            message.metadata.__dict__["_message_id"] = message.object_id
            bare = make_message(metadata=message.metadata, content=RecordDict())
            found.messages_list.append(message_to_proto(bare))
            found.message_object_trees.append(get_object_tree(message))
            self.parts = {n: o.deflate() for n, o in get_all_nested_objects(message).items()}
        return found

    def on_PullObject(self, asked: Any) -> Any:
        self.late -= 1
        there = self.late < 0
        content = self.parts[asked.object_id] if there else b""
        return message_pb2.PullObjectResponse(
            object_found=True, object_available=there, object_content=content
        )

    def on_ConfirmMessageReceived(self, asked: Any) -> Any: ...

    def on_GetRun(self, asked: Any) -> Any:
        return GetRunResponse(run=Run(run_id=asked.run_id))

    def on_GetFab(self, asked: Any) -> Any:
        return GetFabResponse(fab=Fab(content=self.bundle))

    def on_PushMessages(self, asked: Any) -> Any:
        self.announced.append(asked)
        (tree,) = asked.message_object_trees
        numbers: list[str] = []

        def add(part: Any) -> None:
            numbers.append(part.object_id)
            for child in part.children:
                add(child)

        add(tree)
        return fleet_pb2.PushMessagesResponse(objects_to_push=numbers, session_id="s")

    def on_PushObject(self, asked: Any) -> Any:
        self.stored[asked.object_id] = asked.object_content
        return message_pb2.PushObjectResponse(stored=True)


def question(kind: str = "query", ttl: float = 60.0, arrays: Any = ()) -> Message:
    about = Metadata(1, "m", 1, 7, "", "", 0.0, ttl, kind)
    return make_message(metadata=about, content=parcel(b"{}", arrays))


@pytest.fixture
def superlink(monkeypatch: pytest.MonkeyPatch) -> SuperLink:
    made = SuperLink(make_bundle(Deployment(small(), "/somewhere", nodes=2)))
    monkeypatch.setattr(node_connection, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(node_connection, "ASK_AGAIN_SECONDS", 0.001)
    return made


@pytest.fixture
def connection(superlink: SuperLink) -> Any:
    made = Connection("127.0.0.1:1", None, None, 270.0)
    made._client, made.registered = superlink, True
    with made:
        yield made


def test_a_message_and_its_answer_travel_whole(connection: Any, superlink: SuperLink) -> None:
    numbers = np.arange(5, dtype=np.float32)
    superlink.messages.append(question(arrays=[numbers]))
    superlink.late = 2  # the run's server is still sending
    message = connection.next_message()
    assert arrays_in(message.content, [5])[0].tolist() == numbers.tolist()
    assert "ConfirmMessageReceived" in superlink.called
    answer = Message(parcel(b'{"a": 1}'), reply_to=message)
    connection.reply(answer, 0.5)
    (announced,) = superlink.announced
    about = announced.messages_list[0].metadata
    assert about.reply_to_message_id == message.metadata.message_id
    assert len(superlink.stored) == 3  # message, records, record
    assert any(b'{"a": 1}' in part for part in superlink.stored.values())


def test_the_table_of_a_run_is_read_once(connection: Any, superlink: SuperLink) -> None:
    tables = [connection.run_config(1) for _ in range(3)]
    assert Deployment.from_run_config(tables[0]).nodes == 2
    assert superlink.called.count("GetFab") == 1


def test_a_foreign_bundle_is_refused_and_never_loaded(
    connection: Any, superlink: SuperLink, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    superlink.bundle = foreign_bundle(tmp_path / "marker")
    with pytest.raises(Refusal, match="carries"):
        connection.run_config(1)
    assert "a run is refused: its bundle carries" in caplog.text
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("status", [401, 412])
def test_a_refused_node_ends_with_the_reason(
    connection: Any, superlink: SuperLink, status: int
) -> None:
    superlink.errors.append(answered(status, "the clock of node 7 is 40 s\nbehind \x1b[31m"))
    why = r"the SuperLink refuses this node: the clock of node 7 is 40 s behind \\x1b\[31m"
    with pytest.raises(RefusedNodeError, match=why) as refused:
        connection.next_message()
    assert refused.value.exit_code == 1  # systemd starts it again


def test_a_node_asks_a_superlink_that_is_away_again_and_says_so_once(
    connection: Any, superlink: SuperLink, caplog: pytest.LogCaptureFixture
) -> None:
    superlink.errors += [httpx.ConnectError("refused"), answered(503), httpx.ReadTimeout("late")]
    superlink.errors.append(answered(500))  # to questions that a SuperLink keeps when it ends
    superlink.messages.append(question())
    with caplog.at_level("INFO"):
        assert connection.next_message() is not None
    assert caplog.text.count("does not answer") == 1
    assert "the SuperLink answers again" in caplog.text


def test_a_message_of_a_run_that_has_ended_is_given_up(
    connection: Any, superlink: SuperLink
) -> None:
    superlink.messages.append(question())
    message = connection.next_message()
    superlink.errors.append(answered(403, "the run has ended"))
    with pytest.raises(GivenUpError, match="the run has ended"):
        connection.reply(Message(parcel(b"{}"), reply_to=message), 0.1)


def test_an_idle_node_is_nearly_silent_and_a_busy_one_gives_signs_of_life(
    connection: Any, superlink: SuperLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = threading.Event()
    monkeypatch.setattr(connection._ended, "wait", lambda seconds: woken.set())
    connection.next_message()
    assert superlink.paces == [540.0]
    assert woken.is_set()  # a SuperLink that keeps no questions is not asked all the time
    superlink.messages.append(question())
    connection.next_message()
    for _ in range(200):
        if superlink.paces[-1] == node_connection.BUSY_SECONDS:
            break
        threading.Event().wait(0.02)
    assert superlink.paces == [540.0, 540.0, node_connection.BUSY_SECONDS]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InputError("scheme: unknown"), "scheme: unknown"),
        (Refusal("the task: round"), "the task: round"),
        (UnfitData("/secret/pump.npy holds 3 labels"), "its data do not fit the run"),
        (ValueError("label 7 of /secret"), "an error of the kind ValueError"),
        (LimitReached("a would reach epsilon 8.secret"), "its owner has set allows no more"),
    ],
)
def test_errors_are_answered_and_tell_nothing_of_the_data(error: Exception, reason: str) -> None:
    def fail(*_: Any) -> Any:
        raise error

    answer = answer_to(question(), lambda _: {}, fail)
    assert answer.has_error()
    assert reason in answer.error.reason
    assert "secret" not in answer.error.reason


def table() -> Any:
    return Deployment(small(), "/somewhere", nodes=2).to_run_config()


def test_a_task_in_a_process_of_its_own_gives_the_same_and_is_started_again() -> None:
    isolated, inside = Isolated(TRIAL), InProcess(TRIAL)
    found = head_text(isolated("query", parcel(b"{}"), table(), 60.0))
    assert found == head_text(inside("query", parcel(b"{}"), table(), 60.0))
    process = isolated._process
    assert process is not None
    os.kill(process.pid, 9)
    with pytest.raises(CamuError, match=r"has ended \(code -9\)"):
        isolated("query", parcel(b"{}"), table(), 60.0)
    assert head_text(isolated("query", parcel(b"{}"), table(), 60.0)) == found
    with pytest.raises(CamuError, match="nodes answer query and train only"):
        isolated("dance", parcel(b"{}"), table(), 60.0)
    with pytest.raises(CamuError, match="the process of the task has ended"):
        isolated("query", parcel(b"{}"), table(), 0.0)
    assert isolated._process is None


LIGHT = """
import json
import sys
import numpy as np
from camu.config import load_config
from camu.deploy import node_app
from camu.deploy.deployment import Deployment
from camu.deploy.host.node import main
from camu.deploy.host.node_connection import Connection
from camu.deploy.array_records import head_text, parcel
from camu.deploy.messages import Task, write_task, read_result
from camu.learning.configured import seeded
from camu.learning.job import Job
config = load_config(preset="demo")
run = Deployment(config, "/somewhere", nodes=2).to_run_config()
table = {"partition-id": 0, "num-partitions": 2}
assert '"0"' in head_text(node_app.answer("query", parcel(b"{}"), run, table))
start = seeded(config).weights()
task = Task(0, config.fleet.devices, {0: "0"}, (Job((0,), (1.0,), 2),))
(found,) = read_result(node_app.answer("train", write_task(task, [start]), run, table), task, start)
assert not np.array_equal(found.weights.parameters, start.parameters)
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def test_a_node_trains_a_built_in_model_with_what_its_list_of_requirements_has(
    tmp_path: Any,
) -> None:
    from camu.learning import native

    if native.instruction_set() is None:
        pytest.skip("there are no compiled kernels here")
    ended = subprocess.run(
        [sys.executable, "-c", LIGHT],
        env={**os.environ, "CAMU_DATA": str(tmp_path)},  # no note of an earlier comparison
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    loaded = set(json.loads(ended.stdout))
    assert not loaded & {"torch", "scipy", "sklearn", "pandas", "altair"}
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = {*project["dependencies"], *project["optional-dependencies"]["flower"]}
    lines = (root / "docs" / "examples" / "node-requirements.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    assert listed <= wanted
    found = {name for top in loaded for name in packages_distributions().get(top, ())}
    names = {canonicalize_name(name) for name in found}
    assert {one for one in wanted if canonicalize_name(re.split("[=>]", one)[0]) in names} == listed


def test_a_node_keeps_data_and_engine_between_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    from camu.deploy import node_app
    from camu.deploy.messages import Task
    from camu.learning.cnn import SeededCNN
    from camu.learning.configured import seeded
    from camu.learning.job import Job
    from camu.learning.weights import Weights

    made: list[int] = []
    real = node_app.Engine.from_config

    def counting(*given: Any, **more: Any) -> Any:
        made.append(1)
        return real(*given, **more)

    monkeypatch.setattr(node_app, "Engine", SimpleNamespace(from_config=counting))
    config = small(training__model="logistic")
    node, count = node_app.Node.of(config, TRIAL), config.fleet.devices
    start = seeded(config)
    start = Weights.of(start) if not isinstance(start, SeededCNN) else start.weights()
    tasks = [Task(number, count, {0: "0"}, (Job((0,), (1.0,)),)) for number in range(4)]
    for task in tasks[:3]:
        node.train(task, [start])
    assert len(made) == 1
    node.report()
    node.train(tasks[3], [start])
    assert len(made) == 2  # the data may have changed
