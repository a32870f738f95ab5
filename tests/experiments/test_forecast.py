"""Forecasts of a target's cost: right on curves that are known, and honest on others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from camu.config import load_config
from camu.experiments.forecast import Curve, fit_curve, fit_power_law, forecast
from camu.simulation.history import History, Record

TRUE = Curve(0.97, 1.4, 0.8)


def run_of(
    curve: Callable[[float], float], rounds: int, every: int = 2, pilot: float = 0.0
) -> History:
    """A run whose accuracy is given, at 3 J, 0.5 s and 2 MB per round."""
    records = [
        Record(
            r,
            curve(r) if r % every == 0 else None,
            None,
            0.5 * r,
            {"compute": pilot + r, "transmit": 2.0 * r},
            bits={"uplink": 16_000_000 * r},
        )
        for r in range(rounds + 1)
    ]
    return History(tuple(records), "", "rounds")


def noisy(seed: int, rounds: int = 60) -> History:
    noise = np.random.default_rng(seed).normal(0, 0.004, rounds + 1)
    return run_of(lambda r: TRUE.score(r) + noise[int(r)], rounds)


def test_two_seeds_with_equal_costs_say_nothing_about_others() -> None:
    (found,) = forecast({"x": [run_of(TRUE.score, 60)] * 2}, 0.8)
    assert found.how == "measured"
    assert {(cost.low, cost.high) for cost in found.costs.values()} == {(None, None)}


def test_a_fit_finds_the_curve_it_was_made_of() -> None:
    rounds = np.arange(3.0, 80, 3)
    found = fit_curve(rounds, np.array([TRUE.score(r) for r in rounds]))
    assert (found.a, found.b, found.c) == pytest.approx((0.97, 1.4, 0.8), rel=1e-3)
    needed = found.rounds_to(0.95)
    assert needed is not None
    assert found.score(needed) == pytest.approx(0.95)
    assert found.rounds_to(0.98) is None


def test_a_power_law_is_a_straight_line_of_logarithms() -> None:
    rounds = np.arange(3.0, 80, 3)
    found = fit_power_law(rounds, 1 - 2.5 * (rounds + 1) ** -0.7)
    assert (found.a, found.b, found.c) == pytest.approx((1.0, 2.5, 0.7))


def test_a_steep_beginning_does_not_hide_a_target_that_is_reached_later() -> None:
    """Mean accuracies of `camu` on preset `demo`, which is at 95 % after 54 rounds.

    A limit fitted to the first 50 rounds is wrong: the steep beginning bends the curve too early.
    """
    known = [0.507, 0.69, 0.709, 0.807, 0.818, 0.849, 0.876, 0.88, 0.886, 0.88, 0.903, 0.912, 0.917]
    known += [0.933, 0.932, 0.941, 0.938, 0.94, 0.948, 0.947]  # rounds 12, 14, ..., 50
    rounds = 12.0 + 2 * np.arange(20)
    assert fit_curve(rounds[:12], np.array(known[:12])).a < 0.93
    runs = [run_of(lambda r: 0.1 if r < 12 else known[int(r - 12) // 2], 50)] * 2
    [row] = forecast({"camu": runs}, 0.95)
    assert row.how == "extrapolated"
    assert 54 / 1.25 < row.costs["rounds"].mean < 1.25 * 54


def test_measured_costs_have_students_interval_of_the_logarithms() -> None:
    runs = [run_of(lambda r, d=d: TRUE.score(max(0.0, r - d)), 60) for d in (0, 4, 10)]
    [row] = forecast({"a": runs}, 0.85)
    assert (row.how, row.reached, row.note) == ("measured", 3, "")
    needed = [run.needed_for("joules", 0.85) for run in runs]
    low, high = stats.t.interval(
        0.95, 2, loc=np.log(needed).mean(), scale=stats.sem(np.log(needed))
    )
    cost = row.costs["joules"]
    assert (cost.low, cost.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert cost.mean == pytest.approx(stats.gmean(needed))


def test_the_interval_of_a_model_holds_the_truth() -> None:
    inside = 0
    truth = TRUE.rounds_to(0.93)
    assert truth is not None
    assert truth > 65  # beyond the 60 rounds of the runs
    for first in range(0, 60, 3):
        [row] = forecast({"a": [noisy(first + k) for k in range(3)]}, 0.93)
        assert row.how == "extrapolated"
        cost = row.costs["rounds"]
        assert cost.low is not None
        inside += cost.low <= truth and (cost.high is None or truth <= cost.high)
    assert inside >= 17  # of 20


def test_joules_and_seconds_grow_as_in_the_second_half() -> None:
    runs = [run_of(TRUE.score, 60, pilot=7.0)] * 2
    [row] = forecast({"a": runs}, 0.93)
    rounds = row.costs["rounds"].mean
    assert rounds == pytest.approx(TRUE.rounds_to(0.93), rel=0.01)
    assert row.costs["joules"].mean == pytest.approx(7 + 3 * rounds)
    assert row.costs["seconds"].mean == pytest.approx(0.5 * rounds)
    assert row.costs["megabytes"].mean == pytest.approx(2 * rounds)


@pytest.mark.parametrize(
    ("runs", "target", "word"),
    [
        ([run_of(TRUE.score, 60)], 0.98, "levels off at 97"),
        ([run_of(TRUE.score, 60)], 0.9695, "more than 10 times"),
        ([run_of(TRUE.score, 10)], 0.93, "too few evaluations"),
        ([run_of(lambda r: 0.5 if r < 45 else 0.9, 60)], 0.95, "no model"),
        (
            [History(run_of(TRUE.score, 60).records, "", "batteries empty")],
            0.95,
            "ended early: batteries empty",
        ),
    ],
)
def test_a_target_out_of_reach_is_said_with_the_reason(
    runs: list[History], target: float, word: str
) -> None:
    [row] = forecast({"a": runs}, target)
    assert row.how == "not reached"
    assert row.costs == {}
    assert word in row.note
    assert f"not reached within {runs[0].final.round} rounds by 1 of 1 seeds" in row.note


def test_one_seed_has_no_interval() -> None:
    [row] = forecast({"a": [run_of(TRUE.score, 60)]}, 0.93)
    assert row.how == "extrapolated"
    assert row.costs["rounds"].low is None
    assert "[" not in row.costs["rounds"].show()


@pytest.mark.slow
def test_a_fleet_file_is_taken_as_by_other_commands(camu: Any, tmp_path: Any) -> None:
    fleet = Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv"
    arguments = ["forecast", "--preset", "demo", "--fleet", fleet, "--target", 0.99]
    arguments += ["--set", "data.with_replacement=true", "--set", "training.model=logistic"]
    arguments += ["--schemes", "fedavg", "--seeds", 1, "--rounds", 3, "--out", tmp_path]
    done = camu(*arguments)
    assert done.code == 0, done.err
    (saved,) = tmp_path.glob("fedavg/seed-*")
    config = load_config(saved / "config.toml")
    assert config.fleet.file == str(fleet)
    assert config.run.eval_every == 1


def test_the_command_prints_a_table_and_json(camu: Any, tmp_path: Any) -> None:

    arguments = ["forecast", "--preset", "demo", "--set", "training.model=logistic"]
    arguments += ["--schemes", "fedavg,camu", "--seeds", 2, "--rounds", 6, "--out", tmp_path]
    done = camu(*arguments, "--target", 0.3)
    assert done.code == 0, done.err
    assert "Cost of accuracy 0.3" in done.out
    found = json.loads(camu(*arguments, "--target", 0.99, "--json").out)
    assert [row["scheme"] for row in found["schemes"]] == ["fedavg", "camu"]
    assert all(row["how"] == "not reached" for row in found["schemes"])
    assert all("within 6 rounds" in row["note"] for row in found["schemes"])
    assert camu(*arguments, "--target", 1.5).code == 2
