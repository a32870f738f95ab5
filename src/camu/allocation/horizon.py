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
the frequencies. ``docs/theory.md`` derives the bound, ``docs/allocation.md`` describes the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from camu.allocation.horizon_file import PER_CLUSTER, TOP, check_range, read_horizon
from camu.arrays import Float64, Int64
from camu.errors import InputError
from camu.files import read_json


class Bend(NamedTuple):
    """The bound after T rounds and its derivatives, at a descent d = 1 - A and an error B."""

    gap: float  # the bound itself
    growth: float  # g = (1 - A^T) / (1 - A)
    slope: float  # - d gap / d d, divided by g
    curvature: float  # at least 0: of psi / g, the convex part of the problem


@dataclass(frozen=True, eq=False)
class HorizonProblem:
    """One instance of P2. Arrays have an entry per cluster, those of devices one per device.

    Attributes:
        weight: G_c, the aggregation weight; they add up to 1.
        divergence: eps_c, how far the gradient of a cluster points away from the global one.
        dissimilarity: delta_c, its length relative to the global one.
        variance: v_c, the variance of the gradient of one local update (squared norm).
        gain: ||h_c||^2 of the leader's uplink.
        bandwidth_hz: B_c.
        gather_seconds: time of one gather at the leader.
        gather_joules: energy of one gather.
        max_updates: the largest N_c.
        max_power_watts: the cap of each leader.
        cluster: the cluster of each device.
        cycles: CPU cycles of one local update of each device.
        capacitance: kappa of each device, so that its update takes kappa cycles f^2 joules.
        max_hz: the largest CPU frequency of each device.
        noise_watts: noise at the base station.
        payload_bits: size of an update.
        convexity: mu.
        smoothness: L.
        learning_rate: lambda, at most 2 / L.
        initial_gap: F(w^0) - F*.
        energy_joules: the budget of the whole run.
        seconds: the time of the whole run.
        max_rounds: the largest T.
        source: named in error messages.
        origin: where numbers come from, by key; shown, and otherwise without effect.
    """

    weight: Float64
    divergence: Float64
    dissimilarity: Float64
    variance: Float64
    gain: Float64
    bandwidth_hz: Float64
    gather_seconds: Float64
    gather_joules: Float64
    max_updates: Int64
    max_power_watts: Float64
    cluster: Int64
    cycles: Float64
    capacitance: Float64
    max_hz: Float64
    noise_watts: float
    payload_bits: float
    convexity: float
    smoothness: float
    learning_rate: float
    initial_gap: float
    energy_joules: float
    seconds: float
    max_rounds: int = 10_000
    source: str = "problem"
    origin: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the arrays and refuse every value that P2 gives no meaning."""
        size = np.asarray(self.weight).size
        for name in PER_CLUSTER:
            kind = np.int64 if name == "max_updates" else np.float64
            array: NDArray[Any] = np.array(np.broadcast_to(getattr(self, name), (size,)), kind)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name in ("cluster", "cycles", "capacitance", "max_hz"):
            kind = np.int64 if name == "cluster" else np.float64
            array = np.array(getattr(self, name), kind)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name in (*PER_CLUSTER, *TOP):
            check_range(self.source, name, getattr(self, name))
        self._check()

    def _check(self) -> None:
        """Refuse values that P2 gives no meaning."""
        source = self.source
        if self.size == 0 or np.bincount(self.cluster, minlength=self.size).min() == 0:
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

    @classmethod
    def from_json(cls, path: str | Path) -> HorizonProblem:
        """Read PROBLEM.json of kind P2."""
        document = read_json(path, "a problem as docs/allocation.md describes")
        return cls.from_dict(document, str(path))

    @classmethod
    def from_dict(cls, document: object, source: str = "problem") -> HorizonProblem:
        """Build the problem from the parsed document of PROBLEM.json."""
        return cls(**read_horizon(document, source), source=source)

    def to_dict(self) -> dict[str, Any]:
        """The document of PROBLEM.json; `from_dict` gives the same problem back."""
        columns = {name: getattr(self, name).tolist() for name in PER_CLUSTER}
        clusters = [{name: columns[name][c] for name in PER_CLUSTER} for c in range(self.size)]
        for entry in clusters:
            entry["devices"] = []
        for c, cycles, kappa, hz in zip(
            self.cluster.tolist(),
            self.cycles.tolist(),
            self.capacitance.tolist(),
            self.max_hz.tolist(),
            strict=True,
        ):
            device = {"cycles": cycles, "capacitance": kappa, "max_hz": hz}
            clusters[c]["devices"].append(device)
        top = {name: getattr(self, name) for name in TOP}
        origin = {"origin": dict(self.origin)} if self.origin else {}
        return {"kind": "P2", "clusters": clusters, **top, **origin}

    @property
    def size(self) -> int:
        """The number of clusters, C."""
        return int(self.weight.size)

    @cached_property
    def snr_per_watt(self) -> Float64:
        """x_c / p_c."""
        return self.gain / self.noise_watts

    @cached_property
    def air_scale(self) -> Float64:
        """Seconds on the air times ln(1 + x)."""
        return self.payload_bits * math.log(2) / self.bandwidth_hz

    @cached_property
    def base_joules(self) -> Float64:
        """The infimum of each leader's transmission energy, approached as its power goes to 0."""
        return self.air_scale / self.snr_per_watt

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
        air = self.air_scale / np.log1p(power * self.snr_per_watt)
        spent = compute + n * self.gather_joules + power * air
        return np.asarray(np.where(late, np.inf, spent).sum(axis=-1))

    def round_seconds(self, power_watts: ArrayLike, ready_seconds: ArrayLike) -> Float64:
        """Seconds of a round: all are ready, then the leaders send in turn."""
        power = np.asarray(power_watts, dtype=np.float64)
        air = self.air_scale / np.log1p(power * self.snr_per_watt)
        return np.asarray(np.asarray(ready_seconds) + air.sum(axis=-1))

    def cpu_hz(self, updates: ArrayLike, ready_seconds: float) -> Float64:
        """f_k of every device: the lowest frequency with which it is ready in time."""
        each = ready_seconds / np.asarray(updates, dtype=np.float64) - self.gather_seconds
        each = np.maximum(each, self.least_seconds)
        return np.asarray(np.minimum(self.cycles / each[self.cluster], self.max_hz))

    def bend(self, rounds: float, descent: float, error: float) -> Bend:
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
        return Bend(bound, growth, slope, max(0.0, bent))
