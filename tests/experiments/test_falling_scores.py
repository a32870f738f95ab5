"""Scores of which lower is better, or that are no shares: run, compared and forecast."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import camu as api
from camu.cli.compare import show_comparison
from camu.errors import InputError
from camu.experiments.comparison import Comparison
from camu.experiments.forecast import Curve, fit_curve, forecast
from camu.experiments.tabulate import tabulate
from camu.learning.metrics import find_metric
from camu.report.tables import comparison_table, seeds_table
from camu.simulation.history import History, Record

Camu = Callable[..., Any]
REGRESSION = (
    *("--preset", "demo", "--set", "machine.workers=1", "--set", "data.dataset=diabetes"),
    *("--set", "data.with_replacement=true", "--set", "data.standardise=true"),
    *("--set", "training.model=linear", "--set", "training.learning_rate=0.02"),
)


def scored(scores: Sequence[float | None], metric: str = "rmse", joules: float = 2.0) -> History:
    """A run that is judged by this metric; None: its model had blown up."""
    records = [
        Record(
            n,
            None,
            None,
            0.5 * n,
            {"compute": n * joules},
            bits={"uplink": 8_000_000 * n, "downlink": 0, "gather": 0},
            metric=metric,
            metrics={metric: score},
        )
        for n, score in enumerate(scores)
    ]
    return History(tuple(records), "sha", "rounds")


def shown(table: Comparison) -> str:
    console = Console(record=True, width=250)
    show_comparison(table, console)
    return console.export_text()


FALLING = {"fedavg": [scored([78.0, 60.0, 55.25])], "camu": [scored([79.0, 50.125, 53.0])]}


def test_costs_of_small_models_keep_their_digits() -> None:
    (run,) = FALLING["camu"]
    small = [replace(one, bits={**one.bits, "uplink": 21_768 * one.round}) for one in run.records]
    table = tabulate({"camu": [replace(run, records=tuple(small))]}, [0], target=55.0)
    (row,) = table.rows
    assert row.megabytes_to_target is not None
    assert row.megabytes_to_target.mean == pytest.approx(21_768 / 8e6)
    assert table.cells(row, table.cost_columns())[-1] == "0.00272"


def test_less_error_is_better_in_a_comparison() -> None:
    table = tabulate(FALLING, [0])
    first, second = table.runs
    assert (first.best_score, second.best_score) == (55.25, 50.125)
    assert second.difference == pytest.approx(53.0 - 55.25)
    assert table.target == 55.3  # the weakest best, of three digits, rounded towards worse
    assert (first.rounds_to_target, second.rounds_to_target) == (2, 1)
    text = shown(table)
    assert "RMSE, lower is better" in text
    assert "Cost of reaching RMSE 55.3" in text
    assert "55.25" in text
    assert "-2.250" in text
    assert "%" not in text.replace("95 %", "")
    assert "target RMSE 55.3." in table.to_latex()
    assert "55.25" in table.to_markdown()
    assert "RMSE over rounds" in table._repr_html_()
    assert seeds_table(table)["families"][0]["rows"][1][2:4] == ["53", "-2.25"]


def test_the_best_of_a_family_has_the_least_error() -> None:
    many = {f"s{n}": [scored([90.0, 50.0 + n])] for n in range(20)}
    table = tabulate(many, [0], families=dict.fromkeys(many, "all"))
    [family] = comparison_table(table)["families"]
    assert family["note"] == "20 schemes; best at the end: s0 (50.00)"


def test_a_target_that_an_untrained_model_has_is_none() -> None:
    table = tabulate({"fedavg": [scored([50.0, 50.02])]}, [0])
    assert table.target is None
    assert tabulate({"a": [scored([0.0, 0.0], "r2")]}, [0]).target is None
    assert tabulate({"a": [scored([-1.0, -0.1234], "r2")]}, [0]).target == -0.124


def test_runs_that_are_judged_by_different_metrics_are_not_compared() -> None:
    runs = {"fedavg": [scored([3.0, 2.0])], "camu": [scored([3.0, 2.0], "mae")]}
    with pytest.raises(InputError, match=r"judged by rmse and mae; .* training.metrics"):
        tabulate(runs, [0])


def test_a_target_outside_of_a_share_is_refused_only_there() -> None:
    assert tabulate(FALLING, [0], target=60).target == 60
    with pytest.raises(InputError, match="F1 is from 0 to 1"):
        tabulate({"a": [scored([0.1, 0.2], "f1")]}, [0], target=60)


@pytest.mark.parametrize("metric", ["rmse", "perplexity", "r2", "auc"])
def test_a_model_that_has_blown_up_has_no_number(metric: str) -> None:
    good = scored([0.5, 0.4, 0.6], metric)
    table = tabulate({"fedavg": [good], "camu": [scored([0.5, 0.45, None], metric)]}, [0])
    assert table.rows[1].final_score is None
    assert "A model has blown up and has no score: camu." in shown(table)
    assert table.rows[1].difference is None
    assert table.runs[1].best_score is not None
    text = json.dumps(table.to_dict(), allow_nan=False)
    assert "blown" not in text
    for text in (shown(table), table.to_latex(), table.to_markdown(), table._repr_html_()):
        assert "inf" not in text.lower()
        assert "nan" not in text.lower()
    # A third of the way from the last good evaluation it has blown up already.
    history = scored([0.5, 0.45, None], metric)
    assert history.score_within("rounds", 1.0) == 0.45
    assert history.score_within("rounds", 1.3) is None
    assert "inf" not in history._repr_html_()
    [row] = forecast({"a": [history]}, 0.99 if find_metric(metric).higher_is_better else 0.01)
    assert row.how == "not reached"
    assert "blown up" in row.note
    [lost] = forecast({"a": [scored([None, None], metric)]}, 0.5)
    assert lost.best_score is None


FALLS = Curve(0.62, -1.3, 0.7)


def noisy(curve: Curve, metric: str, seed: int, rounds: int = 60) -> History:
    noise = np.random.default_rng(seed).normal(0, 0.003 * abs(curve.b), rounds + 1)
    return scored([curve.score(r) + noise[r] for r in range(rounds + 1)], metric)


def test_a_fit_finds_a_falling_curve() -> None:
    rounds = np.arange(3.0, 80, 3)
    scores = np.array([0.62 + 1.3 * (r + 1) ** -0.7 for r in rounds])
    found = fit_curve(rounds, scores, find_metric("rmse"))
    assert (found.a, found.b, found.c) == pytest.approx((0.62, -1.3, 0.7), rel=1e-3)
    needed = found.rounds_to(0.65)
    assert needed == pytest.approx((1.3 / 0.03) ** (1 / 0.7) - 1, rel=1e-3)
    assert found.rounds_to(0.61) is None


@pytest.mark.parametrize(
    ("metric", "curve"),
    [
        ("rmse", FALLS),
        ("rmse", Curve(50.0, -90.0, 0.7)),
        ("perplexity", Curve(4.0, -30.0, 0.8)),
        ("loss", Curve(-3.0, -2.0, 0.6)),
        ("r2", Curve(0.5, 2.5, 0.7)),
        ("spread-device-accuracy", Curve(0.04, -0.3, 0.8)),  # a share that falls
    ],
)
def test_a_forecast_of_any_score_holds_the_truth(metric: str, curve: Curve) -> None:
    truth = 100.0  # beyond the 60 rounds of the runs
    inside = 0
    for first in range(0, 30, 3):
        runs = [noisy(curve, metric, first + k) for k in range(3)]
        [row] = forecast({"a": runs}, curve.score(truth))
        if row.how == "extrapolated":
            cost = row.costs["rounds"]
            assert cost.low is not None
            inside += cost.low <= truth and (cost.high is None or truth <= cost.high)
    assert inside >= 8  # of 10
    [row] = forecast({"a": [noisy(curve, metric, 1)] * 2}, curve.score(20))
    assert row.how == "measured"
    assert row.costs["rounds"].mean == pytest.approx(20, abs=4)


def test_an_error_is_never_forecast_below_zero() -> None:
    """A line that falls evenly is not continued past the best value of an error."""
    runs = [scored([2.0 - 0.01 * r for r in range(61)])]
    found = fit_curve(
        np.arange(61.0), np.array([2.0 - 0.01 * r for r in range(61)]), runs[0].metric
    )
    assert found.a >= 0
    [row] = forecast({"a": runs}, -0.5)
    assert row.how == "not reached"


def test_a_target_that_an_untrained_model_has_costs_nothing() -> None:
    [row] = forecast({"a": [scored([50.0, 49.0])] * 2}, 60)
    assert [cost.mean for cost in row.costs.values()] == [0, 0, 0, 0]


def run(camu: Camu, out: Path, *more: object) -> dict[str, Any]:
    done = camu("run", *REGRESSION, "--out", out, "--set", "run.eval_every=1", *more, "--json")
    assert done.code == 0, done.err
    return dict(json.loads(done.out))


def rounds_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def test_a_regression_stops_at_its_target_and_goes_on(camu: Camu, tmp_path: Path) -> None:
    whole = run(camu, tmp_path / "whole", "--set", "run.rounds=6")
    errors = [one["metrics"]["rmse"] for one in rounds_of(tmp_path / "whole")]
    assert errors[-1] < errors[0]
    assert (whole["metric"], whole["best_score"]) == ("rmse", min(errors))
    target = (errors[2] + errors[3]) / 2
    short = run(camu, tmp_path / "out", "--set", "run.rounds=6", "--set", f"run.target={target}")
    assert (short["stopped"], short["rounds"]) == ("target", 3)
    later = run(camu, tmp_path / "out", "--resume", "--set", "run.rounds=6")
    assert later["rounds"] == 6
    assert later["weights_sha256"] == whole["weights_sha256"]
    words = camu("run", *REGRESSION, "--set", "run.rounds=1", "--out", tmp_path / "words").out
    shown = re.search(r"RMSE ([\d.]+)", words)
    assert shown
    assert float(shown[1]) == pytest.approx(errors[1], rel=1e-3)


def test_patience_waits_for_less_error(camu: Camu, tmp_path: Path) -> None:
    found = run(
        *(camu, tmp_path, "--set", "run.rounds=9", "--set", "run.patience=1"),
        *("--set", "training.learning_rate=1e-9"),
    )
    errors = [one["metrics"]["rmse"] for one in rounds_of(tmp_path)]
    worse = next(n for n in range(1, 10) if n == 9 or errors[n] >= min(errors[:n]))
    assert found["rounds"] == worse


def test_a_regression_is_compared_and_forecast(camu: Camu, tmp_path: Path) -> None:
    long = ("--set", "run.rounds=12", "--set", "run.eval_every=1", "--seeds", 1)
    done = camu("compare", *REGRESSION, *long, "--schemes", "fedavg,camu", "--out", tmp_path / "c")
    assert done.code == 0, done.err
    assert "RMSE, lower is better" in done.out
    document = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert document["metric"] == "rmse"
    target = document["target"]
    for row in document["runs"]:
        [place] = (tmp_path / "c" / row["scheme"]).iterdir()
        curve = [one["metrics"]["rmse"] for one in rounds_of(place)]
        first = next(n for n, error in enumerate(curve) if error <= target)
        assert (row["rounds_to_target"], row["best_score"]) == (first, min(curve))
    arguments = ("forecast", *REGRESSION, "--schemes", "fedavg", "--seeds", 2, "--rounds", 30)
    done = camu(*arguments, "--target", 55.9, "--out", tmp_path / "f", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    [row] = found["schemes"]
    assert (found["metric"], row["how"]) == ("rmse", "extrapolated")
    # A run of 80 rounds, which a forecast from 30 does not know.
    run(camu, tmp_path / "long", "--set", "run.rounds=60", "--scheme", "fedavg")
    errors = [one["metrics"]["rmse"] for one in rounds_of(tmp_path / "long")]
    truth = next(n for n, error in enumerate(errors) if error <= 55.9)
    assert truth > 30
    assert truth / 2 < row["costs"]["rounds"]["mean"] < 2 * truth


def test_perplexity_falls_too(camu: Camu, tmp_path: Path) -> None:
    digits = ("--preset", "demo", "--set", "machine.workers=1", "--set", "run.eval_every=1")
    judged = ("--set", 'training.metrics=["perplexity", "accuracy"]', "--set", "run.rounds=4")
    arguments = (*digits, *judged, "--set", "training.model=logistic")
    done = camu("run", *arguments, "--set", "run.target=8", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = [one["metrics"]["perplexity"] for one in rounds_of(tmp_path / "run")]
    stopped = next((n for n, one in enumerate(found) if one <= 8), 4)
    assert len(found) == stopped + 1
    assert found[0] > min(found)
    assert f"perplexity {found[-1]:.4g} (best {min(found):.4g})" in done.out
    done = camu("compare", *arguments, "--seeds", 1, "--out", tmp_path / "c", "--target", 9.5)
    assert done.code == 0, done.err
    assert "Perplexity, lower is better" in done.out
    assert "Cost of reaching perplexity 9.5" in done.out


def test_targets_are_checked_against_the_metric(camu: Camu, tmp_path: Path) -> None:
    for more, words in (
        (("run", "--set", "run.target=90"), "run.target = 90: accuracy is from 0 to 1"),
        (("compare", "--target", 90), "--target 90: accuracy is from 0 to 1"),
        (("forecast", "--target", "x"), "--target x: give a number"),
        (("forecast", "--target", "nan"), "--target nan: accuracy is from 0 to 1"),
    ):
        done = camu(*more, "--preset", "demo", "--out", tmp_path / "none")
        assert done.code == 2
        assert words in done.err
    assert not (tmp_path / "none").exists()
    config = api.load_config(
        preset="demo", overrides={"data.dataset": "diabetes", "training.model": "linear"}
    )
    with pytest.raises(InputError, match="RMSE is a finite number"):
        api.compare(config, ["fedavg"], seeds=1, target=math.inf)
