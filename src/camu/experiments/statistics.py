"""Means with confidence intervals, paired differences, and what a number of seeds can decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
POWER = 0.8  # chance that so many seeds decide
MOST_SEEDS = 1000


def student_quantile(chance: float, df: int) -> float:
    """The value that a variable of Student's t distribution is below with this chance."""
    from scipy import stats  # deferred: it takes 0.7 s, and a single run needs none of it

    return float(stats.t.ppf(chance, df))


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval (Student's t); no interval for a single seed."""

    mean: float
    low: float | None
    high: float | None
    n: int
    sd: float | None = None  # of the values themselves

    def show(self, scale: float = 1.0, digits: int = 2) -> str:
        """For people: mean ± half width."""
        if self.low is None or self.high is None:
            return f"{scale * self.mean:.{digits}f}"
        half = scale * (self.high - self.low) / 2
        return f"{scale * self.mean:.{digits}f} ± {half:.{digits}f}"

    def p_value(self, tests: int = 1) -> float | None:
        """Two-sided p of the t-test against 0; `tests` as for `estimate`."""
        if self.sd is None:
            return None
        if self.sd == 0:
            return 0.0 if self.mean else 1.0
        from scipy import stats

        t = abs(self.mean) / (self.sd / math.sqrt(self.n))
        return min(1.0, 2 * tests * float(stats.t.sf(t, self.n - 1)))

    def equivalent(self, margin: float, tests: int = 1) -> bool:
        """Whether two one-sided t-tests at 5 % show an effect between -margin and margin."""
        if self.sd is None:
            return False
        error = self.sd / math.sqrt(self.n)
        reach = error * student_quantile(1 - ALPHA / tests, self.n - 1)
        return abs(self.mean) + reach < margin


def estimate(values: Sequence[float], tests: int = 1) -> Estimate:
    """The mean of independent values and its interval.

    Where the values are the best of several candidates, `tests` is how many there were: the
    interval is widened (Bonferroni) so that choosing does not pass for evidence.
    """
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    if len(data) < 2:
        return Estimate(mean, None, None, len(data))
    sd = float(data.std(ddof=1))
    half = sd / math.sqrt(len(data)) * student_quantile(1 - ALPHA / (2 * tests), len(data) - 1)
    return Estimate(mean, mean - half, mean + half, len(data), sd)


def paired(values: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """The mean difference of pairs that share a seed, and its interval."""
    if len(values) != len(baseline):
        raise ValueError("pairs need as many values as baselines")
    return estimate(np.subtract(values, baseline).tolist())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values of a family: one below 5 % holds for the family as a whole."""
    order = np.argsort(p_values, kind="stable")
    adjusted, largest = np.ones(len(p_values)), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()


def chance_to_differ(mean: float, sd: float, n: int) -> float:
    """Power of the two-sided t-test at 5 % with n seeds, if this is the true mean and sd."""
    from scipy import stats

    edge, shift = student_quantile(1 - ALPHA / 2, n - 1), mean / sd * math.sqrt(n)
    return float(stats.nct.sf(edge, n - 1, shift) + stats.nct.cdf(-edge, n - 1, shift))


def chance_to_be_equivalent(mean: float, sd: float, margin: float, n: int) -> float:
    """Power of the two one-sided t-tests at 5 % with n seeds, if this is the true mean and sd.

    The tests succeed where |mean| + t s / sqrt(n) < margin; integrated over the distribution of s.
    """
    from scipy import stats

    edge, df = student_quantile(1 - ALPHA, n - 1), n - 1
    # Quantiles of s at the middle of equally likely slices.
    middle = (np.arange(400) + 0.5) / 400
    spread = sd * np.sqrt(stats.chi2.ppf(middle, df) / df)
    room = margin - edge * spread / math.sqrt(n)
    scale = sd / math.sqrt(n)
    inside = stats.norm.cdf((room - mean) / scale) - stats.norm.cdf((-room - mean) / scale)
    return float(np.where(room > 0, inside, 0.0).mean())


def seeds_to_decide(mean: float, sd: float, margin: float | None) -> int | None:
    """The fewest seeds that decide with a chance of 80 %, if mean and sd are the true ones.

    Decided is a difference from 0, or, with a margin, equivalence. None: more than 1000.
    """
    if sd == 0:
        return 2

    def enough(n: int) -> bool:
        differs = chance_to_differ(mean, sd, n) >= POWER
        return differs or (
            margin is not None and chance_to_be_equivalent(mean, sd, margin, n) >= POWER
        )

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if low >= MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MOST_SEEDS else None
