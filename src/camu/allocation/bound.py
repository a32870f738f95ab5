"""Theorem 1 and its corrected form: how far a federation stays from its optimum.

One global round moves the expected gap E[F(w) - F*] by a recursion gap' <= A gap + B: A is the
contraction, B what noise and heterogeneity put back. Two versions are here behind one interface:

* `Theorem1`: as printed in section III-C and Appendix I. Its proof has gaps, and it can fail
  (``docs/theory.md`` shows where).
* `CorrectedBound`: a bound that holds for N_c full gradient steps per cluster, with local drift,
  unequal N_c, the factor L/2 and the dimension q accounted for (``docs/theory-bound.md``).
  `camu.allocation.smooth_bound` has its sibling without convexity.

Both give problem P1 its denominator 1 - A as sum_c (descent_c N_c - penalty_c N_c^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from camu.arrays import Float64


class Recursion(NamedTuple):
    """One global round: E[gap after] <= contraction * E[gap before] + error."""

    contraction: float  # A
    error: float  # B


class Bound(Protocol):
    """What a convergence bound can say."""

    def recursion(self, local_updates: ArrayLike, noise: float) -> Recursion:
        """A and B of one global round; ``noise`` is the variance of the aggregate's coordinates."""

    def p1_coefficients(self) -> tuple[Float64, Float64]:
        """(descent, penalty) per cluster: 1 - A >= sum_c (descent_c N_c - penalty_c N_c^2)."""


def bound_after(
    bound: Bound, local_updates: ArrayLike, noise: float, initial_gap: float, rounds: int
) -> float:
    """The bound on E[F(w^[T]) - F*] after T rounds: A^T gap_0 + (1 - A^T) / (1 - A) B."""
    contraction, error = bound.recursion(local_updates, noise)
    left = contraction**rounds
    growth = rounds if contraction == 1 else (1 - left) / (1 - contraction)
    return left * initial_gap + growth * error


@dataclass(frozen=True, eq=False)
class Theorem1:
    """Theorem 1 as printed.

    ``delta`` is the inter-cluster index of A4, ``delta_c`` the intra-cluster one per cluster.
    """

    weight: Float64  # G_c
    member_weight: Sequence[Float64]  # G_{k,c}, one array per cluster
    delta: float
    delta_c: Float64
    strong_convexity: float  # mu
    smoothness: float  # L
    learning_rate: float  # lambda

    def p1_coefficients(self) -> tuple[Float64, Float64]:
        """beta_c of A = 1 - sum_c beta_c N_c; a printed A has no penalty."""
        first = np.array([np.sum(members) for members in self.member_weight], dtype=np.float64)
        second = np.array([np.sum(np.square(m)) for m in self.member_weight], dtype=np.float64)
        reach = self.delta * np.asarray(self.weight) * np.asarray(self.delta_c)
        rate, mu = self.learning_rate, self.strong_convexity
        descent = (
            2 * mu * rate * reach * first - mu * self.smoothness * (rate * reach) ** 2 * second
        )
        return descent, np.zeros_like(descent)

    def recursion(self, local_updates: ArrayLike, noise: float) -> Recursion:
        """A as printed, and the noise as printed: without L/2 and without the dimension q."""
        descent, _ = self.p1_coefficients()
        return Recursion(float(1 - (descent * np.asarray(local_updates)).sum()), noise)


class Round(NamedTuple):
    """One round: E[F after] <= F - lambda D ||g||^2 + lambda Z ||g|| + error, with g = grad F."""

    descent: float  # D
    pull: float  # Z
    error: float

    def without_pull(self, rate: float) -> tuple[float, float]:
        """D and the error once Z ||g|| <= eta/2 ||g||^2 + Z^2 / (2 eta), for the best eta."""
        if self.pull == 0:
            return self.descent, self.error
        pull = rate / 2 * self.pull**2
        target = max(self.descent, 1e-3)  # any eta is true; a descent of zero has no best one
        eta = 2 * pull * target / (pull + np.sqrt(pull**2 + 2 * self.error * pull * target))
        return float(self.descent - eta / 2), float(self.error + pull / eta)


