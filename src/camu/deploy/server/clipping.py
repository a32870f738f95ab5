"""Updates of nodes whose norm is far above the median of their round are scaled down to a limit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

import numpy as np

from camu.arrays import Float32
from camu.learning.job import Trained
from camu.learning.weights import Weights

FEWEST = 3  # with fewer updates, no median tells who is far off


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
