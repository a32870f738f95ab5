"""Theorem 1 and its corrected form: how far a federation stays from its optimum.

One global round moves the expected gap E[F(w) - F*] by a recursion gap' <= A gap + B: A is the
contraction, B what noise and heterogeneity put back. Two versions are here behind one interface:

* `Theorem1`: as printed in section III-C and Appendix I, with its learning-rate condition and
  Corollary 1. Its proof has gaps, and it can fail (``docs/theory.md`` shows where).
* `CorrectedBound`: a bound that holds for N_c full gradient steps per cluster, with local drift,
  unequal N_c, the factor L/2 and the dimension q accounted for. Derived in ``docs/theory.md``.

Both give problem P1 its denominator 1 - A as sum_c (descent_c N_c - penalty_c N_c^2). The
estimators at the end measure the constants from gradients alone, whatever computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from camu.arrays import Float64


class Recursion(NamedTuple):
    """One global round: E[gap after] <= contraction * E[gap before] + error."""

    contraction: float  # A
    error: float  # B


class Bound(Protocol):
    """What a convergence bound can say."""

    def recursion(self, local_updates: ArrayLike, noise: float) -> Recursion:
        """A and B of one global round; ``noise`` is the `noise_error` of its powers."""

    def p1_coefficients(self) -> tuple[Float64, Float64]:
        """(descent, penalty) per cluster: 1 - A >= sum_c (descent_c N_c - penalty_c N_c^2)."""


def noise_error(
    weight: ArrayLike,
    power_watts: ArrayLike,
    gain: ArrayLike,
    noise_watts: float,
    power_law: Literal["power", "amplitude"] = "power",
) -> float:
    """sum_c G_c^2 sigma^2 / (p_c^a ||h_c||^2): the variance of one coordinate of the aggregate."""
    power = np.asarray(power_watts, dtype=np.float64) ** (1 if power_law == "power" else 2)
    weights, gains = np.asarray(weight, dtype=np.float64), np.asarray(gain, dtype=np.float64)
    return float((weights**2 * noise_watts / (power * gains)).sum())


def bound_after(
    bound: Bound, local_updates: ArrayLike, noise: float, initial_gap: float, rounds: int
) -> float:
    """The bound on E[F(w^[T]) - F*] after T rounds: A^T gap_0 + GAP."""
    contraction = bound.recursion(local_updates, noise).contraction
    return contraction**rounds * initial_gap + gap(bound, local_updates, noise, rounds)


def gap(bound: Bound, local_updates: ArrayLike, noise: float, rounds: int) -> float:
    """GAP = (1 - A^T) / (1 - A) B at finite T; T * B where A = 1."""
    contraction, error = bound.recursion(local_updates, noise)
    if contraction == 1:
        return rounds * error
    return (1 - contraction**rounds) / (1 - contraction) * error


def gap_limit(bound: Bound, local_updates: ArrayLike, noise: float) -> float:
    """The limit of GAP for T to infinity, P1's objective up to a constant; infinite for A >= 1."""
    contraction, error = bound.recursion(local_updates, noise)
    return error / (1 - contraction) if contraction < 1 else float("inf")


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

    @property
    def _sums(self) -> tuple[Float64, Float64]:
        first = np.array([np.sum(members) for members in self.member_weight], dtype=np.float64)
        second = np.array([np.sum(np.square(m)) for m in self.member_weight], dtype=np.float64)
        return first, second

    def p1_coefficients(self) -> tuple[Float64, Float64]:
        """beta_c of A = 1 - sum_c beta_c N_c; a printed A has no penalty."""
        first, second = self._sums
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

    def learning_rate_limit(self) -> Float64:
        """The printed condition, per cluster: lambda must stay below it."""
        first, second = self._sums
        reach = self.delta * np.asarray(self.weight) * np.asarray(self.delta_c)
        return np.asarray(2 * first / (self.smoothness * reach * second))

    def corollary1(self) -> NDArray[np.bool_]:
        """Whether each cluster's local updates converge by the printed Corollary 1."""
        first, second = self._sums
        inner = self.smoothness * self.learning_rate * np.asarray(self.delta_c) * second
        return np.asarray((self.delta * np.asarray(self.weight) < 1) & (2 * first / inner > 1))


