"""Problem P1 as data: how much power and how many local updates each cluster gets from one budget.

The problem of section IV of the paper, with every reading as a field:

    minimise   sum_c G_c^2 noise / (p_c^a gain_c)  /  sum_c (beta_c N_c - penalty_c N_c^2)
    subject to sum_c [ p_c payload / (B_c log2(1 + p_c gain_c / noise)) + compute_c N_c ] <= energy,
               0 < p_c <= max_power_c,  sum_c p_c^a <= max_total_power,
               N_c = 1 + S_c n_c,  n_c in {0 ... n_max,c}

with a = 1 (``power``: p is a power in watts everywhere) or a = 2 (``amplitude``: as printed). The
denominator is 1 - A: with no penalty it is Theorem 1's, with a penalty the corrected bound's (see
``camu.allocation.bound``). A `Problem` can be printed, saved and solved alone.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from camu.allocation.problem_file import (
    MAX_EXTRA,
    RANGES,
    ClusterEntry,
    ProblemDocument,
    accepted,
    check_numbers,
    read_document,
    shown,
)
from camu.arrays import Float64, Int64
from camu.errors import CamuError, InputError
from camu.files import read_json

PowerLaw = Literal["power", "amplitude"]

# At the infimum of the energy every power is zero and the objective infinite, so a budget must
# lie above it; one part in 10^9 is the smallest margin at which doubles still resolve the powers.
BUDGET_MARGIN = 1e-9


@dataclass(frozen=True, eq=False)
class Problem:
    """One instance of P1. Arrays have one entry per cluster; methods accept batches (..., C).

    Attributes:
        weight: G_c, the aggregation weight.
        gain: ||h_c||^2 of the leader's uplink.
        descent: beta_c, the share of 1 - A that one local update adds.
        compute_joules: energy of one local update of the whole cluster.
        bandwidth_hz: B_c.
        multi_update: S_c, whether the cluster may update more than once.
        max_extra_updates: n_max,c.
        noise_watts: noise at the base station.
        payload_bits: size of an update.
        energy_joules: E_total, the budget of one round.
        max_power_watts: the cap of each leader; one number holds for all.
        max_total_power_watts: a cap on the sum over c of p_c^a.
        power_law: the exponent a: 1 for `power`, 2 for `amplitude`.
        first_update_free: whether energy counts n_c, as printed, in place of N_c.
        penalty: factor of N_c^2 in the bound; 0 is Theorem 1.
        compute_seconds: time of one local update; only the latency solver needs it.
        source: named in error messages.
    """

    weight: Float64
    gain: Float64
    descent: Float64
    compute_joules: Float64
    bandwidth_hz: Float64
    multi_update: NDArray[np.bool_]
    max_extra_updates: Int64
    noise_watts: float
    payload_bits: float
    energy_joules: float
    max_power_watts: Float64
    max_total_power_watts: float | None = None
    power_law: PowerLaw = "power"
    first_update_free: bool = False
    penalty: Float64 = field(default_factory=lambda: np.zeros(1))
    compute_seconds: Float64 | None = None
    source: str = "problem"

    def __post_init__(self) -> None:
        """Freeze the arrays and refuse every value that P1 gives no meaning."""
        size = np.asarray(self.weight).size
        for name in ClusterEntry.model_fields:
            value = getattr(self, name)
            if value is None:
                continue
            dtype = {"multi_update": np.bool_, "max_extra_updates": np.int64}.get(name, np.float64)
            array: NDArray[Any] = np.array(value, dtype=dtype)
            if name in ("penalty", "max_power_watts") and array.size == 1:
                array = np.full(size, array.item())
            if array.shape != (size,):
                raise InputError(
                    f"{self.source}: {name} has shape {array.shape}, but there are {size} weights; "
                    "give one number per cluster"
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        _check_values(self)

    @classmethod
    def from_json(cls, path: str | Path) -> Problem:
        """Read PROBLEM.json; errors name the file, the key and the values that are accepted."""
        return cls.from_dict(
            read_json(path, "a problem as docs/allocation.md describes"), str(path)
        )

    @classmethod
    def from_dict(cls, document: object, source: str = "problem") -> Problem:
        """Build the problem from the parsed document of PROBLEM.json."""
        return cls(**read_document(document, source), source=source)

    def to_dict(self) -> dict[str, Any]:
        """The document of PROBLEM.json; `from_dict` gives the same problem back."""
        names = [n for n in ClusterEntry.model_fields if getattr(self, n) is not None]
        if not self.penalty.any():
            names.remove("penalty")
        top = {
            name: getattr(self, name) for name in ProblemDocument.model_fields if name != "clusters"
        }
        cap = top.pop("max_power_watts")
        if (cap == cap[0]).all():
            names.remove("max_power_watts")
            top["max_power_watts"] = float(cap[0])
        columns = {name: getattr(self, name).tolist() for name in names}
        return {
            "clusters": [{name: columns[name][c] for name in names} for c in range(self.size)],
            **top,
        }

    @property
    def size(self) -> int:
        """The number of clusters, C."""
        return int(self.weight.size)

    @property
    def exponent(self) -> int:
        """The exponent a of the power in the noise term."""
        return 1 if self.power_law == "power" else 2

    @cached_property
    def extra_limit(self) -> Int64:
        """The largest n_c that still means something: 0 where S_c = 0."""
        return np.where(self.multi_update, self.max_extra_updates, 0).astype(np.int64)

    @cached_property
    def snr_per_watt(self) -> Float64:
        """gamma_c / p_c."""
        return self.gain / self.noise_watts

    @cached_property
    def base_joules(self) -> Float64:
        """The infimum of each leader's transmission energy, approached as its power goes to 0."""
        return self.payload_bits * math.log(2) / (self.bandwidth_hz * self.snr_per_watt)

    def error(self, power_watts: ArrayLike) -> Float64:
        """The noise term sum_c G_c^2 noise / (p_c^a gain_c)."""
        power = np.asarray(power_watts, dtype=np.float64)
        terms = self.weight**2 / (power**self.exponent * self.snr_per_watt)
        return np.asarray(terms.sum(axis=-1))

    def denominator(self, extra_updates: ArrayLike) -> Float64:
        """1 - A, that is sum_c (beta_c N_c - penalty_c N_c^2)."""
        updates = 1.0 + np.asarray(extra_updates, dtype=np.float64)
        return np.asarray((self.descent * updates - self.penalty * updates**2).sum(axis=-1))

    def objective(self, power_watts: ArrayLike, extra_updates: ArrayLike) -> Float64:
        """GAP in the limit of many rounds; infinite where the denominator is not positive."""
        below = self.denominator(extra_updates)
        safe = np.where(below > 0, below, 1.0)
        return np.where(below > 0, self.error(power_watts) / safe, np.inf)

    def transmit_seconds(self, power_watts: ArrayLike) -> Float64:
        """Each leader's time on the air at the Shannon rate."""
        power = np.asarray(power_watts, dtype=np.float64)
        nats = np.log1p(power * self.snr_per_watt)
        return np.asarray(self.payload_bits * math.log(2) / (self.bandwidth_hz * nats))

    def transmit_joules(self, power_watts: ArrayLike) -> Float64:
        """Each leader's transmission energy, p_c times its time on the air."""
        return np.asarray(power_watts, dtype=np.float64) * self.transmit_seconds(power_watts)

    def update_joules(self, extra_updates: ArrayLike) -> Float64:
        """Each cluster's computing energy for its N_c local updates."""
        counted = np.asarray(extra_updates, dtype=np.float64) + (not self.first_update_free)
        return np.asarray(self.compute_joules * counted)

    def spent_joules(self, power_watts: ArrayLike, extra_updates: ArrayLike) -> Float64:
        """The left-hand side of the energy constraint."""
        each = self.transmit_joules(power_watts) + self.update_joules(extra_updates)
        return np.asarray(each.sum(axis=-1))

    def violations(
        self, power_watts: ArrayLike, extra_updates: ArrayLike, tolerance: float = 1e-9
    ) -> list[str]:
        """One sentence per constraint that a point breaks by more than a share."""
        power, extra = np.asarray(power_watts, dtype=np.float64), np.asarray(extra_updates)
        found = []
        if not (power > 0).all():
            found.append("a power is not positive")
        elif (spent := float(self.spent_joules(power, extra))) > self.energy_joules * (
            1 + tolerance
        ):
            found.append(f"energy {spent:.6g} J exceeds {self.energy_joules:.6g} J")
        above = np.flatnonzero(power > self.max_power_watts * (1 + tolerance))
        if above.size:
            c = int(above[0])
            found.append(
                f"the power of cluster {c}, {power[c]:.6g} W, exceeds its "
                f"{self.max_power_watts[c]:.6g} W"
            )
        total = self.max_total_power_watts
        if total is not None and (power**self.exponent).sum() > total * (1 + tolerance):
            found.append(f"the powers' total exceeds {total:.6g}")
        if (extra < 0).any() or (extra > self.extra_limit).any() or (extra % 1 != 0).any():
            found.append("an extra update count is outside its range or no integer")
        if not self.denominator(extra) > 0:
            found.append("the denominator 1 - A is not positive")
        return found

    def binding(
        self, power_watts: Float64, extra_updates: Int64, tolerance: float = 1e-6
    ) -> tuple[str, ...]:
        """The keys of the constraints that a feasible point meets with equality."""
        spent, names = float(self.spent_joules(power_watts, extra_updates)), []
        if spent >= self.energy_joules * (1 - tolerance):
            names.append("energy_joules")
        if (power_watts >= self.max_power_watts * (1 - tolerance)).any():
            names.append("max_power_watts")
        total = self.max_total_power_watts
        if total is not None and (power_watts**self.exponent).sum() >= total * (1 - tolerance):
            names.append("max_total_power_watts")
        if ((extra_updates == self.extra_limit) & (self.extra_limit > 0)).any():
            names.append("max_extra_updates")
        return tuple(names)

    @cached_property
    def smallest_budget_joules(self) -> float:
        """The smallest budget that the solvers accept.

        The energy's infimum (all powers near zero, the cheapest updates that keep 1 - A positive)
        plus one part in 10^9, because the infimum itself is not attained.
        """
        infimum = float(self.base_joules.sum() + self.update_joules(cheapest_updates(self)).sum())
        return infimum * (1 + BUDGET_MARGIN)

    def require_feasible(self) -> None:
        """Raise the error that a user sees when the budget is too small."""
        if self.energy_joules < self.smallest_budget_joules:
            raise CamuError(
                f"{self.source}: a budget of {self.energy_joules:.10g} J is too small: "
                f"the smallest that would do is {round_up(self.smallest_budget_joules)} J "
                "(energy_joules)"
            )


