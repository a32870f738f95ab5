"""The constants of P2, measured: a pilot looks at losses and gradients at a few models.

The pilot follows the mean gradient. At every model the clusters report the gradient and the loss of
all their data, and how much the gradients of mini-batches scatter. Ratios of gradients give eps_c
and delta_c, changes of gradients from model to model give L and mu. All of it describes the loss
where the pilot looked; on a quadratic with no more dimensions than steps it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from camu.allocation.bound import aggregate, cluster_divergence
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
    """What P2 needs to know about the losses; see `HorizonProblem`."""

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
    look: Callable[[Float64], Look],
    weight: Float64,
    start: Float64,
    learning_rate: float,
    models: int,
) -> list[Look]:
    """Look at so many models, each one step of the mean gradient after the one before."""
    looks, at = [], start
    for _ in range(models):
        looks.append(look(at))
        at = at - learning_rate * aggregate(weight, looks[-1].gradients)
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
    means = np.stack([aggregate(weight, each) for each in gradients])
    gaps = np.array([float(weight @ look.losses) for look in looks]) - least_loss
    if not (np.isfinite(means).all() and np.isfinite(gaps).all() and (gaps > 0).all()):
        raise CamuError("the pilot diverged or met the optimum; give a smaller learning rate")
    curvature = curvatures(steps, np.diff(means, axis=0), smallest_move)
    largest = [
        float(np.abs(curvatures(steps, change, smallest_move)).max())
        for change in np.diff(gradients, axis=0).transpose(1, 0, 2)
    ]
    ratio = float((np.square(means).sum(axis=1) / (2 * gaps)).min())
    least, by_curvature = float(curvature.min()), 0 < float(curvature.min()) < ratio
    ratios = [cluster_divergence(weight, each) for each in gradients]
    return Constants(
        convexity=least if by_curvature else ratio,
        convexity_from="smallest curvature" if by_curvature else "smallest ||g||^2 / 2 gap",
        smoothness=max(float(np.abs(curvature).max()), *largest),
        divergence=np.max([aside for aside, _ in ratios], axis=0),
        dissimilarity=np.max([whole for _, whole in ratios], axis=0),
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
