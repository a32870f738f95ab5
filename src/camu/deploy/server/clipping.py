"""Clip updates whose norm is far above the median of the round.

`training.max_update_norm` is absolute and must leave room for the first rounds of any model. A
limit relative to the other units of the same round bounds what one node can do at any time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from camu.arrays import Float32
from camu.deploy.reports import Refusal
from camu.learning.job import Trained
from camu.learning.weights import Weights

FEWEST = 3  # with fewer updates, no median tells who is far off
RECENT = 32  # arrivals that make the median where there are no rounds to compare in


def update_norm(result: Weights, start: Weights) -> float:
    """The norm of an update, in double precision."""
    update = result.parameters.astype(np.float64) - start.parameters
    return math.sqrt(float(np.square(update).sum()))


def norm_limit(norms: Iterable[float], multiple: float) -> float:
    """The largest norm that stays as it is; infinite where there is nothing to compare with."""
    known = [norm for norm in norms if math.isfinite(norm)]
    middle = median(known) if len(known) >= FEWEST else 0.0
    return multiple * middle if multiple > 0 and middle > 0 else math.inf


def clip_update(trained: Trained, start: Weights, limit: float) -> Trained:
    """The result with its update scaled down to the limit; the same object if it is within."""
    norm = update_norm(trained.weights, start)
    if not limit < norm < math.inf:  # entries that are not finite are refused elsewhere
        return trained
    share = limit / norm
    weights = trained.weights

    def scaled(result: Float32, origin: Float32) -> Float32:
        first, last = origin.astype(np.float64), result.astype(np.float64)
        return (first + share * (last - first)).astype(np.float32)

    parameters = scaled(weights.parameters, start.parameters)
    buffers = scaled(weights.buffers, start.buffers)
    return trained._replace(weights=replace(weights, parameters=parameters, buffers=buffers))


@dataclass(eq=False)
class Clipping:
    """Clips updates to a multiple of the median norm; 0 clips nothing."""

    multiple: float
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def together(
        self, results: Sequence[Trained | Refusal], starts: Sequence[Weights]
    ) -> list[Trained | Refusal]:
        """The updates of one round (or of one local update of all devices)."""
        pairs = list(zip(results, starts, strict=True))
        norms = [update_norm(r.weights, s) for r, s in pairs if isinstance(r, Trained)]
        limit = norm_limit(norms, self.multiple)
        return [clip_update(r, s, limit) if isinstance(r, Trained) else r for r, s in pairs]

    def alone(self, result: Trained, start: Weights) -> Trained:
        """One arrival, compared with those before it."""
        limit = norm_limit(self.recent, self.multiple)
        clipped = clip_update(result, start, limit)
        self.recent.append(update_norm(clipped.weights, start))
        return clipped
