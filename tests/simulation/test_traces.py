"""Traces of devices by round and by virtual seconds: who takes part when, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.errors import InputError
from camu.schemes import FedAvg
from camu.simulation import History, simulate
from camu.simulation.attendance import read_absences, read_availability
from camu.world import World
from helpers.small_fleets import random_world

Tiny = Callable[..., World]


def trained(tiny: Tiny, tmp_path: Path, text: str, **more: Any) -> History:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return simulate(tiny(faults__availability_trace=str(path), **more), FedAvg()).history


def absent(history: History) -> list[int]:
    return [record.faults["absent"] for record in history.records]


def test_devices_take_part_in_rounds_that_begin_while_they_are_available(
    tiny: Tiny, tmp_path: Path
) -> None:
    length = trained(tiny, tmp_path, "start,end,device\n").records[1].virtual_seconds
    assert length > 0
    # Device 0 is there in the first round only; device 1 comes back in the third.
    first, third = 0.5 * length, 1.5 * length
    text = f"start,end,device\n0,{first},0\n0,{first},1\n{third},1e9,1\n"
    history = trained(tiny, tmp_path, text)
    assert absent(history) == [0, 0, 2, 1]
    assert [record.units for record in history.records] == [0, 6, 4, 5]


def test_the_end_of_an_interval_is_not_part_of_it(tmp_path: Path) -> None:
    world = random_world(3, 0)
    (tmp_path / "t.csv").write_text("start,end,device\n1,2,d0\n2,3,d0\n5,6,d1\n5,6,d2\n")
    config = world.config.replace({"faults.availability_trace": str(tmp_path / "t.csv")})
    found = read_availability(World(config, world.links))
    assert found.present(0.9).tolist() == [False, False, False]
    assert found.present(1.0).tolist() == [True, False, False]
    assert found.present(2.0).tolist() == [True, False, False]
    assert found.present(3.0).tolist() == [False, False, False]
    assert [found.opens_seconds(at) for at in (0.0, 1.5, 3.0, 5.0)] == [1.0, 1.5, 5.0, 5.0]
    assert found.opens_seconds(7.0) == 7.0  # nobody comes any more


def test_a_round_waits_until_the_first_device_comes(tiny: Tiny, tmp_path: Path) -> None:
    rows = "".join(f"{100 + k},1e9,{k}\n" for k in range(6))
    history = trained(tiny, tmp_path, f"start,end,device\n{rows}")
    alone = history.records[1]
    assert alone.units == 1
    assert alone.virtual_seconds > 100.0
    assert absent(history)[1] == 5


def test_when_nobody_comes_any_more_the_model_stays(tiny: Tiny, tmp_path: Path) -> None:
    rows = "".join(f"0,1e-9,{k}\n" for k in range(6))
    history = trained(tiny, tmp_path, f"start,end,device\n{rows}")
    assert absent(history) == [0, 0, 6, 6]
    assert history.records[3].virtual_seconds == history.records[1].virtual_seconds


BAD_AVAILABILITY = {
    "header": ("round,device\n1,2\n", ["line 1", "start,end,device"]),
    "empty": ("", ["is empty", "the header start,end,device"]),
    "truncated": ("start,end,device\n0,5,1\n0,5", ["line 3", "2 cells"]),
    "text": ("start,end,device\nnow,5,1\n", ["line 2", "column start", "'now'"]),
    "nan": ("start,end,device\n0,nan,1\n", ["line 2", "column end", "'nan'"]),
    "huge": ("start,end,device\n0,1e300,1\n", ["line 2", "column end", "1e+15"]),
    "inf": ("start,end,device\n0,inf,1\n", ["line 2", "column end"]),
    "negative": ("start,end,device\n-1,5,1\n", ["line 2", "column start", "from 0"]),
    "backwards": ("start,end,device\n5,5,1\n", ["line 2", "column end", "not after"]),
    "stranger": (
        "start,end,device\n0,5,nobody\n",
        ["line 2", "column device", "nobody; no"],
    ),
    "not UTF-8": (b"start,end,device\n0,5,\xff\n", ["not UTF-8 text"]),
    "NUL": ("start,end,device\n0,5,\0\n", ["line 2"]),
}
BAD_ROUNDS = {
    "header": ("when,who\n1,2\n", ["line 1", "round,device"]),
    "round 0": ("round,device\n0,2\n", ["line 2", "column round"]),
    "stranger": ("round,device\n1,77\n", ["line 2", "column device", "77; no device"]),
    "truncated": ("round,device\n1\n", ["line 2", "1 cells"]),
    "superscript": ("round,device\n²,2\n", ["line 2", "column round"]),
    "huge": (f"round,device\n{'9' * 5000},2\n", ["line 2", "column round"]),
    "nan": ("round,device\nnan,2\n", ["line 2", "column round", "'nan'"]),
    "not UTF-8": (b"round,device\n\xff,2\n", ["not UTF-8 text"]),
}


@pytest.mark.parametrize(
    ("key", "case"),
    [
        *(("availability_trace", case) for case in BAD_AVAILABILITY),
        *(("dropout_trace", case) for case in BAD_ROUNDS),
    ],
)
def test_wrong_traces_name_file_row_and_fix(
    camu: Callable[..., Any], tmp_path: Path, key: str, case: str
) -> None:
    content, words = (BAD_AVAILABILITY if key == "availability_trace" else BAD_ROUNDS)[case]
    path = tmp_path / "trace.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    settings = ("--set", f"faults.{key}={path}", "--set", "machine.workers=1")
    done = camu("run", "--preset", "demo", "--out", tmp_path / "run", *settings)
    assert done.code == 2, done.err
    for word in ("trace.csv", *words):
        assert word in done.err, done.err
    assert sorted(found.name for found in tmp_path.iterdir()) == ["trace.csv"]


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    world = random_world(3, 0)
    for key, read in (
        ("faults.dropout_trace", read_absences),
        ("faults.availability_trace", read_availability),
    ):
        config = world.config.replace({key: str(tmp_path / "none.csv")})
        with pytest.raises(InputError, match=r"none\.csv: cannot be read"):
            read(World(config, world.links))


@given(st.text(max_size=100), st.booleans())
def test_any_trace_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, headed: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-trace.csv"
    content = "start,end,device\n" + text if headed else text
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    world = random_world(3, 0)
    config = world.config.replace({"faults.availability_trace": str(path)})
    try:
        found = read_availability(World(config, world.links))
    except InputError:
        return
    assert (found.end_seconds > found.start_seconds).all()
