"""Sentences of a comparison say what its numbers say, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from scipy import stats

from camu.experiments.conclusions import conclusions
from camu.experiments.tabulate import tabulate
from camu.simulation.history import History, Record


def made_up(score: float, metric: str = "accuracy") -> History:
    """A run that has this score after one round of 2 J, 3 s and 1 MB."""
    share = metric == "accuracy"
    records = [
        Record(
            n,
            score if share else None,
            0.0 if share else None,
            3.0 * n,
            {"compute": 2.0 * n},
            bits={"uplink": 8_000_000 * n, "downlink": 0, "gather": 0},
            metric=metric,
            metrics={} if share else {metric: score},
        )
        for n in range(2)
    ]
    return History(tuple(records), "sha", "rounds")


def sentences(scores: Mapping[str, Sequence[float]], metric: str = "accuracy") -> list[str]:
    histories = {name: [made_up(score, metric) for score in own] for name, own in scores.items()}
    seeds = range(len(next(iter(scores.values()))))
    return conclusions(tabulate(histories, seeds))


def test_the_best_comes_first_and_a_clear_lead_has_its_interval() -> None:
    found = sentences({"plain": [0.70, 0.72, 0.71], "good": [0.905, 0.91, 0.912]})
    assert found[0] == "At equal energy, 2 J, good reaches 90.9 %, plain 71.0 %."
    gaps = [20.5, 19.0, 20.2]
    mean = sum(gaps) / 3
    half = stats.t.ppf(0.975, 2) * stats.tstd(gaps) / 3**0.5
    assert found[1] == f"It is ahead of plain by {mean:.1f} ± {half:.1f} points (95 % interval)."
    assert found[2].startswith("At equal time, 3 s, good reaches")


def test_a_lead_within_its_interval_is_no_rank() -> None:
    found = sentences({"one": [0.90, 0.80, 0.95], "other": [0.89, 0.85, 0.90]})
    assert found[1].startswith("Its lead over other, 0.3 ± ")
    assert found[1].endswith("is within its 95 % interval: 3 seeds do not rank the two.")


def test_one_seed_ranks_nobody() -> None:
    found = sentences({"one": [0.9], "other": [0.1]})
    assert found[1] == "One seed says nothing about how sure that is; several give intervals."


def test_the_least_error_is_best() -> None:
    found = sentences({"one": [2.0, 2.1, 2.2], "other": [1.0, 1.0, 1.1]}, "rmse")
    assert found[0] == "At equal energy, 2 J, other reaches RMSE 1.033, one 2.100."
    assert found[1].startswith("It is ahead of one by 1.0")


def test_of_many_schemes_the_best_and_the_baseline_are_named() -> None:
    schemes = {f"s{number}": [number / 10, number / 10 + 0.01] for number in range(9)}
    [first, *_] = sentences(schemes)
    assert "s8 reaches 80.5 % (best of 9 schemes), s7 70.5 %" in first
    assert first.endswith("and s0 0.5 %.")
    assert "s3" not in first


@pytest.mark.parametrize("scores", [{"alone": [0.5, 0.6]}])
def test_one_scheme_is_not_compared(scores: dict[str, list[float]]) -> None:
    assert sentences(scores) == []