def round_of(mean: float, stray: float, offset: float, rate: float, smooth: float) -> Round:
    """The round of a step -lambda (mean g + r) with ||r|| <= stray ||g|| + offset.

    It holds for every L-smooth F (``docs/theory-bound.md``, "one round"); with r = 0 it is the
    lemma of gradient descent.
    """
    half = rate * smooth / 2
    descent = min(length - half * length**2 for length in (mean - stray, mean + stray))
    pull = (abs(1 - 2 * half * mean) + 2 * half * stray) * offset
    return Round(descent, pull, half * rate * offset**2)


@dataclass(frozen=True, eq=False)
class CorrectedBound:
    """The bound that holds, for N_c full gradient steps in each cluster and lambda <= 2 / L.

    It assumes, at every global model w and with g the gradient of F = sum_c G_c F_c,

        ||grad F_c - g||   <= divergence_c ||g|| + offset_c
        ||grad F_c||       <= dissimilarity_c ||g|| + offset_c

    A4 of the paper gives the second line without an offset. F_c must be convex and L-smooth, F
    mu-strongly convex.
    """

    weight: Float64  # G_c, summing to one
    divergence: Float64  # epsilon_c: how far a cluster pulls aside
    dissimilarity: Float64  # delta_c: how hard it pulls
    offset: Float64  # zeta_c: what is left of both at the optimum of F
    strong_convexity: float  # mu
    smoothness: float  # L
    learning_rate: float  # lambda
    parameters: int = 1  # q, the dimension that noise fills

    def recursion(self, local_updates: ArrayLike, noise: float) -> Recursion:
        """A, at least 0 and above 1 where the federation may diverge, and B.

        Steps that differ from a common number m can stray; any m gives a true bound, and the one
        with the smallest limit of the gap is taken.
        """
        updates = np.asarray(local_updates, dtype=np.float64)
        found = [self._about(updates, common, noise) for common in np.unique(updates)]
        return min(found, key=_limit)

    def _about(self, updates: Float64, common: float, noise: float) -> Recursion:
        """A and B with the steps counted from a common number."""
        rate, smooth = self.learning_rate, self.smoothness
        side = np.abs(updates - common)
        drift = rate * smooth / 2 * updates * (updates - 1)
        stray = self.weight @ (side * self.divergence + drift * self.dissimilarity)
        offset = self.weight @ ((side + drift) * self.offset)
        step = round_of(float(self.weight @ updates), float(stray), float(offset), rate, smooth)
        step = step._replace(error=step.error + smooth / 2 * self.parameters * noise)
        descent, error = step.without_pull(rate)
        # ||g||^2 is at least 2 mu gap, and at most 2 L gap where the round climbs.
        slope = self.strong_convexity if descent > 0 else smooth
        return Recursion(max(0.0, 1 - 2 * slope * rate * descent), error)

    def p1_coefficients(self) -> tuple[Float64, Float64]:
        """1 - A from below, one quadratic per cluster; the same as 1 - A when all N_c are 1."""
        half = self.learning_rate * self.smoothness / 2
        scale = 2 * self.strong_convexity * self.learning_rate * self.weight
        # For whole N, N - 1 <= N (N - 1) / 2 but at N = 1 and 2 they are equal.
        spread = self.divergence / 2 + half * self.dissimilarity
        return scale * (1 + spread), scale * (spread + half)


def _limit(recursion: Recursion) -> tuple[bool, float, float]:
    """What orders recursions: the limit of the gap where there is one, then the contraction."""
    contraction, error = recursion
    limit = error / (1 - contraction) if contraction < 1 else 0.0
    return contraction >= 1, limit, contraction


def convex_constants(
    cluster_smoothness: ArrayLike,
    difference_smoothness: ArrayLike,
    strong_convexity: float,
    gradient_norm_at_optimum: ArrayLike,
) -> tuple[Float64, Float64, Float64]:
    """(divergence, dissimilarity, offset) that hold at every w, not only where one looked.

    ``difference_smoothness`` bounds ||hess F_c - hess F||; the last argument is ||grad F_c(w*)||.
    """
    rest = np.asarray(gradient_norm_at_optimum, dtype=np.float64)
    divergence = np.asarray(difference_smoothness, dtype=np.float64) / strong_convexity
    reach = np.asarray(cluster_smoothness, dtype=np.float64) / strong_convexity
    return divergence, np.minimum(reach, 1 + divergence), rest
