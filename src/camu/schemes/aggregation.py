"""How updates become a new model: means, robust centres, mixed models, momentum of the server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from camu.arrays import Float32, Float64
from camu.errors import InputError
from camu.learning.weights import WeightedSum, Weights
from camu.schemes.view import State, View


@dataclass(eq=False)
class MeanUpdate:
    """The weighted mean of updates; it needs the memory of a few updates, however many are added.

    The sum is in double precision and in the order in which updates are added. It is divided by the
    sum of the weights at the end, because only then is it known which updates were usable.
    """

    start: Weights  # the model that the mean will be added to
    total: float = 0.0  # of the weights so far
    _parameters: WeightedSum = field(init=False)
    _buffers: WeightedSum = field(init=False)

    def __post_init__(self) -> None:
        self._parameters = WeightedSum(self.start.parameters.size)
        self._buffers = WeightedSum(self.start.buffers.size)

    def add(self, weight: float, update: Float32, buffers: Float32) -> None:
        """Count one more update, with the change of the buffers that belongs to it."""
        self.total += weight
        self._parameters.add(weight, update)
        self._buffers.add(weight, buffers)

    def added(self) -> Weights:
        """The model plus the mean; the model itself where no update counts."""
        if self.total <= 0:
            return self.start
        totals = self._parameters.total, self._buffers.total
        return moved(self.start, *(total / self.total for total in totals))


def moved(start: Weights, update: Float64, buffers: Float64) -> Weights:
    """A model plus changes of its parameters and buffers, added in double precision."""
    return start.owning(
        (start.parameters + update).astype(np.float32),
        (start.buffers + buffers).astype(np.float32),
        start.layout,
    )


def robust_centre(rows: Float32, rule: str, faulty_share: float) -> Float64:
    """One vector for these updates (n, q); each counts the same, whatever the weights.

    `median` and `trimmed-mean` work entry by entry (Yin et al., ICML 2018); the trimmed mean leaves
    out floor(faulty_share * n) values at each end. `multi-krum` takes the mean of the updates that
    lie closest to others (Blanchard et al., NeurIPS 2017).
    """
    faulty = math.floor(faulty_share * len(rows) + 1e-9)
    if rule == "median":
        return np.asarray(np.median(rows.astype(np.float64), axis=0))
    if rule == "trimmed-mean":
        kept = np.sort(rows, axis=0)[faulty : len(rows) - faulty]
        return np.asarray(kept.astype(np.float64).mean(axis=0))
    return np.asarray(rows[krum_choice(rows, faulty)].astype(np.float64).mean(axis=0))


def krum_choice(rows: Float32, faulty: int) -> list[int]:
    """The n - f updates with the smallest scores.

    The score is the sum of squared distances to the n - f - 2 nearest others, at least one.
    """
    wide = rows.astype(np.float64)
    squares = np.square(wide).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares[None] - 2 * wide @ wide.T, 0.0)
    np.fill_diagonal(apart, np.inf)
    nearest = max(1, min(len(rows) - faulty - 2, len(rows) - 1))
    scores = np.sort(apart, axis=1)[:, :nearest].sum(axis=1)
    return sorted(np.argsort(scores, kind="stable")[: len(rows) - faulty].tolist())


def with_momentum(
    view: View, state: State, mean: Weights, momentum: float, rate: float = 1.0
) -> Weights:
    """The model after v <- momentum v + mean update, x <- x + rate v; buffers are the mean's."""
    here = view.weights.parameters.astype("float64")
    velocity = mean.parameters - here
    if "velocity" in state:
        velocity += momentum * state["velocity"]
    state["velocity"] = velocity
    return mean.with_parameters(here + rate * velocity)


def flat(weights: Weights) -> Float64:
    """Parameters, then buffers."""
    return np.concatenate((weights.parameters, weights.buffers)).astype(np.float64)


def unflat(like: Weights, array: Float64) -> Weights:
    """The model of such an array, with the layout of another model."""
    q = like.parameters.size
    return type(like)(array[:q].astype(np.float32), array[q:].astype(np.float32), like.layout)


def add_updates(view: View, factors: Sequence[float]) -> Weights:
    """The global model plus a factor times each arrived update; one factor per arrival.

    Updates are added in the order of units and in double precision, so that the order of arrival
    does not change the result. With scheme.aggregation other than `mean`, a robust centre of the
    updates takes their place, times the sum of the factors.
    """
    if len(factors) != len(view.arrived):
        raise InputError(
            f"add_updates: {len(factors)} factors were given for {len(view.arrived)} arrivals; "
            "give one per arrival"
        )
    parameters = view.weights.parameters.astype(np.float64)
    buffers = view.weights.buffers.astype(np.float64)
    pairs = sorted(zip(view.arrived, factors, strict=True), key=lambda pair: pair[0].unit)
    rule = view.world.config.scheme
    if rule.aggregation != "mean" and pairs:
        rows = [np.concatenate((arrival.update, arrival.buffers)) for arrival, _ in pairs]
        centre = robust_centre(np.stack(rows), rule.aggregation, rule.faulty_share)
        step = math.fsum(factors) * centre
        parameters += step[: parameters.size]
        buffers += step[parameters.size :]
        pairs = []
    for arrival, factor in pairs:
        parameters += factor * arrival.update.astype(np.float64)
        buffers += factor * arrival.buffers.astype(np.float64)
    return replace(
        view.weights,
        parameters=parameters.astype(np.float32),
        buffers=buffers.astype(np.float32),
    )


def mix_models(view: View, shares: Sequence[float]) -> Weights:
    """The global model with a share of each arrived model mixed in; the rest stays as it is.

    w + sum_k share_k (w_k - w), where w_k is the model that unit k started from plus its update.
    """
    here = view.weights
    moved = tuple(
        replace(
            arrival,
            update=(arrival.start.parameters - here.parameters) + arrival.update,
            buffers=(arrival.start.buffers - here.buffers) + arrival.buffers,
        )
        for arrival in view.arrived
    )
    return add_updates(replace(view, arrived=moved), shares)
