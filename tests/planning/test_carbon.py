"""Carbon of energy: a number, and a trace against a sum by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import camu
from camu.config import load_config
from camu.errors import InputError
from camu.planning.carbon import Grid
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.dry_run import round_cost
from helpers.configs import small

KWH = 3.6e6


def traced(path: Path, rows: str) -> Grid:
    path.write_text("seconds,grams_per_kwh\n" + rows)
    grid = Grid.of(load_config(preset="demo", overrides={"fleet.carbon_trace": str(path)}))
    assert grid is not None
    return grid


def test_without_a_number_nothing_is_said_of_carbon() -> None:
    assert Grid.of(load_config(preset="demo")) is None


def test_a_number_is_grams_by_kilowatt_hours() -> None:
    grid = Grid.of(load_config(preset="demo", overrides={"fleet.grams_per_kwh": 400.0}))
    assert grid is not None
    assert grid.grams([0.0, 10.0, 10.0, 90.0], [0.0, KWH, 2 * KWH, 2.5 * KWH]) == 1000.0
    assert grid.mean(7.0) == 400.0


def test_a_trace_is_followed_by_the_second(tmp_path: Path) -> None:
    grid = traced(tmp_path / "grid.csv", "300,100\n100,500\n200,50\n")
    # Until 250: 500 for 200 s, then 50; until 450: 50 for 50 s, then 100 for 150 s.
    first, second = (200 * 500 + 50 * 50) / 250, (50 * 50 + 150 * 100) / 200
    expected = 2 * first + 3 * second + 1 * 100
    found = grid.grams([0.0, 250.0, 450.0, 450.0], [0.0, 2 * KWH, 5 * KWH, 6 * KWH])
    assert found == pytest.approx(expected)
    assert grid.mean(250.0) == pytest.approx(first)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("-1,3\n", "line 2, column seconds: -1"),
        ("0,2\n5,-3\n", "line 3, column grams_per_kwh: -3; write a number from 0"),
    ],
)
def test_a_wrong_trace_is_refused(tmp_path: Path, rows: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        traced(tmp_path / "grid.csv", rows)


def test_a_number_and_a_trace_are_refused_together(tmp_path: Path) -> None:
    keys = {"fleet.grams_per_kwh": 1.0, "fleet.carbon_trace": "x.csv"}
    with pytest.raises(InputError, match=r"fleet.grams_per_kwh and fleet.carbon_trace"):
        load_config(preset="demo", overrides=keys)


def test_a_plan_and_a_run_say_the_grams_of_their_joules(tmp_path: Path) -> None:
    config = small(fleet__grams_per_kwh=380.0, training__model="logistic")
    world = camu.build_world(config)
    cost = round_cost(world, camu.schemes.Camu(), camu.plan(camu.schemes.Camu(), world))
    assert cost.co2_grams == pytest.approx(380.0 * cost.joules / KWH)
    directory = RunDirectory(tmp_path / "run")
    history = run_in_directory(config, directory)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["co2_grams"] == pytest.approx(380.0 * history.final.total_joules / KWH)
