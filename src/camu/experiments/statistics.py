"""Means with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval (Student's t); no interval for a single seed."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def show(self, scale: float = 1.0, digits: int = 2) -> str:
        """For people: mean ± half width."""
        if self.low is None or self.high is None:
            return f"{scale * self.mean:.{digits}f}"
        half = scale * (self.high - self.low) / 2
        return f"{scale * self.mean:.{digits}f} ± {half:.{digits}f}"


def estimate(values: Sequence[float], tests: int = 1) -> Estimate:
    """The mean of independent values and its interval.

    Where the values are the best of several candidates, `tests` is how many there were: the
    interval is widened (Bonferroni) so that choosing does not pass for evidence.
    """
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    if len(data) < 2:
        return Estimate(mean, None, None, len(data))
    error = float(stats.sem(data))
    half = error * float(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * tests), len(data) - 1))
    return Estimate(mean, mean - half, mean + half, len(data))
