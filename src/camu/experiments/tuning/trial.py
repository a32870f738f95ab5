"""A trial: settings of a scheme, and how good they are at the budgets with each tuning seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from camu.learning.metrics import Metric, finite
from camu.simulation.history import History, measure

COSTS = ("rounds", "joules", "seconds", "megabytes")


@dataclass(frozen=True)
class Trial:
    """Settings with their scores: a row per seed in its order, in it a score per budget.

    A score is None where the model had blown up. A pruned trial has only its first seeds. `costs`
    is what a run to the budgets spent, a mean over seeds, `least_rounds` the fewest rounds of one.
    """

    number: int  # 0: as configured
    settings: dict[str, Any]
    scores: tuple[tuple[float | None, ...], ...]
    costs: dict[str, float]
    least_rounds: int
    pruned: bool = False

    def at(self, budget: int) -> list[float | None]:
        """The scores at a budget, by its number."""
        return [row[budget] for row in self.scores]

    def mean(self, budget: int, metric: Metric, seeds: int | None = None) -> float:
        """The mean score at a budget over these first seeds; the worst there is if one blew up."""
        values = self.at(budget)[:seeds]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else metric.worst

    def value(self, metric: Metric) -> float:
        """The mean over budgets and seeds, made so that more is better."""
        means = [self.mean(number, metric) for number in range(len(self.scores[0]))]
        return metric.sign * sum(means) / len(means)

    def to_dict(self) -> dict[str, Any]:
        """The trial as plain data."""
        return {
            "number": self.number,
            "settings": self.settings,
            "scores": [list(row) for row in self.scores],
            "costs": self.costs,
            "least_rounds": self.least_rounds,
            "pruned": self.pruned,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trial:
        """The trial from plain data."""
        return cls(**{**data, "scores": tuple(tuple(row) for row in data["scores"])})


def trial_of(
    number: int,
    settings: dict[str, Any],
    histories: Sequence[History],
    budgets: Sequence[tuple[str, float]],
    pruned: bool = False,
) -> Trial:
    """The trial of these runs, one per seed, judged at these budgets."""
    return Trial(
        number,
        settings,
        tuple(
            tuple(finite(history.score_within(axis, amount)) for axis, amount in budgets)
            for history in histories
        ),
        {key: float(np.mean([measure(one.final, key) for one in histories])) for key in COSTS},
        min(history.final.round for history in histories),
        pruned,
    )


def best_of(trials: Sequence[Trial], metric: Metric) -> Trial:
    """The best trial that has all seeds; of several, the first."""
    return max(
        (trial for trial in trials if not trial.pruned),
        key=lambda trial: (trial.value(metric), -trial.number),
    )


def front_of(trials: Sequence[Trial], metric: Metric) -> tuple[Trial, ...]:
    """The trials with all seeds that no other one beats at one budget and equals at the others."""
    whole = [trial for trial in trials if not trial.pruned and trial.value(metric) > -math.inf]
    budgets = range(len(whole[0].scores[0])) if whole else range(0)
    values = {
        one.number: tuple(metric.sign * one.mean(number, metric) for number in budgets)
        for one in whole
    }
    first: dict[tuple[float, ...], Trial] = {}
    for one in whole:
        own = values[one.number]
        beaten = any(
            other != own and all(a >= b for a, b in zip(other, own, strict=True))
            for other in values.values()
        )
        if not beaten:
            first.setdefault(own, one)
    return tuple(first.values())
