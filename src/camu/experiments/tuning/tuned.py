"""The outcome of a search: the best settings of a scheme, what they gain, and all trials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from camu.config import Config
from camu.experiments.budgets import with_end
from camu.experiments.statistics import Estimate, estimate
from camu.experiments.tuning.ranges import LEAST, Budget
from camu.experiments.tuning.sampler import importances
from camu.experiments.tuning.trial import Trial, best_of, front_of
from camu.learning.metrics import Metric, finite
from camu.schemes.tunable import Range
from camu.schemes.variants import Variant, keys_of, word_of


@dataclass(frozen=True)
class Tuned:
    """The best settings of a scheme at its budgets, and all trials.

    Scores are those on the validation samples of the tuning seeds; the test samples were not used.

    Attributes:
        variant: the scheme as it was given.
        budgets: at which models were judged.
        space: the ranges that were searched, by key.
        seeds: the tuning seeds.
        metric: what models are judged by.
        trials: all trials in their order; number 0 is the scheme as configured.
    """

    variant: Variant
    budgets: tuple[Budget, ...]
    space: dict[str, Range]
    seeds: tuple[int, ...]
    metric: Metric
    trials: tuple[Trial, ...]

    @property
    def scheme(self) -> str:
        """The name of the scheme, with the parameters that were given with it."""
        return self.variant.label

    @cached_property
    def best(self) -> Trial:
        """The trial with the best mean score over seeds, and over budgets if there are several."""
        return best_of(self.trials, self.metric)

    @property
    def untuned(self) -> Trial:
        """The scheme as configured."""
        return self.trials[0]

    @cached_property
    def front(self) -> tuple[Trial, ...]:
        """The trials that none beats at all budgets; with one budget the best alone."""
        return front_of(self.trials, self.metric)

    @property
    def settings(self) -> dict[str, Any]:
        """The best settings, by parameter or key."""
        return dict(self.best.settings)

    @property
    def config(self) -> Config:
        """The configuration with the best settings, for runs up to the budgets."""
        return self.config_of(self.best)

    @property
    def word(self) -> str:
        """The scheme with its best settings, as `compare` takes it."""
        return self.word_of(self.best)

    @property
    def gain(self) -> Estimate | None:
        """What tuning gains on the tuning seeds, paired by seed; None where a model blew up.

        It flatters the best of many trials. What it is worth, other seeds and the test samples say.
        """
        return self.ahead_of(self.best, self.untuned)

    @cached_property
    def importances(self) -> dict[str, float]:
        """How much of the score each key decides, as shares of 1; empty where it cannot be said."""
        return importances(self.trials, self.space, self.metric)

    def score(self, trial: Trial) -> Estimate | None:
        """The mean score of a trial over seeds, with its interval; None where a model blew up."""
        values = self._by_seed(trial)
        known = [value for value in values if value is not None]
        return estimate(known) if len(known) == len(values) else None

    def ahead_of(self, trial: Trial, other: Trial) -> Estimate | None:
        """How much better one trial is than another, paired by seed."""
        pairs = zip(self._by_seed(trial), self._by_seed(other), strict=False)
        differences = [
            self.metric.sign * (own - its)
            for own, its in pairs
            if own is not None and its is not None
        ]
        whole = len(differences) == min(len(trial.scores), len(other.scores))
        return estimate(differences) if whole else None

    def _by_seed(self, trial: Trial) -> list[float | None]:
        """The score of each seed, a mean over budgets."""
        return [
            None if None in row else sum(v for v in row if v is not None) / len(row)
            for row in trial.scores
        ]

    def config_of(self, trial: Trial) -> Config:
        """The configuration with the settings of a trial, for runs up to the budgets."""
        return for_budgets(self.variant, self.budgets, trial)

    @property
    def untuned_word(self) -> str:
        """The scheme as it was given, as `compare` takes it."""
        return self.variant.word if "@" in self.variant.word else self.variant.name

    def word_of(self, trial: Trial) -> str:
        """The scheme with the settings of a trial, as `compare` takes it."""
        return self.untuned_word + word_of("", trial.settings)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data."""
        shown = {one.number: self.score(one) for one in (self.untuned, self.best)}
        score, before = shown[self.best.number], shown[0]
        return {
            "scheme": self.scheme,
            "word": self.word,
            "budgets": [{"axis": one.axis, "amount": one.amount} for one in self.budgets],
            "seeds": list(self.seeds),
            "metric": self.metric.name,
            "ranges": {key: str(found) for key, found in self.space.items()},
            "settings": self.settings,
            "score": None if score is None else finite(score.mean),
            "untuned_score": None if before is None else finite(before.mean),
            "gain": None if self.gain is None else finite(self.gain.mean),
            "costs": self.best.costs,
            "best": self.best.number,
            "front": [one.number for one in self.front],
            "importances": self.importances,
            "trials": [one.to_dict() for one in self.trials],
        }


def for_budgets(variant: Variant, budgets: tuple[Budget, ...], trial: Trial) -> Config:
    """A scheme with these settings, for runs that go on until the budgets are spent.

    Their models are judged by the test samples, as usual.
    """
    at = largest(budgets)
    config = variant.config.replace(
        {
            **keys_of(variant.name, trial.settings),
            **{key: at.get(axis) for axis, key in LEAST.items()},
            "run.rounds": max(1, trial.least_rounds),
            "data.validation_share": 0.0,
        }
    )
    return with_end(config, at)


def largest(budgets: tuple[Budget, ...]) -> dict[str, float]:
    """The largest budget of each axis: a run to it passes all others."""
    found: dict[str, float] = {}
    for one in budgets:
        found[one.axis] = max(one.amount, found.get(one.axis, 0.0))
    return found
