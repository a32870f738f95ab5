"""The rules of verdicts, fixed before the runs.

V1: published with a spread; the 95 % Welch interval of (ours - theirs) contains 0, and is at most a
point wide to each side. V2: published from one run; it lies in our 95 % prediction interval. V3: V2
for a rounded number. V4: an order, or a figure; the paired difference has their sign, and its 95 %
interval excludes 0. V5: V2 on logarithms, for rounds to a target; a run that never reaches it is
censored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from camu.experiments.statistics import CONFIDENCE, estimate, student_quantile

REPRODUCED, DIFFERS, UNDECIDED = "reproduced", "differs", "undecided"
UNINFORMATIVE, CENSORED, NOT_RUN = "uninformative", "censored", "not run"
MARGIN = 1.0  # points that the half width of V1 may have
WIDEST = 10.0  # points that the prediction interval of V2 may have
WIDEST_FACTOR = 4.0  # of the ends of that of V5
FEWEST = {"V1": 2, "V2": 8, "V3": 8, "V4": 3, "V5": 8}  # seeds of ours

Interval = tuple[float, float]


@dataclass(frozen=True)
class Judged:
    """A verdict with the interval that it rests on, and the difference to what was published."""

    verdict: str
    interval: Interval | None = None  # of our mean (V1, V4), or of one run of ours
    difference: float | None = None
    difference_interval: Interval | None = None


def welch(
    ours: Sequence[float], mean: float, spread: float, n: int, margin: float = MARGIN
) -> Judged:
    """V1."""
    own = estimate(ours)
    difference, sd = own.mean - mean, own.sd or 0.0
    parts = sd**2 / own.n, spread**2 / n
    variance = sum(parts)
    half = 0.0
    if variance:
        freedom = variance**2 / (parts[0] ** 2 / (own.n - 1) + parts[1] ** 2 / (n - 1))
        half = math.sqrt(variance) * student_quantile((1 + CONFIDENCE) / 2, freedom)
    interval = difference - half, difference + half
    within = own.mean if own.low is None else own.low, own.mean if own.high is None else own.high
    if interval[0] > 0 or interval[1] < 0:
        verdict = DIFFERS
    else:
        verdict = REPRODUCED if half <= margin else UNDECIDED
    return Judged(verdict, within, difference, interval)


def predicted(
    ours: Sequence[float], value: float, rounding: float = 0.0, judged: int | None = None
) -> Judged:
    """V2, and V3 with the half unit of rounding; in percent.

    `judged` are the samples by which the authors judged, where these are so few that their number
    has an error of its own.
    """
    values = np.asarray(ours, dtype=float)
    mean, variance = float(values.mean()), float(values.var(ddof=1)) * (1 + 1 / len(values))
    if judged:
        share = min(max(mean / 100, 0.0), 1.0)
        variance += 1e4 * share * (1 - share) / judged
    half = math.sqrt(variance) * student_quantile((1 + CONFIDENCE) / 2, len(values) - 1) + rounding
    interval = mean - half, mean + half
    if not interval[0] <= value <= interval[1]:
        verdict = DIFFERS
    else:
        verdict = UNINFORMATIVE if 2 * half > WIDEST else REPRODUCED
    return Judged(verdict, interval, mean - value, (interval[0] - value, interval[1] - value))


def paired(differences: Sequence[float]) -> Judged:
    """V4: of differences that are positive where the published order holds."""
    own = estimate(differences)
    if own.low is None or own.high is None:
        return Judged(UNDECIDED, None, own.mean)
    verdict = REPRODUCED if own.low > 0 else DIFFERS if own.high < 0 else UNDECIDED
    return Judged(verdict, (own.low, own.high), own.mean, (own.low, own.high))


def to_target(ours: Sequence[float | None], value: float) -> Judged:
    """V5; None is a run that never reached the target."""
    if any(one is None for one in ours):
        return Judged(CENSORED)
    logs = np.log([one for one in ours if one is not None])
    mean, sd = float(logs.mean()), float(logs.std(ddof=1))
    half = sd * math.sqrt(1 + 1 / len(logs)) * student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1)
    interval = math.exp(mean - half), math.exp(mean + half)
    if not interval[0] <= value <= interval[1]:
        verdict = DIFFERS
    else:
        verdict = UNINFORMATIVE if interval[1] > WIDEST_FACTOR * interval[0] else REPRODUCED
    middle = math.exp(mean)
    return Judged(verdict, interval, middle - value, (interval[0] - value, interval[1] - value))


def outside_by_chance(cells: int) -> Interval:
    """How many of so many true cells lie outside their 95 % intervals: central 95 % of them."""
    from scipy import stats

    low, high = stats.binom.interval(CONFIDENCE, cells, 1 - CONFIDENCE)
    return float(low), float(high)
