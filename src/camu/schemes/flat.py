"""Models as one array of parameters and buffers, in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import Float64

if TYPE_CHECKING:
    from camu.learning.weights import Weights


def flat(weights: Weights) -> Float64:
    """Parameters, then buffers."""
    return np.concatenate((weights.parameters, weights.buffers)).astype(np.float64)


def unflat(like: Weights, array: Float64) -> Weights:
    """The model of such an array, with the layout of another model."""
    q = like.parameters.size
    return type(like)(array[:q].astype(np.float32), array[q:].astype(np.float32), like.layout)
