"""How much units count by their data: contribution, weights and gate, and the labels trained on.

W_c is the distance of a cluster's labels to everyone's, theta_c its contribution, G_c its weight
(sections II-A and III-B). `e^(1/W)` overflows for clusters whose labels look like everyone's, so
everything is computed from its logarithm: weights are a softmax, and the gate compares logarithms.

In a round a unit moves the model by its weight times its steps, so a unit with more updates counts
more than its weight says. What is minimised is then the loss under other labels than everyone's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.data.batches import batch_samples
from camu.learning.method import Method
from camu.planning.costs import flatten_groups
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.world import World

# Smaller distances count as this one, whatever w_min is: it is less than one sample in a million,
# and next to 1/W enough digits of log |D_c| are left.
SMALLEST_DISTANCE = 1e-6


def group_counts(label_counts: Int64, groups: Sequence[Sequence[int]]) -> Int64:
    """Samples of each label in each group of devices, (groups, labels)."""
    flat, starts = flatten_groups(groups)
    return np.asarray(np.add.reduceat(label_counts[flat], starts, axis=0))


def label_distance(counts: Int64, everyone: Int64, kind: str = "wasserstein") -> Float64:
    """W_c, eq. (3): distance of each row's label distribution to that of everyone's labels.

    `wasserstein` is the 1-D distance on label indices; `tv` is total variation, which does not
    depend on how labels are numbered.
    """
    pmf = counts / counts.sum(axis=1, keepdims=True)
    difference = pmf - everyone / everyone.sum()
    if kind == "tv":
        return np.asarray(0.5 * np.abs(difference).sum(axis=1))
    return np.asarray(np.abs(np.cumsum(difference, axis=1)[:, :-1]).sum(axis=1))


def log_contribution(samples: npt.ArrayLike, distance: Float64, w_min: float) -> Float64:
    """log theta_c = log |D_c| + 1 / max(W_c, w_min)."""
    return np.asarray(np.log(samples) + 1.0 / np.maximum(distance, max(w_min, SMALLEST_DISTANCE)))


def contribution(log_theta: Float64) -> Float64:
    """theta_c itself, eq. (17), held at the largest number where it would overflow."""
    return np.asarray(np.exp(np.minimum(log_theta, np.log(np.finfo(float).max))))


def aggregation_weights(log_theta: Float64) -> Float64:
    """G_c, eq. (4): contributions scaled to add up to 1."""
    shares = np.exp(log_theta - log_theta.max())
    return np.asarray(shares / shares.sum())


def gate(log_theta: Float64, threshold: float | None, quantile: float) -> npt.NDArray[np.bool_]:
    """S_c, eq. (19): whether a cluster's contribution reaches the threshold."""
    return np.asarray(log_theta >= log_threshold(log_theta, threshold, quantile))


def log_threshold(log_theta: Float64, threshold: float | None, quantile: float) -> float:
    """The logarithm of the threshold, or of a quantile of the contributions where that is None."""
    if threshold is None:
        # One of the contributions themselves, so that rounding never shuts out the cluster at it.
        return float(np.quantile(log_theta, quantile, method="lower"))
    with np.errstate(divide="ignore"):  # a threshold of 0 admits everyone
        return float(np.log(threshold))


def extra_updates(step_seconds: Float64, most: int) -> Int64:
    """n_c by capability: how many more updates fit while the slowest cluster does its one.

    The paper gives no formula; this is clip(floor(T_slow / T_c) - 1, 0, most). T_c is the time of
    one local update: the slowest member computes, then the members send to their leader.
    """
    # The small number forgives rounding where the ratio is whole.
    times = np.floor(step_seconds.max() / step_seconds + 1e-9)
    return np.asarray(np.clip(times - 1, 0, most), dtype=np.int64)


@dataclass(frozen=True)
class LabelBias:
    """Label shares, and their total-variation distances (0 to 1) to everyone's."""

    everyone: tuple[float, ...]
    trained: tuple[float, ...]  # weight x steps x labels, over all units
    distance: float
    distance_of_weights: float  # if every unit took the same number of steps
    size_rank: float | None  # Spearman's correlation of contribution and samples; None: undefined


def label_bias(plan: Plan, world: World) -> LabelBias:
    """The bias of a plan by its weights and its numbers of steps."""
    counts = world.devices.label_counts
    everyone = counts.sum(axis=0) / counts.sum()
    shares = counts / counts.sum(axis=1, keepdims=True)
    labels = np.array(
        [
            _mixed(np.array(u.member_weights) * _batches(world, u), shares[list(u.members)])
            for u in plan.units
        ]
    )
    weight = plan.column("weight")
    steps = [gradient_steps(world, unit) * unit.update_scale for unit in plan.units]
    trained = _mixed(weight * np.array(steps), labels)
    return LabelBias(
        everyone=tuple(everyone.tolist()),
        trained=tuple(trained.tolist()),
        distance=total_variation(trained, everyone),
        distance_of_weights=total_variation(_mixed(weight, labels), everyone),
        size_rank=_rank_correlation(plan.column("contribution"), plan.column("samples")),
    )


def gradient_steps(world: World, unit: Unit) -> float:
    """Steps of a unit in a round, times its factor on the learning rate.

    Where a local update is an epoch, it is the members' mean number of batches. With momentum a
    step counts by what it moves in all, as in FedNova.
    """
    method, batches = Method.of(world.config.training).under(unit.rule), _batches(world, unit)
    if method.momentum:
        taken = unit.local_updates * unit.rule.steps * batches
        batches = batches * [method.gradients_per_step(own) for own in taken.tolist()]
    steps = unit.local_updates * unit.rule.steps * unit.rule.rate
    return float(steps * (batches @ np.array(unit.member_weights)))


def _batches(world: World, unit: Unit) -> Float64:
    """Batches of each member in a local update: one, or those of an epoch."""
    training = world.config.training
    if training.local_update == "step":
        return np.ones(len(unit.members))
    samples = world.devices.samples[list(unit.members)]
    batch = training.batch if unit.rule.batch is None else unit.rule.batch
    return np.ceil(samples / batch_samples(batch, samples))


def total_variation(one: Float64, other: Float64) -> float:
    """Half the sum of absolute differences of two distributions."""
    return float(0.5 * np.abs(one - other).sum())


def _mixed(weight: Float64, labels: Float64) -> Float64:
    return np.asarray(weight @ labels / weight.sum())


def _rank_correlation(one: Float64, other: Float64) -> float | None:
    """Spearman's correlation; None where one of both is constant."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Float64) -> Float64:
    """The rank of each value; equal ones share the mean of theirs."""
    # As scipy.stats.rankdata, which every `camu plan` would wait for more than a second.
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place])
