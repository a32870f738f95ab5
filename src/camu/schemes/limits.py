"""What one device can do to a model is limited by what the other devices of its round do.

The norm of an update and the weight of a device are at most a multiple of the median of all; what
an update says of buffers (the statistics of batch norm) stays in the range of the middle ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

import numpy as np

from camu.arrays import Float32
from camu.learning.job import Trained
from camu.learning.weights import Weights
from camu.planning.plan import Plan

FEWEST = 3  # with fewer updates, no median tells who is far off
OUTER = 0.25  # of the updates, at each end, that do not make the range of buffers


class Change(NamedTuple):
    """What updates are compared by."""

    norm: float
    buffers: Float32

    @classmethod
    def of(cls, result: Weights, start: Weights) -> Change:
        """How far a result is from the model that it started from."""
        return cls(update_norm(result, start), result.buffers - start.buffers)


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits of the updates of a round."""

    norm: float = math.inf
    lowest: Float32 | None = None  # change of each buffer; None: any
    highest: Float32 | None = None

    count: int = 0  # of the updates that they were made of

    @classmethod
    def of(cls, changes: Sequence[Change], multiple: float) -> Limits:
        """The limits that these updates give each other; none where `multiple` is 0."""
        norm = norm_limit((change.norm for change in changes), multiple)
        rows = [one.buffers for one in changes if np.isfinite(one.buffers).all()]
        if multiple <= 0 or len(rows) < FEWEST or not rows[0].size:
            return cls(norm, count=len(changes))
        ordered, outer = np.sort(np.stack(rows), axis=0), max(1, int(OUTER * len(rows)))
        return cls(norm, ordered[outer], ordered[-1 - outer], len(changes))

    def apply(self, trained: Trained, start: Weights) -> Trained:
        """The result within the limits; the same object if it is within."""
        return self._within_range(clip_update(trained, start, self.norm), start)

    def _within_range(self, trained: Trained, start: Weights) -> Trained:
        if self.lowest is None or self.highest is None:
            return trained
        change = trained.weights.buffers - start.buffers
        bounded = np.clip(change, self.lowest, self.highest)
        beyond = (bounded != change) & np.isfinite(change)  # nan is refused elsewhere
        if not beyond.any():
            return trained
        buffers = np.where(beyond, start.buffers + bounded, trained.weights.buffers)
        return trained._replace(weights=replace(trained.weights, buffers=buffers))


@dataclass(eq=False)
class RoundLimits:
    """The limits of a round, of the local update in which most devices take part.

    In later updates of units that do more of them, bad devices can be in the majority.
    """

    number: int = -1  # of the round
    limits: Limits = field(default_factory=Limits)

    def of(self, changes: Sequence[Change], multiple: float, number: int) -> Limits:
        """The limits of some updates of this round, or those of an update with more devices."""
        found = Limits.of(changes, multiple)
        if number != self.number or found.count >= self.limits.count:
            self.number, self.limits = number, found
        return self.limits


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
    return trained._replace(weights=part_of(trained.weights, start, limit / norm))


def part_of(result: Weights, start: Weights, share: float) -> Weights:
    """The result of a share of the update; the same object where the share is 1."""
    if share == 1:
        return result

    def scaled(last: Float32, first: Float32) -> Float32:
        begin, end = first.astype(np.float64), last.astype(np.float64)
        return (begin + share * (end - begin)).astype(np.float32)

    parameters = scaled(result.parameters, start.parameters)
    return replace(result, parameters=parameters, buffers=scaled(result.buffers, start.buffers))


def with_limited_weights(plan: Plan, multiple: float) -> Plan:
    """The plan in which no device weighs more than a multiple of the median device.

    What a device weighs is its share of its unit's weight. A plan within the limit is returned as
    it is, and so is one with few devices, or if `multiple` is 0.
    """
    own = [[unit.weight * share for share in unit.member_weights] for unit in plan.units]
    known = [weight for unit in own for weight in unit]
    limit = multiple * median(known)
    if multiple <= 0 or len(known) < FEWEST or not 0 < limit < max(known):
        return plan
    own = [[min(weight, limit) for weight in unit] for unit in own]
    totals = [math.fsum(unit) for unit in own]
    everything = math.fsum(totals)
    shares = [
        tuple(weight / total for weight in unit) if total > 0 else before.member_weights
        for unit, total, before in zip(own, totals, plan.units, strict=True)
    ]
    weights = [total / everything for total in totals]
    return plan.with_columns(weight=weights, member_weights=shares)
