"""What a target accuracy costs each scheme: measured in short runs, or extrapolated from them.

The model is accuracy = a - b (r + 1)^-c after r rounds, fitted to the mean over seeds from the
evaluation on that has half of the best accuracy. It is fitted twice: with a limit a, which early
rounds show too low where accuracy rises steeply, and with a = 1, which is wrong where training
levels off. A model is trusted only as far as it would have been right before: fitted to the first
part of the runs, it must predict when their last accuracy is reached. The better of the two is
used, and the factor by which its prediction is wrong widens the interval on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from scipy import optimize

from camu.arrays import Float64
from camu.experiments.statistics import ALPHA, estimate, student_quantile
from camu.simulation.history import History, measure, score_at

COSTS = ("rounds", "joules", "seconds")
FURTHEST = 10.0  # times the rounds that were run
FEWEST_POINTS = 8
KNOWN_PART = 0.6  # of the evaluations, which must predict the others
LARGEST_FACTOR = 3.0  # a model that was more wrong than this is not used


@dataclass(frozen=True)
class Cost:
    """A mean over seeds with its 95 % interval; None where there is no limit."""

    mean: float
    low: float | None
    high: float | None

    def show(self) -> str:
        """For people: mean [low-high]."""
        if self.low is None:
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} [{self.low:.3g}-{'' if self.high is None else f'{self.high:.3g}'}]"


@dataclass(frozen=True)
class Forecast:
    """What a scheme needs for the target."""

    scheme: str
    how: str  # `measured`, `extrapolated` or `not reached`
    reached: int  # seeds whose run reached the target
    seeds: int
    best_score: float  # of any evaluation, mean over seeds
    note: str  # what a reader should know about the numbers
    costs: dict[str, Cost]  # by rounds, joules and seconds; empty if the target is not reached


@dataclass(frozen=True)
class Curve:
    """accuracy = a - b (r + 1)^-c."""

    a: float
    b: float
    c: float

    def accuracy(self, rounds: float) -> float:
        """The accuracy after so many rounds."""
        return self.a - self.b * math.pow(rounds + 1, -self.c)

    def rounds_to(self, accuracy: float) -> float | None:
        """Rounds until an accuracy; None if the curve stays below it."""
        if accuracy >= self.a:
            return None
        try:
            return float(max(0.0, (self.b / (self.a - accuracy)) ** (1 / self.c) - 1))
        except OverflowError:
            return None


def fit_curve(rounds: Float64, accuracies: Float64) -> Curve:
    """The curve with the least squared error over evaluations."""

    def error(free: Float64) -> Float64:
        a, log_b, c = free
        return np.asarray(a - np.exp(log_b) * (rounds + 1) ** -c - accuracies)

    best = float(accuracies.max())
    found = optimize.least_squares(
        error,
        x0=(min(1.0, best + 0.05), math.log(max(best - float(accuracies[0]), 0.05)), 0.5),
        bounds=([0.0, -10.0, 0.02], [1.0, 10.0, 5.0]),
        x_scale=(0.1, 1.0, 0.5),
    )
    a, log_b, c = found.x.tolist()
    return Curve(a, math.exp(log_b), c)


def fit_power_law(rounds: Float64, accuracies: Float64) -> Curve:
    """The curve towards 1 with the least squared error of the logarithms of 1 - accuracy."""
    wrong = np.log(np.maximum(1 - accuracies, 1e-4))
    slope, offset = np.polyfit(np.log(rounds + 1), wrong, 1).tolist()
    return Curve(1.0, math.exp(offset), max(-slope, 0.02))


def forecast(histories: Mapping[str, Sequence[History]], target: float) -> list[Forecast]:
    """What each scheme needs for a target accuracy (0 to 1), from its runs, one per seed."""
    return [_forecast(name, own, target) for name, own in histories.items()]


def _forecast(scheme: str, runs: Sequence[History], target: float) -> Forecast:
    reached = sum(run.needed_for("rounds", target) is not None for run in runs)
    best = float(np.mean([run.best_score for run in runs]))
    count = len(runs)
    if reached == count:
        costs = {key: _measured([run.needed_for(key, target) for run in runs]) for key in COSTS}
        return Forecast(scheme, "measured", reached, count, best, "", costs)
    least = min(run.final.round for run in runs)
    within = (
        f"not reached within {least} rounds by {count - reached} of {count} seeds (best accuracy "
        f"{best:.1%})"
    )
    found = _continued(runs, target)
    if isinstance(found, str):
        return Forecast(scheme, "not reached", reached, count, best, f"{within}; {found}", {})
    factor = found.pop("factor")
    others = [_continued([*runs[:k], *runs[k + 1 :]], target) for k in range(count)]
    costs = {key: _continued_cost(found[key], others, key, factor) for key in COSTS}
    note = f"{within}; the model's prediction of known rounds was wrong by a factor of {factor:.3g}"
    if any(cost.high is None for cost in costs.values()) and count > 1:
        note += "; without one of the seeds it has no answer, so there is no upper limit"
    return Forecast(scheme, "extrapolated", reached, count, best, note, costs)


def _continued(runs: Sequence[History], target: float) -> dict[str, float] | str:
    """Mean costs of the target by the model, and the factor by which it is wrong; or why not."""
    if ended := [run.stopped for run in runs if run.stopped != "rounds"]:
        return f"a run ended early: {ended[0]}"
    if not runs:
        return "no run"
    rounds, accuracies = _mean_curve(runs)
    if len(rounds) < FEWEST_POINTS:
        return "too few evaluations for a model; run more rounds, or evaluate more often"
    fits = (fit_curve, fit_power_law)
    curve, factor = min((_tried(fit, rounds, accuracies) for fit in fits), key=itemgetter(1))
    last = float(rounds[-1])
    if factor > LARGEST_FACTOR:
        return "no model: the first part of the runs does not predict the rest"
    needed = curve.rounds_to(target)
    if needed is None:
        return f"the model levels off at {curve.a:.1%}; run more rounds to know"
    if needed > FURTHEST * last:
        return f"the model needs more than {FURTHEST:g} times as many; run more rounds to know"
    costs = {key: float(np.mean([_cost_at(run, key, needed) for run in runs])) for key in COSTS}
    return {**costs, "factor": factor}


def _tried(
    fit: Callable[[Float64, Float64], Curve], rounds: Float64, accuracies: Float64
) -> tuple[Curve, float]:
    """The fitted curve, and the factor by which the first part is wrong about the last round."""
    curve, last = fit(rounds, accuracies), float(rounds[-1])
    known = math.ceil(KNOWN_PART * len(rounds))
    predicted = fit(rounds[:known], accuracies[:known]).rounds_to(curve.accuracy(last))
    return curve, math.inf if not predicted else max(predicted / last, last / predicted)


def _mean_curve(runs: Sequence[History]) -> tuple[Float64, Float64]:
    """Evaluated rounds and mean accuracies, from the first with half of the best on."""
    first = [record.round for record in runs[0].evaluated]
    rounds = np.array(first[: min(len(run.evaluated) for run in runs)], dtype=float)
    mean = np.mean([score_at(run.evaluated, "rounds", rounds) for run in runs], axis=0)
    start = int(np.argmax(mean >= 0.5 * mean.max()))
    return rounds[start:], mean[start:]


def _cost_at(run: History, key: str, rounds: float) -> float:
    """What a run costs after so many rounds, continued as in its second half.

    A pilot before the first round is thus paid once.
    """
    middle, last = run.records[len(run.records) // 2], run.final
    slope = (measure(last, key) - measure(middle, key)) / (last.round - middle.round)
    return measure(last, key) + (rounds - last.round) * slope


def _measured(values: Sequence[float | None]) -> Cost:
    """The geometric mean, and Student's interval of the logarithms."""
    logs = np.log([max(value or 0.0, 1e-300) for value in values])
    found = estimate(logs.tolist())
    if found.low is None or found.high is None:
        return Cost(math.exp(found.mean), None, None)
    return Cost(math.exp(found.mean), math.exp(found.low), math.exp(found.high))


def _continued_cost(
    value: float, others: Sequence[dict[str, float] | str], key: str, factor: float
) -> Cost:
    """A cost by the model, with the jackknife's interval over seeds, widened by a factor.

    `others` are the answers without each of the seeds.
    """
    count = len(others)
    known = np.log([other[key] for other in others if not isinstance(other, str)])
    if count < 2 or len(known) < 2:
        return Cost(value, None, None)
    spread = float(np.sqrt((count - 1) / len(known) * np.square(known - known.mean()).sum()))
    half = spread * student_quantile(1 - ALPHA / 2, count - 1) + math.log(factor)
    high = value * math.exp(half) if len(known) == count else None
    return Cost(value, value * math.exp(-half), high)