@dataclass(frozen=True, eq=False)
class CorrectedBound:
    """The bound that holds, for N_c full gradient steps in each cluster and lambda <= 2 / L.

    It assumes, at every global model w and with g the gradient of F = sum_c G_c F_c,

        ||grad F_c - g||   <= divergence_c ||g|| + offset_c
        ||grad F_c||^2     <= dissimilarity_c^2 ||g||^2 + offset_c^2

    A4 of the paper is the second line without an offset. F_c must be convex and L-smooth, F
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

    def _descent(self, updates: Float64) -> float:
        """D: the round moves F by at most -lambda D ||g||^2, offsets and noise apart."""
        side = updates - updates.min()  # common steps follow g exactly; only the rest can stray
        drift = updates * (updates - 1) * self.dissimilarity
        square = (updates * self.dissimilarity) ** 2
        half = self.learning_rate * self.smoothness / 2
        each = updates - side * self.divergence - half * (drift + square)
        return float((self.weight * each).sum())

    def recursion(self, local_updates: ArrayLike, noise: float) -> Recursion:
        """A, at least 0 and above 1 where the federation may diverge, and B.

        B holds L/2 q times the noise and what the offsets leave. With offsets, A and B share one
        free constant eta, which is chosen to make the limit of GAP smallest.
        """
        updates = np.asarray(local_updates, dtype=np.float64)
        rate, smooth = self.learning_rate, self.smoothness
        descent = self._descent(updates)
        side = updates - updates.min() + rate * smooth / 2 * updates * (updates - 1)
        pull = rate / 2 * float((self.weight * side * self.offset).sum()) ** 2
        error = smooth / 2 * self.parameters * noise
        error += smooth * rate**2 / 2 * float((self.weight * (updates * self.offset) ** 2).sum())
        if pull > 0:
            target = max(descent, 1e-3)  # any eta is true; a descent of zero has no best one
            eta = 2 * pull * target / (pull + np.sqrt(pull**2 + 2 * error * pull * target))
            descent, error = float(descent - eta / 2), float(error + pull / eta)
        # ||g||^2 is at least 2 mu gap, and at most 2 L gap where the round climbs.
        slope = self.strong_convexity if descent > 0 else smooth
        return Recursion(max(0.0, 1 - 2 * slope * rate * descent), error)

    def p1_coefficients(self) -> tuple[Float64, Float64]:
        """1 - A from below, one quadratic per cluster; the same as 1 - A when all N_c are 1."""
        half = self.learning_rate * self.smoothness / 2
        scale = 2 * self.strong_convexity * self.learning_rate * self.weight
        # For whole N, N - 1 <= N (N - 1) / 2 but at N = 1 and 2 they are equal.
        spread = self.divergence / 2 + half * self.dissimilarity
        return scale * (1 + spread), scale * (spread + half * self.dissimilarity**2)

    def learning_rate_limit(self, local_updates: ArrayLike) -> float:
        """The rate below which every round contracts (offsets apart); 0 when no rate does."""
        updates = np.asarray(local_updates, dtype=np.float64)
        side = updates - updates.min()
        gain = float((self.weight * (updates - side * self.divergence)).sum())
        drift = updates * (updates - 1) * self.dissimilarity
        loss = float((self.weight * (drift + (updates * self.dissimilarity) ** 2)).sum())
        return float(min(2 / self.smoothness, max(0.0, 2 * gain / (self.smoothness * loss))))


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
    return divergence, np.sqrt(2.0) * reach, np.sqrt(2.0) * rest


def aggregate(weight: ArrayLike, gradients: ArrayLike) -> Float64:
    """The weighted mean of gradients, one row each."""
    rows = np.asarray(gradients, dtype=np.float64)
    return np.asarray(np.asarray(weight, dtype=np.float64) @ rows)


def dissimilarity(weight: ArrayLike, gradients: ArrayLike) -> float:
    """A4's delta at one model: sqrt(sum_c G_c ||grad_c||^2) / ||sum_c G_c grad_c||, never below 1.

    With clusters' gradients it is the inter-cluster index delta, with members' gradients of one
    cluster the intra-cluster index delta_c. Infinite where the mean gradient vanishes.
    """
    weights, rows = np.asarray(weight, dtype=np.float64), np.asarray(gradients, dtype=np.float64)
    mean = float(np.sum(aggregate(weights, rows) ** 2))
    spread = float((weights * (rows**2).sum(axis=1)).sum())
    if mean == 0:
        return float("inf") if spread > 0 else 1.0
    return max(1.0, float(np.sqrt(spread / mean)))


def cluster_divergence(weight: ArrayLike, gradients: ArrayLike) -> tuple[Float64, Float64]:
    """(epsilon_c, delta_c) of the corrected bound at one model, without offset.

    ||grad_c - g|| / ||g|| and ||grad_c|| / ||g||; take the largest over the models of a run.
    """
    rows = np.asarray(gradients, dtype=np.float64)
    mean = aggregate(weight, rows)
    size = float(np.linalg.norm(mean))
    with np.errstate(divide="ignore", invalid="ignore"):
        aside = np.linalg.norm(rows - mean, axis=1) / size
        whole = np.linalg.norm(rows, axis=1) / size
    return np.nan_to_num(aside, nan=0.0, posinf=np.inf), np.nan_to_num(
        whole, nan=1.0, posinf=np.inf
    )


def hessian_product(
    gradient: Callable[[Float64], ArrayLike], weights: ArrayLike, step: float = 1e-5
) -> Callable[[Float64], Float64]:
    """v -> Hessian v at ``weights``, by central differences of a gradient function."""
    at = np.asarray(weights, dtype=np.float64)

    def product(vector: Float64) -> Float64:
        shift = step * (1 + float(np.linalg.norm(at))) / max(float(np.linalg.norm(vector)), 1e-300)
        ahead, behind = gradient(at + shift * vector), gradient(at - shift * vector)
        return np.asarray((np.asarray(ahead) - np.asarray(behind)) / (2 * shift), dtype=np.float64)

    return product


def smoothness(
    product: Callable[[Float64], ArrayLike],
    size: int,
    rng: np.random.Generator,
    iterations: int = 200,
    tolerance: float = 1e-6,
) -> float:
    """L at one model: the Hessian's largest eigenvalue in size, by power iteration.

    Power iteration approaches it from below, so take the largest over several models.
    """
    vector = rng.standard_normal(size)
    vector /= np.linalg.norm(vector)
    estimate = 0.0
    for _ in range(iterations):
        image = np.asarray(product(vector), dtype=np.float64)
        previous, estimate = estimate, float(np.linalg.norm(image))
        if estimate == 0 or abs(estimate - previous) <= tolerance * estimate:
            break
        vector = image / estimate
    return estimate


def strong_convexity(
    product: Callable[[Float64], ArrayLike],
    size: int,
    rng: np.random.Generator,
    largest: float,
    iterations: int = 1000,
    tolerance: float = 1e-9,
) -> float:
    """mu at one model: the smallest eigenvalue, by power iteration on L - Hessian."""

    def flipped(vector: Float64) -> Float64:
        return largest * vector - np.asarray(product(vector), dtype=np.float64)

    return largest - smoothness(flipped, size, rng, iterations, tolerance)
