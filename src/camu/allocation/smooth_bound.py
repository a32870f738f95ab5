"""A bound for smooth losses that need not be convex, with mini-batches and steps between gathers.

Unit c gathers N_c times in a round, and its members take H_c mini-batch steps before each gather:
H_c = 1 is CAMU, N_c = 1 is local SGD in clusters, both above 1 is HierFAVG. With g the gradient of
F = sum_c G_c F_c at the round's start and v_c that of F_c, the bound assumes at every model

    ||v_c - g||                          <= divergence_c ||g|| + offset_c
    ||v_c||                              <= dissimilarity_c ||g|| + offset_c
    sum_k G_k,c ||grad F_k - v_c||^2     <= (inner_dissimilarity_c ||g|| + inner_offset_c)^2

and that every F_k is L-smooth and the batch gradients have the variance given.
``docs/theory-smooth.md`` proves it. For steps of one kind and no noise it is the
lemma of gradient descent, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from camu.allocation.bound import Round, round_of
from camu.arrays import Float64


class Drift(NamedTuple):
    """The root of sum_c G_c sum_s E ||w_k,s - w||^2 is at most slope ||g|| + offset."""

    slope: float
    offset: float


@dataclass(frozen=True, eq=False)
class SmoothBound:
    """What one round does to F, and how small the gradient gets in T rounds."""

    weight: Float64  # G_c, summing to one
    divergence: Float64  # epsilon_c
    dissimilarity: Float64  # delta_c
    offset: Float64  # zeta_c
    inner_dissimilarity: Float64  # iota_c, among the members of a unit
    inner_offset: Float64  # kappa_c
    variance: Float64  # sum_k G_k,c v_k: of a batch gradient, its squared norm
    mean_variance: Float64  # sum_k G_k,c^2 v_k: of the members' weighted mean
    smoothness: float  # L
    learning_rate: float  # lambda
    parameters: int = 1  # q, the dimension that noise fills

    def round(self, gathers: ArrayLike, steps: ArrayLike, noise: float) -> Round:
        """One round; ``noise`` is the variance of the aggregate's coordinates.

        Its descent is minus infinity where lambda is too large for these steps.
        """
        n, h = np.asarray(gathers, dtype=np.float64), np.asarray(steps, dtype=np.float64)
        total = n * h
        drift = self._drift(n, h)
        if drift is None:
            return Round(-np.inf, 0.0, np.inf)
        found = [self._about(total, common, drift, noise) for common in np.unique(total)]
        return max(found, key=lambda step: step.without_pull(self.learning_rate)[0])

    def _drift(self, n: Float64, h: Float64) -> Drift | None:
        """How far models are from the round's start, or None where the bound says nothing."""
        reach = (self.learning_rate * self.smoothness) ** 2
        total = n * h
        room = 1 - 2 * reach * (total * (total - 1) + h * (h - 1))
        if (room <= 0).any():
            return None
        outer = total * (total - 1) * (2 * total - 1) / 3  # twice the sum of s^2
        inner = n * h * (h - 1) * (2 * h - 1) / 3  # the same within blocks
        batches = self.mean_variance * total * (total - 1) / 2
        batches = batches + self.variance * n * h * (h - 1) / 2
        scale = 2 * self.learning_rate**2 * self.weight / room

        def norm(squares: Float64) -> float:
            return float(np.sqrt((scale * squares).sum()))

        # Minkowski: the root of sum_c (a_c ||g|| + b_c)^2 is at most a ||g|| + b.
        slope = norm(outer * self.dissimilarity**2 + inner * self.inner_dissimilarity**2)
        rest = norm(outer * self.offset**2 + inner * self.inner_offset**2 + batches)
        return Drift(slope, rest)

    def _about(self, total: Float64, common: float, drift: Drift, noise: float) -> Round:
        """The round with the steps counted from a common number."""
        rate, smooth = self.learning_rate, self.smoothness
        mean = float(self.weight @ total)
        side = np.abs(total - common)
        wandered = smooth * np.sqrt(mean)  # a model off by x has a gradient off by at most L x
        slope, rest = wandered * drift.slope, wandered * drift.offset
        step = round_of(
            mean,
            float(self.weight @ (side * self.divergence)) + slope,
            float(self.weight @ (side * self.offset)) + rest,
            rate,
            smooth,
        )
        batches = float(self.weight**2 @ (total * self.mean_variance))
        # Batch noise of earlier steps moves later gradients: the two may point the same way.
        both = rate * smooth * np.sqrt(batches)
        error = smooth * rate**2 / 2 * batches + rate * both * rest
        error += smooth / 2 * self.parameters * noise
        return Round(step.descent, step.pull + both * slope, step.error + error)

    def mean_square_gradient(
        self, gathers: ArrayLike, steps: ArrayLike, noise: float, initial_gap: float, rounds: int
    ) -> float:
        """A bound on the mean of E ||g||^2 over the starts of T rounds; no convexity is needed."""
        step = self.round(gathers, steps, noise)
        descent, error = step.without_pull(self.learning_rate)
        if descent <= 0:
            return np.inf
        return (initial_gap / rounds + error) / (self.learning_rate * descent)