def cheapest_updates(problem: Problem) -> Int64:
    """The fewest joules' worth of extra updates that make 1 - A positive; usually none at all.

    Only when the first updates together do harm must extra ones be bought; then the best descent
    per joule is bought first, one update at a time.
    """
    extra = np.zeros(problem.size, dtype=np.int64)
    total = float(problem.denominator(extra))
    queue: list[tuple[float, int]] = []

    def offer(c: int) -> None:
        if extra[c] < problem.extra_limit[c] and (gain := step(c)) > 0:
            heapq.heappush(queue, (float(problem.compute_joules[c]) / gain, c))

    def step(c: int) -> float:
        return float(problem.descent[c] - problem.penalty[c] * (2 * extra[c] + 3))

    if total <= 0:
        for c in range(problem.size):
            offer(c)
    while total <= 0:
        if not queue:
            raise InputError(
                f"{problem.source}: sum_c (descent N_c - penalty N_c^2) is not positive for any "
                "allowed updates, so no allocation converges; give larger clusters[].descent"
            )
        _, c = heapq.heappop(queue)
        total += step(c)
        extra[c] += 1
        offer(c)
    return extra


def round_up(value: float, digits: int = 10) -> str:
    """The number in so many digits, never smaller than it is, so that it can be typed back in."""
    exact = Decimal(value)
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(step, rounding=ROUND_CEILING)):.{digits}g}"


