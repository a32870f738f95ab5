"""Problem P2 as data: rounds, updates, powers and CPU frequencies under two budgets.

P2 minimises the bound on the gap after T rounds, with the noise of the default uplink:

    minimise   A^T gap_0 + (1 - A^T) / (1 - A) B     over whole T >= 1, whole N_c, p_c and f_k
    subject to T * joules of a round <= energy_joules,  T * seconds of a round <= seconds
    with       A = 1 - 2 mu lambda D,   x_c = p_c gain_c / noise,   h = lambda L / 2,
               D = sum_c G_c [ N_c - (N_c - N_0) eps_c - h (N_c (N_c - 1) delta_c
                               + N_c^2 delta_c^2 (1 + G_c / x_c)) ],   N_0 = min_c N_c,
               B = (L lambda^2 / 2) sum_c G_c^2 N_c v_c (1 + 1 / x_c).

In a round all clusters are ready to send at the same time m, and their leaders then send in turn.
So the members of a cluster run as slowly as N_c updates and gathers before m allow; this decides
the frequencies. ``docs/theory-solvers.md`` derives the bound, ``docs/p2.md`` describes the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from camu.allocation.document import (
    CLUSTERS,
    DEVICES,
    FROM_ZERO,
    POSITIVE,
    AllocationProblem,
    ClusterFromZero,
    ClusterPositive,
    Positive,
    Rule,
    integer,
)
from camu.arrays import Float64, Int64, read_only_ints
from camu.errors import InputError

_TEXTS = Rule(
    "an object with texts",
    (dict,),
    lambda value: all(isinstance(text, str) for text in value.values()),
)


class GapDerivatives(NamedTuple):
    """The bound after T rounds and its derivatives, at a descent d = 1 - A and an error B."""

    gap: float  # the bound itself
    growth: float  # g = (1 - A^T) / (1 - A)
    slope: float  # - d gap / d d, divided by g
    curvature: float  # at least 0: of psi / g, the convex part of the problem


@dataclass(frozen=True, eq=False, kw_only=True)
class P2Problem(AllocationProblem):
    """One instance of P2. Arrays have an entry per cluster, those of devices one per device.

    `docs/p2.md` has all keys; `energy_joules` is the budget of the whole run.
    """

    kind: ClassVar = "P2"
    weight: ClusterPositive  # G_c; they add up to 1
    divergence: ClusterFromZero  # eps_c, how far a cluster's gradient points away from the global
    dissimilarity: ClusterFromZero  # delta_c, its length relative to the global one
    # v_c, the variance of the gradient of one local update (squared norm)
    variance: ClusterFromZero = field(default_factory=lambda: np.zeros(()))
    gather_seconds: ClusterFromZero  # of one gather at the leader
    gather_joules: ClusterFromZero
    max_updates: Annotated[Int64, integer(1, 100), CLUSTERS]  # the largest N_c
    cluster: Int64  # of each device
    cycles: Annotated[Float64, POSITIVE, DEVICES]  # of one local update
    capacitance: Annotated[Float64, FROM_ZERO, DEVICES]  # kappa: an update takes kappa cycles f^2 J
    max_hz: Annotated[Float64, POSITIVE, DEVICES]
    convexity: Positive  # mu
    smoothness: Positive  # L
    learning_rate: Positive  # lambda, at most 2 / L
    initial_gap: Positive  # F(w^0) - F*
    seconds: Positive  # of the whole run
    max_rounds: Annotated[int, integer(1, 100_000)] = 10_000
    # where numbers come from, by key; shown, and otherwise without effect
    origin: Annotated[Mapping[str, str], _TEXTS] = field(default_factory=dict)

    def _check(self) -> None:
        """Refuse values that do not fit each other."""
        source = self.source
        object.__setattr__(self, "cluster", read_only_ints(self.cluster))
        if np.bincount(self.cluster, minlength=self.size).min() == 0:
            raise InputError(
                f"{source}: every cluster needs at least one device (clusters[].devices)"
            )
        total = float(self.weight.sum())
        if not math.isclose(total, 1, abs_tol=1e-6):
            raise InputError(
                f"{source}: clusters[].weight add up to {total:.6g}; they must add up to 1"
            )
        if self.convexity > self.smoothness:
            raise InputError(f"{source}: convexity must not be larger than smoothness")
        if self.learning_rate > 2 / self.smoothness:
            raise InputError(
                f"{source}: learning_rate = {self.learning_rate:g} is above 2 / smoothness = "
                f"{2 / self.smoothness:g}, and the bound does not hold there"
            )
        if (most := self.most_descent()) > 1:
            raise InputError(
                f"{source}: the bound takes {most:.3g} of the gap in one round, more than all of "
                "it; give a smaller convexity, or dissimilarities of at least 1"
            )

    def most_descent(self) -> float:
        """No round descends more: every cluster's best number of updates, without noise."""
        counts = np.arange(1, int(self.max_updates.max()) + 1)[:, None]
        clean, _ = self.descent_terms(counts, counts)  # nothing is aside where all do as many
        clean = np.where(counts <= self.max_updates, clean, -np.inf)
        return float(clean.max(axis=0).sum())

    @cached_property
    def air_scale(self) -> Float64:
        """Seconds on the air times ln(1 + x)."""
        return self.payload_bits * math.log(2) / self.bandwidth_hz

    @cached_property
    def least_air(self) -> Float64:
        """1 / ln(1 + x) at full power."""
        return 1 / np.log1p(self.max_power_watts * self.snr_per_watt)

    @cached_property
    def cube_joules(self) -> Float64:
        """Joules of one update of a cluster if its members take one second for it.

        In t seconds it takes 1 / t^2 of that, each device at cycles / t hertz.
        """
        each = self.capacitance * self.cycles**3
        return np.asarray(np.bincount(self.cluster, each, self.size), dtype=np.float64)

    @cached_property
    def least_seconds(self) -> Float64:
        """Of one update at the members' full frequencies: the slowest decides."""
        least = np.zeros(self.size)
        np.maximum.at(least, self.cluster, self.cycles / self.max_hz)
        return least

    def descent_terms(self, updates: ArrayLike, common: ArrayLike) -> tuple[Float64, Float64]:
        """1 - A without noise, and what 1 / x_c takes from it, per cluster.

        ``common`` is N_0.
        """
        n = np.asarray(updates, dtype=np.float64)
        half = self.learning_rate * self.smoothness / 2
        scale = 2 * self.convexity * self.learning_rate * self.weight
        square = (n * self.dissimilarity) ** 2
        drift = n * (n - 1) * self.dissimilarity
        clean = n - (n - np.asarray(common)) * self.divergence - half * (drift + square)
        return scale * clean, scale * half * square * self.weight

    def error_terms(self, updates: ArrayLike) -> Float64:
        """The part of B per cluster that noise multiplies by 1 + 1 / x_c."""
        scale = self.smoothness * self.learning_rate**2 / 2
        return np.asarray(scale * self.weight**2 * np.asarray(updates) * self.variance)

    def recursion(self, updates: ArrayLike, power_watts: ArrayLike) -> tuple[Float64, Float64]:
        """1 - A and B of a round; batches (..., C) are fine."""
        n = np.asarray(updates, dtype=np.float64)
        noise = 1 / (np.asarray(power_watts, dtype=np.float64) * self.snr_per_watt)
        clean, square = self.descent_terms(n, n.min(axis=-1, keepdims=True))
        error = self.error_terms(n) * (1 + noise)
        return np.asarray((clean - square * noise).sum(axis=-1)), np.asarray(error.sum(axis=-1))

    def objective(self, rounds: ArrayLike, updates: ArrayLike, power_watts: ArrayLike) -> Float64:
        """The bound after T rounds; infinite where a round does not descend."""
        descent, error = self.recursion(updates, power_watts)
        good = (descent > 0) & (descent <= 1)
        d, t = np.where(good, descent, 0.5), np.asarray(rounds, dtype=np.float64)
        with np.errstate(divide="ignore"):
            left = np.exp(t * np.log1p(-d))
        return np.where(good, left * self.initial_gap + (1 - left) / d * error, np.inf)

    def round_joules(
        self, updates: ArrayLike, power_watts: ArrayLike, ready_seconds: ArrayLike
    ) -> Float64:
        """Joules of a round that computes until m seconds; infinite where m is too early."""
        n, power = np.asarray(updates, dtype=np.float64), np.asarray(power_watts, dtype=np.float64)
        m = np.asarray(ready_seconds, dtype=np.float64)[..., None]
        each = m / n - self.gather_seconds
        late = each < self.least_seconds * (1 - 1e-12)
        compute = n * self.cube_joules / np.where(late, 1.0, each) ** 2
        spent = compute + n * self.gather_joules + self.transmit_joules(power)
        return np.asarray(np.where(late, np.inf, spent).sum(axis=-1))

    def round_seconds(self, power_watts: ArrayLike, ready_seconds: ArrayLike) -> Float64:
        """Seconds of a round: all are ready, then the leaders send in turn."""
        air = self.transmit_seconds(power_watts).sum(axis=-1)
        return np.asarray(np.asarray(ready_seconds) + air)

    def cpu_hz(self, updates: ArrayLike, ready_seconds: float) -> Float64:
        """f_k of every device: the lowest frequency with which it is ready in time."""
        each = ready_seconds / np.asarray(updates, dtype=np.float64) - self.gather_seconds
        each = np.maximum(each, self.least_seconds)
        return np.asarray(np.minimum(self.cycles / each[self.cluster], self.max_hz))

    def gap_derivatives(self, rounds: float, descent: float, error: float) -> GapDerivatives:
        """The bound at one point with its derivatives, without cancellation."""
        t = float(rounds)
        # Where rounds climb, any smooth continuation leads back; the powers of A must stay finite.
        d = min(max(descent, -30 / t), 1 - 1e-15)
        log, gap_0 = math.log1p(-d), self.initial_gap
        tail, left = math.exp((t - 1) * log), math.exp(t * log)
        growth = -math.expm1(t * log) / d if d else t
        if abs(t * d) < 1e-5:  # the closed forms lose their digits; these are their first terms
            down, second = t * (t - 1) / 2, t * (t - 1) * (t - 2) / 3
        else:
            down = (growth - t * tail) / d
            second = (2 * down - t * (t - 1) * tail / (1 - d)) / d
        slope = (gap_0 * t * tail + error * down) / growth
        bound = gap_0 * left + growth * error
        bent = (gap_0 - bound) * (2 * down**2 / growth - second) / growth**2
        return GapDerivatives(bound, growth, slope, max(0.0, bent))
