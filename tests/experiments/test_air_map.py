"""The map of the air: equal budgets, the strongest pair, and honest words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import camu
from camu.experiments import air_map
from camu.experiments.air_map import (
    AHEAD,
    BEHIND,
    BUDGETS,
    LEVEL,
    ROUNDS,
    UNDECIDED,
    Place,
    entries_of,
    run_map,
    strongest_pair,
    uplink_seconds,
    word_of,
)
from camu.experiments.scheduler import Executor
from camu.experiments.statistics import estimate
from camu.experiments.tables import air_page
from camu.report.figures import air_figure
from camu.schemes import LocalSgd

HERE = Place(4, 1e6, -100.0)
ROW = {
    "devices": 10,
    "bandwidth_hz": 1e6,
    "snr_db": 8.4,
    "budget": "joules",
    "n": 5,
    "scheme": "cotaf",
    "rival": "fedpaq",
    "points": 3.25,
    "low": 1.0,
    "high": 5.5,
    "answer": AHEAD,
}


def test_the_best_over_the_air_meets_the_rival_that_is_best_against_it() -> None:
    mine = {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    others = {"x": [1.0, 1.0], "y": [2.0, 3.0]}
    assert strongest_pair(mine, others) == ("b", "y", [2.0, 3.0])


@pytest.mark.parametrize(
    ("gains", "word"),
    [
        ([4.0, 5.0, 6.0, 5.0, 4.5], AHEAD),
        ([-4.0, -5.0, -6.0, -5.0, -4.5], BEHIND),
        ([0.01, -0.01, 0.02, -0.02, 0.0], LEVEL),
        ([9.0, -9.0, 8.0, -8.0, 1.0], UNDECIDED),
        ([5.0], UNDECIDED),
    ],
)
def test_a_word_needs_an_interval(gains: list[float], word: str) -> None:
    assert word_of(estimate(gains, tests=4)) == word


def test_uplinks_in_turn_use_the_band_for_the_sum_of_their_times() -> None:
    world = camu.build_world(camu.load_config(preset="demo"))
    plan = camu.plan(LocalSgd(), world)
    each = [unit.uplink_seconds for unit in plan.units]
    assert uplink_seconds(plan) == pytest.approx(sum(each))


def test_every_scheme_has_the_budgets_of_the_first_digital_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(air_map, "OVER_THE_AIR", ("fedavg",))
    entries = entries_of(HERE, "digits", 0.1, 0)
    first = entries[HERE, air_map.DIGITAL[0], 0]
    plan = camu.plan(camu.make_scheme(first.config), camu.build_world(first.config))
    assert first.config.run.rounds == ROUNDS
    assert first.budgets["joules"] == pytest.approx(ROUNDS * plan.round_joules)
    assert first.budgets["seconds"] == pytest.approx(ROUNDS * plan.round_seconds)
    assert first.budgets["rounds"] == pytest.approx(ROUNDS)
    other = entries[HERE, air_map.DIGITAL[1], 0]  # 4 bits per parameter instead of 32
    assert other.budgets["rounds"] == pytest.approx(8 * ROUNDS, rel=1e-2)
    assert other.budgets["joules"] == first.budgets["joules"]


@pytest.mark.slow
def test_a_small_map_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(air_map, "MAP", (HERE,))
    monkeypatch.setattr(air_map, "DATASETS", ("digits",))
    monkeypatch.setattr(air_map, "MOST_ROUNDS", 3)
    monkeypatch.setattr(air_map, "SAMPLES", 20)
    monkeypatch.setattr(air_map, "LEARNING_RATES", (0.1,))
    executor = Executor(tmp_path)
    answers = run_map(None, 2, executor)
    assert [one.budget for one in answers] == list(BUDGETS)
    assert all(np.isfinite(one.points) and one.n == 2 for one in answers)
    saved = json.loads((tmp_path / "air.json").read_text())
    assert [row["answer"] for row in saved["answers"]] == [one.answer for one in answers]
    again = Executor(tmp_path)
    assert run_map(None, 2, again) == answers
    assert again.trained == 0
    with pytest.raises(camu.InputError, match="--dataset mnist: choose digits"):
        run_map("mnist", 2, again)


def test_page_and_figure_show_differences_and_what_they_mean() -> None:
    rows = [ROW, {**ROW, "snr_db": -1.6, "points": 0.1, "answer": LEVEL}]
    page = air_page(rows)
    assert "## At equal joules, 1 MHz" in page
    assert "| 10 | **+3.2 ± 2.2** | *+0.1 ± 2.2* |" in page
    cells = air_figure(rows, "5 seeds")["vconcat"][0]["hconcat"][0]["data"]["values"]
    assert [cell["label"] for cell in cells] == ["+3.2*", "+0.1="]
