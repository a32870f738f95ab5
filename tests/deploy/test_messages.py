"""Messages: what is sent arrives bit by bit, and nothing wrong gets past the door."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from camu.config import load_config
from camu.deploy.deployment import Settings
from camu.deploy.wire.messages import (
    Task,
    Work,
    read_head,
    read_result,
    read_task,
    write_report,
    write_result,
    write_task,
)
from camu.deploy.wire.reports import Refusal, Report, read_report
from camu.errors import InputError
from camu.learning.weights import Entry, Layout, Weights

LAYOUT = Layout((Entry("w", (3, 2)), Entry("b", (2,))), (Entry("mean", (2,)),))
TASK = Task(4, 1, 7, {2: "pump", 5: "fan"}, (Work((2, 5), (0.25, 0.75), 3), Work((5,), (1.0,), 1)))


def state(seed: int = 0) -> Weights:
    draw = np.random.Generator(np.random.PCG64(seed))
    return Weights(draw.standard_normal(8), draw.standard_normal(2), LAYOUT)


def test_a_task_arrives_as_it_was_sent() -> None:
    task, states = read_task(write_task(TASK, [state()]), LAYOUT)
    assert task == TASK
    assert states[0].sha256() == state().sha256()


def test_a_result_arrives_as_it_was_sent() -> None:
    content = write_result(TASK, [state(1), state(2)])
    found = read_result(content, TASK, LAYOUT)
    assert [w.sha256() for w in found if isinstance(w, Weights)] == [
        state(1).sha256(),
        state(2).sha256(),
    ]


@pytest.mark.parametrize(("key", "value"), [("round", 3), ("round", None), ("first", 0)])
def test_a_result_for_another_round_is_refused(key: str, value: Any) -> None:
    content = write_result(TASK, [state(), state()])
    head = read_head(content)
    head[key] = value
    content["camu"] = ConfigRecord({"json": json.dumps(head)})
    with pytest.raises(Refusal, match="it is for"):
        read_result(content, TASK, LAYOUT)


def spoilt(array: Array, name: str = "parameters") -> RecordDict:
    content = write_result(TASK, [state(), state()])
    record = content["work-0"]
    assert isinstance(record, ArrayRecord)
    record[name] = array
    return content


def lying(count: int, shape: tuple[int, ...], kind: str = "<f4") -> Array:
    """An array whose envelope says one thing and whose content says another."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"shape": shape, "fortran_order": False, "descr": kind}
    )
    data = stream.getvalue() + bytes(4 * count)
    return Array(dtype="float32", shape=(count,), stype="numpy.ndarray", data=data)


@pytest.mark.parametrize(
    "array",
    [
        Array(np.zeros(9, dtype=np.float32)),
        Array(np.zeros((8, 1), dtype=np.float32)),
        Array(np.zeros(8)),
        Array(dtype="float32", shape=(8,), stype="numpy.ndarray", data=b"rubbish"),
        Array(dtype="float32", shape=(8,), stype="other", data=bytes(32)),
        Array(dtype="float32", shape=(8,), stype="numpy.ndarray", data=bytes(10_000)),
        lying(8, (10**12,)),
        lying(8, (8,), "|O"),
        lying(8, (8,), "<i4"),
        Array(
            dtype="float32",
            shape=(8,),
            stype="numpy.ndarray",
            data=Array(np.zeros(8, dtype=np.float32)).data[:-4],
        ),
    ],
)
def test_arrays_of_a_wrong_kind_are_refused_each_on_its_own(array: Array) -> None:
    first, second = read_result(spoilt(array), TASK, LAYOUT)
    assert isinstance(first, Refusal)
    assert isinstance(second, Weights)


def test_missing_arrays_and_heads_are_refused() -> None:
    content = write_result(TASK, [state()])
    assert isinstance(read_result(content, TASK, LAYOUT)[1], Refusal)
    for head in (ConfigRecord({}), ConfigRecord({"json": "{"}), ConfigRecord({"json": "[]"})):
        content["camu"] = head
        with pytest.raises(Refusal):
            read_result(content, TASK, LAYOUT)
    with pytest.raises(Refusal):
        read_head(RecordDict())


@given(st.binary(max_size=300))
def test_no_bytes_get_past_the_door_unless_they_are_an_array(data: bytes) -> None:
    array = Array(dtype="float32", shape=(8,), stype="numpy.ndarray", data=data)
    first = read_result(spoilt(array), TASK, LAYOUT)[0]
    assert isinstance(first, Refusal) or first.parameters.shape == (8,)


def test_a_report_arrives_as_it_was_sent() -> None:
    device = {"id": "a", "label_counts": [3, 0], "update_seconds": 0.1, "snr_db": 12}
    report = read_report({"devices": [device]}, 2)
    again = read_report(read_head(write_report(report.to_dict())), 2)
    assert again == report
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
    with pytest.raises(Refusal):
        read_report({"devices": [device]}, 2)


@pytest.mark.parametrize("data", [None, {}, {"devices": []}, {"devices": [], "partition": -1}])
def test_a_report_about_nothing_is_refused(data: Any) -> None:
    with pytest.raises(Refusal):
        read_report(data, 2)


def test_settings_travel_in_flowers_run_config() -> None:
    settings = Settings(load_config(preset="demo"), "/runs/a", "device", 3, 20.0, resume=True)
    table = settings.to_run_config()
    assert all(isinstance(value, str | int | float | bool) for value in table.values())
    assert Settings.from_run_config({**table, "other": 1}) == settings
    with pytest.raises(InputError, match="no valid configuration"):
        Settings.from_run_config({**table, "config": "[data"})
    with pytest.raises(InputError, match="deadline_seconds"):
        Settings(settings.config, "/runs/a", deadline_seconds=0)