def _check_values(problem: Problem) -> None:
    source = problem.source
    if problem.size == 0:
        raise InputError(f"{source}: clusters must be a list with at least one cluster")
    if problem.power_law not in ("power", "amplitude"):
        said = f"{shown(problem.power_law)}; {accepted('power_law')}"
        raise InputError(f"{source}: power_law is {said}")
    for name in RANGES:
        value = getattr(problem, name)
        if value is not None:
            place = f"clusters[{{}}].{name}" if name in ClusterEntry.model_fields else name
            check_numbers(value, name, place, source)
    extra = problem.max_extra_updates
    if ((extra < 0) | (extra > MAX_EXTRA)).any():
        index = int(np.argmax((extra < 0) | (extra > MAX_EXTRA)))
        place = f"clusters[{index}].max_extra_updates"
        raise InputError(f"{source}: {place} is {extra[index]}; {accepted('max_extra_updates')}")
    if not problem.weight.any():
        raise InputError(f"{source}: every clusters[].weight is 0; at least one must be positive")
    _check_scale(problem)


def _check_scale(problem: Problem) -> None:
    """Refuse numbers that are fine alone and beyond any radio together."""
    with np.errstate(over="ignore", under="ignore"):
        snr, base = problem.max_power_watts * problem.snr_per_watt, problem.base_joules
    strange = ~((snr > 1e-30) & (snr < 1e30) & (base > 1e-60) & (base < 1e60))
    if strange.any():
        index = int(np.argmax(strange))
        raise InputError(
            f"{problem.source}: clusters[{index}].gain gives a signal-to-noise ratio of "
            f"{snr[index]:.3g} at max_power_watts; gain, noise_watts, bandwidth_hz and "
            "payload_bits must give one between 1e-30 and 1e30"
        )
