"""Messages: what is sent arrives bit by bit, and nothing wrong gets past the door."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import ConfigRecord, RecordDict

from camu.config import load_config
from camu.deploy import array_records
from camu.deploy.array_records import Refusal, arrays_in, bytes_in, head_text, parcel
from camu.deploy.deployment import Deployment
from camu.deploy.messages import (
    Report,
    Task,
    read_report,
    read_result,
    read_task,
    write_report,
    write_result,
    write_task,
)
from camu.errors import InputError
from camu.learning.job import Job, LocalRule, Trained
from camu.learning.weights import Entry, Layout, Weights
from helpers.parcels import arrays_of, with_arrays, with_head

LAYOUT = Layout((Entry("w", (3, 2)), Entry("b", (2,))), (Entry("mean", (2,)),))
TASK = Task(
    4,
    7,
    {2: "pump", 5: "fan"},
    (Job((2, 5), (0.25, 0.75), 3, first=1), Job((5,), (1.0,), 1, first=1)),
)


def state(seed: int = 0) -> Weights:
    draw = np.random.Generator(np.random.PCG64(seed))
    return Weights(draw.standard_normal(8), draw.standard_normal(2), LAYOUT)


def trained(seed: int = 0, loss: float = 0.5) -> Trained:
    return Trained(state(seed), loss)


def test_a_task_arrives_as_it_was_sent() -> None:
    one, other = state(), state(1)
    content = write_task(TASK, [one, one])
    task, starts = read_task(content, LAYOUT)
    assert task == TASK
    assert [start.sha256() for start in starts] == [one.sha256()] * 2
    assert len(arrays_of(content)) == 10  # sent once
    _, starts = read_task(write_task(TASK, [one, other]), LAYOUT)
    assert [start.sha256() for start in starts] == [one.sha256(), other.sha256()]


def test_all_of_a_job_arrives() -> None:
    shared, own = state(1).parameters, state(2).parameters
    rule = LocalRule(rate=0.3, batch=7, proximal=0.1, steps=2)
    jobs = (
        Job((2,), (0.1,), 3, 4, rule, correction=shared, anchor=own),
        Job((5,), (1.0,), 1, 4, correction=shared),
        Job((5,), (1.0,), 1, 4, LocalRule(batch=0.5)),
    )
    content = write_task(Task(0, 7, {2: "pump", 5: "fan"}, jobs), [state()] * 3)
    assert len(arrays_of(content)) == 10 + 2 * 8  # each vector once
    found = read_task(content, LAYOUT)[0].jobs
    assert found == jobs
    for one, other in zip(found, jobs, strict=True):
        for name in ("correction", "anchor"):
            assert np.array_equal(getattr(one, name), getattr(other, name)) or (
                getattr(one, name) is getattr(other, name) is None
            )
    with pytest.raises(Refusal, match="its arrays are 100 bytes; 104 are due"):
        read_task(with_arrays(content, arrays_of(content)[:-1]), LAYOUT)


def test_frozen_parameters_are_not_sent_back() -> None:
    """Two of the buffers are frozen: the server has them, and a node cannot change them."""
    layout = Layout(LAYOUT.parameters, (Entry("body", (2,)), Entry("mean", (3,))), frozen=1)
    start = Weights(np.zeros(8), np.arange(5), layout)
    changed = Weights(np.ones(8), np.full(5, 7.0), layout)
    content = write_result(TASK, [Trained(changed, 0.1)] * 2)
    assert len(arrays_of(content)) == 2 * (8 + 3)
    for found in read_result(content, TASK, start):
        assert isinstance(found, Trained)
        assert found.weights.buffers.tolist() == [0, 1, 7, 7, 7]
        assert found.weights.parameters.tolist() == [1] * 8


def test_a_result_arrives_as_it_was_sent() -> None:
    content = write_result(TASK, [trained(1, 0.1), trained(2, float("inf"))])
    found = [one for one in read_result(content, TASK, state()) if isinstance(one, Trained)]
    assert [one.weights.sha256() for one in found] == [state(1).sha256(), state(2).sha256()]
    assert found[0].loss == 0.1
    assert np.isnan(found[1].loss)


@pytest.mark.parametrize(("key", "value"), [("round", 3), ("round", None), ("first", 0)])
def test_a_result_for_another_round_is_refused(key: str, value: Any) -> None:
    content = write_result(TASK, [trained(), trained()])
    with pytest.raises(Refusal, match=f"it is for|its result: {key}"):
        read_result(with_head(content, **{key: value}), TASK, state())


@pytest.mark.parametrize(
    "arrays",
    [
        np.zeros(21, dtype=np.float32),
        np.zeros(19, dtype=np.float32),
        np.zeros(20),
        b"",
        b"rubbish",
        "text",
        [bytes(80)],
        5,
    ],
)
def test_arrays_of_a_wrong_size_are_refused(arrays: Any) -> None:
    with pytest.raises(Refusal, match="80 are due"):
        read_result(with_arrays(write_result(TASK, [trained()] * 2), arrays), TASK, state())


@pytest.mark.parametrize("numbers", [0, 1, 15, 16, 17, 40])
def test_long_arrays_travel_in_pieces(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_records, "PIECE_BYTES", 64)
    arrays = np.random.Generator(np.random.PCG64(1)).standard_normal(numbers).astype(np.float32)
    content = parcel(b"{}", [arrays[:5], arrays[5:]])
    assert len(content) == max(1, -(-numbers // 16))
    sizes = [len(arrays[:5]), len(arrays[5:])]
    assert np.array_equal(np.concatenate(arrays_in(content, sizes)), arrays)
    assert b"".join(bytes_in(content)) == b"{}" + arrays.tobytes()
    content["camu-9"] = ConfigRecord({"data": b"more"})
    with pytest.raises(Refusal, match="records"):
        arrays_in(content, sizes)


def test_missing_arrays_and_heads_are_refused() -> None:
    content = write_result(TASK, [trained(), trained()])
    with pytest.raises(Refusal, match="its arrays are 0 bytes"):
        read_result(sent(json.loads(head_text(content))), TASK, state())
    with pytest.raises(Refusal, match="1 losses for 2 jobs"):
        read_result(write_result(TASK, [trained()]), TASK, state())
    for head in (ConfigRecord({}), ConfigRecord({"json": "{"}), ConfigRecord({"json": "[]"})):
        content["camu"] = head
        with pytest.raises(Refusal):
            read_result(content, TASK, state())
    with pytest.raises(Refusal):
        head_text(RecordDict())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("round", -1),
        ("devices", "7"),
        ("ids", {"x": "pump"}),
        ("jobs", [{"members": [1]}]),
    ],
)
def test_a_wrong_task_is_refused_by_the_key_that_is_wrong(key: str, value: Any) -> None:
    content = write_task(TASK, [state()] * 2)
    head = json.loads(head_text(content))
    with pytest.raises(Refusal, match=f"the task: {key}"):
        read_task(sent({**head, key: value}), LAYOUT)


@pytest.mark.parametrize(("key", "value"), [("rate", "1"), ("steps", 1.5), ("proximal", True)])
def test_a_wrong_rule_is_refused(key: str, value: Any) -> None:
    content = write_task(TASK, [state()] * 2)
    head = json.loads(head_text(content))
    head["jobs"][1]["rule"][key] = value
    with pytest.raises(Refusal, match=f"the task: jobs.1.rule.{key}"):
        read_task(sent(head), LAYOUT)


@given(st.lists(st.floats(0, 1e9, exclude_min=True), min_size=1))
def test_shares_of_devices_arrive_bit_by_bit(shares: list[float]) -> None:
    job = Job(tuple(range(len(shares))), tuple(shares))
    task = Task(0, len(shares), {}, (job,))
    assert read_task(write_task(task, [state()]), LAYOUT)[0] == task


def test_a_head_that_is_too_long_or_too_deep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = RecordDict({"camu": ConfigRecord({"json": "[" * 100_000})})
    with pytest.raises(Refusal, match="recursion"):
        read_report(deep, 2)
    monkeypatch.setattr("camu.deploy.array_records.LARGEST_HEAD", 10)
    with pytest.raises(Refusal, match="no readable head"):
        read_report(sent({"devices": []}), 2)


@given(st.binary(max_size=300))
def test_no_bytes_get_past_the_door_unless_they_are_of_the_right_length(data: bytes) -> None:
    content = with_arrays(write_result(TASK, [trained()] * 2), data)
    try:
        assert len(read_result(content, TASK, state())) == 2
        assert len(data) == 80
    except Refusal:
        assert len(data) != 80


@pytest.mark.parametrize("number", [8, 10**9])
def test_a_task_that_numbers_arrays_as_it_likes_is_refused(number: int) -> None:
    content = write_task(TASK, [state()] * 2)
    for key in ("start", "anchor"):
        head = json.loads(head_text(content))
        head["jobs"][0][key] = number
        with pytest.raises(Refusal, match="not numbered"):
            read_task(with_head(content, jobs=head["jobs"]), LAYOUT)


def sent(data: Any) -> RecordDict:
    """Any JSON as the head of a message."""
    return RecordDict({"camu": ConfigRecord({"json": json.dumps(data)})})


def test_a_report_arrives_as_it_was_sent() -> None:
    device = {"id": "a", "label_counts": [3, 0], "update_seconds": 0.1, "snr_db": 12}
    report = read_report(sent({"devices": [device]}), 2)
    assert read_report(write_report(report), 2) == report
    assert report.name == "a"
    assert Report((), 1).name == "partition 1"


@pytest.mark.parametrize(
    "changed",
    [
        {"id": ""},
        {"id": 3},
        {"label_counts": [1]},
        {"label_counts": [1, -1]},
        {"label_counts": [0, 0]},
        {"label_counts": [1.5, 1]},
        {"label_counts": [True, 1]},
        {"update_seconds": 0},
        {"update_seconds": "fast"},
        {"snr_db": float("inf")},
        {"snr_db": "good"},
    ],
)
def test_a_wrong_report_is_refused(changed: dict[str, Any]) -> None:
    device = {"id": "a", "label_counts": [3, 0], "update_seconds": 0.1, "snr_db": None, **changed}
    with pytest.raises(Refusal, match="|".join(changed)):
        read_report(sent({"devices": [device]}), 2)


@pytest.mark.parametrize("data", [None, {}, {"devices": []}, {"devices": [], "partition": -1}])
def test_a_report_about_nothing_is_refused(data: Any) -> None:
    with pytest.raises(Refusal):
        read_report(sent(data), 2)


def test_a_deployment_travels_in_flowers_run_config() -> None:
    deployment = Deployment(load_config(preset="demo"), "/runs/a", "device", 3, 20.0, resume=True)
    table = deployment.to_run_config()
    assert all(isinstance(value, str | int | float | bool) for value in table.values())
    assert Deployment.from_run_config({**table, "other": 1}) == deployment
    with pytest.raises(InputError, match="no valid configuration"):
        Deployment.from_run_config({**table, "config": "[data"})
    with pytest.raises(InputError, match="--deadline 0"):
        Deployment(deployment.config, "/runs/a", deadline_seconds=0)
