"""The labels that a plan effectively trains on, and how far they are from everyone's.

In a round a unit moves the model by its weight times its steps, so a unit with more updates counts
more than its weight says. What is minimised is then the loss under these labels.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.planning.costs import in_a_row
from camu.planning.plan import Plan
from camu.world import World


@dataclass(frozen=True)
class LabelBias:
    """Label shares, and their total-variation distances (0 to 1) to everyone's."""

    everyone: tuple[float, ...]
    trained: tuple[float, ...]  # weight x steps x labels, over all units
    distance: float
    distance_of_weights: float  # if every unit took the same number of steps
    size_rank: float | None  # Spearman's correlation of contribution and samples; None: undefined

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain data."""
        return asdict(self)


def label_bias(plan: Plan, world: World) -> LabelBias:
    """The bias of a plan by its weights and its numbers of steps."""
    counts = world.devices.label_counts
    everyone = counts.sum(axis=0) / counts.sum()
    shares = counts / counts.sum(axis=1, keepdims=True)
    flat, starts = in_a_row([unit.members for unit in plan.units])
    inside = np.fromiter(chain.from_iterable(u.member_weights for u in plan.units), float)
    labels = np.add.reduceat(inside[:, None] * shares[flat], starts, axis=0)
    weight = np.array([unit.weight for unit in plan.units])
    steps = np.array(
        [u.local_updates * u.rule.steps * u.rule.rate * u.update_scale for u in plan.units]
    )
    trained = _mixed(weight * steps, labels)
    return LabelBias(
        everyone=tuple(everyone.tolist()),
        trained=tuple(trained.tolist()),
        distance=total_variation(trained, everyone),
        distance_of_weights=total_variation(_mixed(weight, labels), everyone),
        size_rank=_rank_correlation(plan),
    )


def total_variation(one: Float64, other: Float64) -> float:
    """Half the sum of absolute differences of two distributions."""
    return float(0.5 * np.abs(one - other).sum())


def _mixed(weight: Float64, labels: Float64) -> Float64:
    return np.asarray(weight @ labels / weight.sum())


def _rank_correlation(plan: Plan) -> float | None:
    """Whether the contribution ranks units as their samples do."""
    ranks = [
        _ranks(np.array([getattr(unit, name) for unit in plan.units]))
        for name in ("contribution", "samples")
    ]
    if len(plan.units) < 2 or min(float(np.ptp(rank)) for rank in ranks) == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Float64) -> Float64:
    """The rank of each value; equal ones share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place])
