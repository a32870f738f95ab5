"""What a target score costs each scheme: measured in short runs, or extrapolated from them.

The model is score = a - b (r + 1)^-c after r rounds, with b < 0 where lower is better, fitted to
the mean over seeds from the evaluation on that has half of the best score, or of the way to it
where the score is no share. It is fitted with a limit a, which early rounds show too low where
scores improve steeply, and for shares also with a = 1, which is wrong where training levels off. A
model is trusted only as far as it would have been right before: fitted to the first part of the
runs, it must predict when their last score is reached. The better of the two is used, and the
factor by which its prediction is wrong widens the interval on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np
from scipy import optimize

from camu.arrays import Float64
from camu.experiments.statistics import ALPHA, estimate, student_quantile
from camu.learning.metrics import Metric, find_metric, finite
from camu.simulation.history import History, measure, score_at

COSTS = ("rounds", "joules", "seconds", "megabytes")
FURTHEST = 10.0  # times the rounds that were run
FEWEST_POINTS = 8
KNOWN_PART = 0.6  # of the evaluations, which must predict the others
LARGEST_FACTOR = 3.0  # a model that was more wrong than this is not used
ACCURACY = find_metric("accuracy")


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
    best_score: float | None  # of any evaluation, mean over seeds; None: blown up from the start
    note: str  # what a reader should know about the numbers
    costs: dict[str, Cost]  # by the names in COSTS; empty if the target is not reached


@dataclass(frozen=True)
class Curve:
    """score = a - b (r + 1)^-c; b < 0 where lower is better."""

    a: float
    b: float
    c: float

    def score(self, rounds: float) -> float:
        """The score after so many rounds."""
        return self.a - self.b * math.pow(rounds + 1, -self.c)

    def rounds_to(self, score: float) -> float | None:
        """Rounds until a score; None if the curve stays worse."""
        left = self.a - score
        if left * self.b <= 0:
            return None
        try:
            return float(max(0.0, (self.b / left) ** (1 / self.c) - 1))
        except OverflowError:
            return None


Fit = Callable[[Float64, Float64], Curve]


def fit_curve(rounds: Float64, scores: Float64, metric: Metric = ACCURACY) -> Curve:
    """The curve with the least squared error over evaluations.

    Scores that do not rise to 1 are counted from the first one, as parts of the way to the best.
    """
    zero, unit = 0.0, 1.0
    if not _rises_to_one(metric):
        zero = float(scores[0])
        unit = metric.best(scores.tolist()) - zero or float(metric.sign)
    values, top = (scores - zero) / unit, (metric.limit - zero) / unit

    def error(free: Float64) -> Float64:
        a, log_b, c = free
        return np.asarray(a - np.exp(log_b) * (rounds + 1) ** -c - values)

    best = float(values.max())
    found = optimize.least_squares(
        error,
        x0=(min(top, best + 0.05), math.log(max(best - float(values[0]), 0.05)), 0.5),
        bounds=([0.0, -10.0, 0.02], [top, 10.0, 5.0]),
        x_scale=(0.1, 1.0, 0.5),
    )
    a, log_b, c = found.x.tolist()
    return Curve(zero + unit * a, unit * math.exp(log_b), c)


def _rises_to_one(metric: Metric) -> bool:
    """Whether scores are shares of which higher is better."""
    return metric.share and metric.higher_is_better


def fit_power_law(rounds: Float64, shares: Float64) -> Curve:
    """The curve towards 1 with the least squared error of the logarithms of 1 - share."""
    wrong = np.log(np.maximum(1 - shares, 1e-4))
    slope, offset = np.polyfit(np.log(rounds + 1), wrong, 1).tolist()
    return Curve(1.0, math.exp(offset), max(-slope, 0.02))


def forecast(histories: Mapping[str, Sequence[History]], target: float) -> list[Forecast]:
    """What each scheme needs for a target score, from its runs, one per seed."""
    return [_forecast(name, own, target) for name, own in histories.items()]


def _forecast(scheme: str, runs: Sequence[History], target: float) -> Forecast:
    reached = sum(run.needed_for("rounds", target) is not None for run in runs)
    count, metric = len(runs), runs[0].metric
    best = finite(float(np.mean([run.best_score for run in runs])))
    keys = _costs_of(runs)
    if reached == count:
        costs = {
            key: _measured([run.needed_for(key, target) for run in runs]) for key in _costs_of(runs)
        }
        return Forecast(scheme, "measured", reached, count, best, "", costs)
    least = min(run.final.round for run in runs)
    within = (
        f"not reached within {least} rounds by {count - reached} of {count} seeds (best "
        f"{metric.title} {metric.show(metric.worst if best is None else best, 1)})"
    )
    found = _continued(runs, target)
    if isinstance(found, str):
        return Forecast(scheme, "not reached", reached, count, best, f"{within}; {found}", {})
    factor = found.pop("factor")
    others = [_continued([*runs[:k], *runs[k + 1 :]], target) for k in range(count)]
    costs = {key: _continued_cost(found[key], others, key, factor) for key in keys}
    note = f"{within}; the model's prediction of known rounds was wrong by a factor of {factor:.3g}"
    if any(cost.high is None for cost in costs.values()) and count > 1:
        note += "; without one of the seeds it has no answer, so there is no upper limit"
    return Forecast(scheme, "extrapolated", reached, count, best, note, costs)


def _costs_of(runs: Sequence[History]) -> tuple[str, ...]:
    """What is known of all runs; earlier versions counted no bits."""
    counted = all(run.final.total_bits is not None for run in runs)
    return COSTS if counted else COSTS[:-1]


def _continued(runs: Sequence[History], target: float) -> dict[str, float] | str:
    """Mean costs of the target by the model, and the factor by which it is wrong; or why not."""
    if ended := [run.stopped for run in runs if run.stopped != "rounds"]:
        return f"a run ended early: {ended[0]}"
    if not runs:
        return "no run"
    metric = runs[0].metric
    if any(finite(record.score) is None for run in runs for record in run.evaluated):
        return "a model has blown up"
    rounds, scores = _mean_curve(runs, metric)
    if len(rounds) < FEWEST_POINTS:
        return "too few evaluations for a model; run more rounds, or evaluate more often"
    fits: list[Fit] = [partial(fit_curve, metric=metric)]
    if _rises_to_one(metric):
        fits.append(fit_power_law)
    curve, factor = min((_tried(fit, rounds, scores) for fit in fits), key=itemgetter(1))
    last = float(rounds[-1])
    if factor > LARGEST_FACTOR:
        return "no model: the first part of the runs does not predict the rest"
    needed = curve.rounds_to(target)
    if needed is None:
        return f"the model levels off at {metric.show(curve.a, 1)}; run more rounds to know"
    if needed > FURTHEST * last:
        return f"the model needs more than {FURTHEST:g} times as many; run more rounds to know"
    costs = {
        key: float(np.mean([_cost_at(run, key, needed) for run in runs])) for key in _costs_of(runs)
    }
    return {**costs, "factor": factor}


def _tried(fit: Fit, rounds: Float64, scores: Float64) -> tuple[Curve, float]:
    """The fitted curve, and the factor by which the first part is wrong about the last round."""
    curve, last = fit(rounds, scores), float(rounds[-1])
    known = math.ceil(KNOWN_PART * len(rounds))
    predicted = fit(rounds[:known], scores[:known]).rounds_to(curve.score(last))
    return curve, math.inf if not predicted else max(predicted / last, last / predicted)


def _mean_curve(runs: Sequence[History], metric: Metric) -> tuple[Float64, Float64]:
    """Evaluated rounds and mean scores, from the first with half of the best on."""
    first = [record.round for record in runs[0].evaluated]
    rounds = np.array(first[: min(len(run.evaluated) for run in runs)], dtype=float)
    mean = np.mean([score_at(run.evaluated, "rounds", rounds) for run in runs], axis=0)
    gains = metric.sign * (mean if _rises_to_one(metric) else mean - mean[0])
    start = int(np.argmax(gains >= 0.5 * gains.max()))
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
    if not all(values):  # an untrained model is as good already
        return Cost(float(np.mean([value or 0.0 for value in values])), None, None)
    logs = np.log([value or 0.0 for value in values])
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
