"""What a bound needs to know of the losses, from gradients and losses at the models of a pilot.

Ratios of gradients give eps_c and delta_c, changes of gradients from model to model give L and mu.
All of it describes the loss where the pilot looked; on a quadratic with no more dimensions than
steps it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.errors import CamuError

# Gradients have single precision: directions in which the pilot hardly moved say nothing.
SMALLEST_MOVE = 1e-3


@dataclass(frozen=True, eq=False)
class Look:
    """What the clusters report at one model."""

    weights: Float64  # (q,)
    losses: Float64  # (C,)
    gradients: Float64  # (C, q), on all data
    variance: Float64  # (C,), of the gradient of one mini-batch of every member


@dataclass(frozen=True, eq=False)
class Constants:
    """What P2 needs to know about the losses; see `P2Problem`."""

    convexity: float
    convexity_from: str
    smoothness: float
    divergence: Float64
    dissimilarity: Float64
    variance: Float64
    initial_gap: float  # at the last model


def of_batches(sizes: Sequence[int], gradients: Float64) -> tuple[Float64, float]:
    """The gradient on all data, and the variance of a mini-batch's, from one pass at one model.

    ``gradients`` has a row per mini-batch. The last one may have fewer samples than the others,
    which are what a device trains on; then it has no part in the variance.
    """
    samples = np.asarray(sizes, dtype=np.float64)
    mean = np.asarray(samples / samples.sum() @ gradients)
    away = np.square(gradients - mean).sum(axis=1)
    return mean, float(away[samples == samples[0]].mean())


def follow(
    look: Callable[[Float64], Look], weight: Float64, start: Float64, rate: float, models: int
) -> list[Look]:
    """Look at so many models, each one step of the mean gradient after the one before."""
    looks, at = [], start
    for _ in range(models):
        looks.append(look(at))
        at = at - rate * (weight @ looks[-1].gradients)
    return looks


def measured(
    looks: Sequence[Look],
    weight: Float64,
    least_loss: float = 0.0,
    smallest_move: float = SMALLEST_MOVE,
) -> Constants:
    """The constants from what was seen at two or more models.

    eps_c, delta_c and the variance are the largest that were met. L is the largest curvature of any
    cluster in the directions in which the pilot moved. mu is the smallest ratio ||g||^2 / 2 gap,
    which is all that the bound uses of convexity, or the smallest curvature where that is smaller.
    ``least_loss`` is F*, or a number below it.
    """
    steps = np.diff([look.weights for look in looks], axis=0)
    gradients = np.stack([look.gradients for look in looks])  # (models, C, q)
    means = np.einsum("c,mcq->mq", weight, gradients)
    lengths = np.linalg.norm(means, axis=1)
    gaps = np.array([float(weight @ look.losses) for look in looks]) - least_loss
    if not (np.isfinite(lengths) & (lengths > 0) & np.isfinite(gaps) & (gaps > 0)).all():
        raise CamuError("the pilot diverged or met the optimum; give a smaller learning rate")
    curvature = curvatures(steps, np.diff(means, axis=0), smallest_move)
    of_clusters = [
        curvatures(steps, change, smallest_move)
        for change in np.diff(gradients, axis=0).transpose(1, 0, 2)
    ]
    least, ratio = float(curvature.min()), float((lengths**2 / (2 * gaps)).min())
    by_curvature = 0 < least < ratio
    aside = np.linalg.norm(gradients - means[:, None], axis=2) / lengths[:, None]
    whole = np.linalg.norm(gradients, axis=2) / lengths[:, None]
    return Constants(
        convexity=least if by_curvature else ratio,
        convexity_from="smallest curvature" if by_curvature else "smallest ||g||^2 / 2 gap",
        smoothness=float(max(np.abs(values).max() for values in (curvature, *of_clusters))),
        divergence=aside.max(axis=0),
        dissimilarity=whole.max(axis=0),
        variance=np.max([look.variance for look in looks], axis=0),
        initial_gap=float(gaps[-1]),
    )


def curvatures(steps: Float64, changes: Float64, smallest_move: float) -> Float64:
    """Eigenvalues of a Hessian in the space of these steps (k, q), from the gradients' changes."""
    left, sizes, right = np.linalg.svd(steps.T, full_matrices=False)
    kept = sizes > smallest_move * sizes[0]
    if not kept.any():
        raise CamuError("the pilot did not move; give a larger learning rate")
    inside = left[:, kept].T @ changes.T @ right[kept].T / sizes[kept]
    return np.asarray(np.linalg.eigvalsh((inside + inside.T) / 2))
