"""Problem P1 as data: how much power and how many local updates each cluster gets from one budget.

The problem of section IV of the paper, with every reading as a field:

    minimise   sum_c G_c^2 noise / (p_c^a gain_c)  /  sum_c (beta_c N_c - penalty_c N_c^2)
    subject to sum_c [ (circuit + p_c / efficiency) payload / (B_c log2(1 + p_c gain_c / noise))
                       + compute_c N_c ] <= energy,
               0 < p_c <= max_power_c,  sum_c p_c^a <= max_total_power,
               N_c = 1 + S_c n_c,  n_c in {0 ... n_max,c}

with a = 1 (``power``: p is a power in watts everywhere) or a = 2 (``amplitude``: as printed). The
denominator is 1 - A: with no penalty it is Theorem 1's, with a penalty the corrected bound's (see
``camu.allocation.bound``). A `Problem` can be printed, saved and solved alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from camu.allocation.document import (
    CLUSTERS,
    YES_NO,
    AllocationProblem,
    ClusterFromZero,
    ClusterPositive,
    Positive,
    Rule,
    integer,
    number,
)
from camu.arrays import Float64, Int64
from camu.errors import CamuError, InputError

_POWER_LAW = Rule('"power" or "amplitude"', (str,), lambda value: value in ("power", "amplitude"))
# At the infimum of the energy every power is zero and the objective infinite, so a budget must
# lie above it; one part in 10^9 is the smallest margin at which doubles still resolve the powers.
BUDGET_MARGIN = 1e-9
MOST_ITEMS = 5_000_000  # of updates that differ in what they add


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(AllocationProblem):
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
        circuit_watts: power of a leader that sends, apart from its amplifier.
        amplifier_efficiency: share of an amplifier's power that is radiated.
        source: named in error messages.
    """

    kind: ClassVar = "P1"
    common: ClassVar = ("max_power_watts",)
    descent: Annotated[Float64, number("number", least=-1e30), CLUSTERS]
    compute_joules: ClusterFromZero
    multi_update: Annotated[NDArray[np.bool_], YES_NO, CLUSTERS]
    max_extra_updates: Annotated[Int64, integer(0, 1_000_000), CLUSTERS]
    penalty: ClusterFromZero = field(default_factory=lambda: np.zeros(()))
    compute_seconds: ClusterPositive | None = None
    max_total_power_watts: Positive | None = None
    power_law: Annotated[Literal["power", "amplitude"], _POWER_LAW] = "power"
    first_update_free: Annotated[bool, YES_NO] = False

    def _check(self) -> None:
        """Refuse weights of 0 and numbers that are fine alone and beyond any radio together."""
        if not self.weight.any():
            raise InputError(f"{self.source}: every clusters[].weight is 0; one must be positive")
        if self.circuit_watts > 0 and self.max_total_power_watts is not None:
            raise InputError(
                f"{self.source}: max_total_power_watts is known only without circuit_watts, with "
                "which a leader has a cheapest power; leave one of them out"
            )
        with np.errstate(over="ignore", under="ignore"):
            snr, base = self.max_power_watts * self.snr_per_watt, self.base_joules
        strange = ~((snr > 1e-30) & (snr < 1e30) & (base > 1e-60) & (base < 1e60))
        if strange.any():
            index = int(np.argmax(strange))
            raise InputError(
                f"{self.source}: clusters[{index}].gain gives a signal-to-noise ratio of "
                f"{snr[index]:.3g} at max_power_watts; gain, noise_watts, bandwidth_hz and "
                "payload_bits must give one between 1e-30 and 1e30"
            )

    @property
    def exponent(self) -> int:
        """The exponent a of the power in the noise term."""
        return 1 if self.power_law == "power" else 2

    @cached_property
    def extra_limit(self) -> Int64:
        """The largest n_c that still means something: 0 where S_c = 0."""
        return np.where(self.multi_update, self.max_extra_updates, 0).astype(np.int64)

    @cached_property
    def useful_extra(self) -> Int64:
        """How many extra updates of each cluster still raise 1 - A."""
        # The j-th extra update adds beta - penalty (2 j + 1).
        room = np.full(self.size, np.inf)
        curved = self.penalty > 0
        room[curved] = np.ceil((self.descent[curved] / self.penalty[curved] - 1) / 2) - 1
        room[self.descent <= 0] = 0
        return np.asarray(np.clip(room, 0, self.extra_limit), dtype=np.int64)

    @cached_property
    def updates(self) -> Updates:
        """The extra updates that can be bought, best first."""
        return Updates(self)

    @cached_property
    def spare_joules(self) -> float:
        """The budget above its infimum: the cheapest powers, one update in every cluster."""
        base = self.least_joules.sum() + self.update_joules(np.zeros(self.size)).sum()
        return float(self.energy_joules - base)

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
        elif (spent := self.spent_joules(power, extra)) > self.energy_joules * (1 + tolerance):
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
        limit = np.where(self.extra_limit > 0, self.extra_limit, np.inf)
        used = {
            "energy_joules": self.spent_joules(power_watts, extra_updates) / self.energy_joules,
            "max_power_watts": (power_watts / self.max_power_watts).max(),
            "max_total_power_watts": (power_watts**self.exponent).sum()
            / (self.max_total_power_watts or np.inf),
            "max_extra_updates": (extra_updates / limit).max(),
        }
        return tuple(name for name, share in used.items() if share >= 1 - tolerance)

    @cached_property
    def smallest_budget_joules(self) -> float:
        """The smallest budget that the solvers accept.

        The energy's infimum (the cheapest powers, the cheapest updates that keep 1 - A positive)
        plus one part in 10^9, because without circuit power the infimum itself is not attained.
        """
        updates = self.update_joules(self.cheapest_updates())
        return float(self.least_joules.sum() + updates.sum()) * (1 + BUDGET_MARGIN)

    def cheapest_updates(self) -> Int64:
        """The extra updates that make 1 - A positive for the fewest joules; usually none."""
        value = self.updates.sum_value
        position = int(np.searchsorted(value, 0.0, side="right")) - 1
        if position < 0:
            return np.zeros(self.size, dtype=np.int64)
        if position == self.updates.gain.size:
            raise InputError(
                f"{self.source}: sum_c (descent N_c - penalty N_c^2) is not positive for any "
                "allowed updates, so no allocation converges; give larger clusters[].descent"
            )
        needed = int(-value[position] / self.updates.gain[position]) + 1
        most = int(self.updates.count[position])
        return self.updates.counts(self.size, position, min(needed, most))

    def require_feasible(self) -> None:
        """Raise the error that a user sees when the budget is too small."""
        if self.energy_joules < self.smallest_budget_joules:
            raise CamuError(
                f"{self.source}: a budget of {self.energy_joules:.10g} J is too small: "
                f"the smallest that would do is {round_up(self.smallest_budget_joules)} J "
                "(energy_joules)"
            )


class Updates:
    """The extra updates that can be bought, best descent per joule first.

    Each extra update of a cluster costs the same joules and adds less and less to 1 - A, so the
    best use of fractional updates is a knapsack in this order; at most one cluster ends with a
    fraction. Between whole updates the value is the straight line, which for whole numbers is exact
    and for the corrected, curved denominator is the tightest concave cover.

    Item k offers ``count[k]`` updates of cluster ``cluster[k]``, each adding ``gain[k]`` for
    ``cost[k]`` joules. The sums run over the items before k, so they have one entry more.
    """

    def __init__(self, problem: Problem) -> None:
        useful, penalty = problem.useful_extra, problem.penalty  # others are left out
        plain = np.flatnonzero((penalty == 0) & (useful > 0))
        curved = np.flatnonzero((penalty > 0) & (useful > 0))
        if int(useful[curved].sum()) > MOST_ITEMS:
            raise InputError(
                f"{problem.source}: clusters[].max_extra_updates allow more than {MOST_ITEMS} "
                "updates under a penalty; lower them"
            )
        repeated = np.repeat(curved, useful[curved])
        starts = np.repeat(np.cumsum(useful[curved]) - useful[curved], useful[curved])
        position = np.arange(repeated.size) - starts
        cluster = np.concatenate([plain, repeated]).astype(np.int64)
        first = problem.descent - 3 * penalty
        gain = np.concatenate(
            [problem.descent[plain], first[repeated] - 2 * penalty[repeated] * position]
        )
        count = np.concatenate([useful[plain], np.ones(repeated.size, dtype=np.int64)])
        cost = problem.compute_joules[cluster]
        with np.errstate(divide="ignore"):
            rate = gain / cost  # descent per joule
        order = np.argsort(-rate, kind="stable")
        self.cluster, self.rate = cluster[order], rate[order]
        self.gain, self.cost, self.count = gain[order], cost[order], count[order]
        self.sum_cost = np.concatenate([[0.0], np.cumsum(self.cost * self.count)])
        # The denominator when the items before k are bought.
        start = float(problem.denominator(np.zeros(problem.size)))
        self.sum_value = start + np.concatenate([[0.0], np.cumsum(self.gain * self.count)])

    def position(self, joules: float) -> int:
        """How many items are bought in full for so many joules."""
        return int(np.searchsorted(self.sum_cost, joules, side="right")) - 1

    def value(self, joules: float, position: int) -> float:
        """The denominator for so many joules, the last of them spent on item ``position``."""
        if position >= self.gain.size:
            return float(self.sum_value[-1])
        rate = float(self.rate[position])
        extra = joules - float(self.sum_cost[position])
        return float(self.sum_value[position]) + (rate * extra if extra else 0.0)

    def counts(self, size: int, position: int, partial: int = 0) -> Int64:
        """Extra updates per cluster: the items before ``position`` and a part of that one."""
        extra = np.zeros(size, dtype=np.int64)
        np.add.at(extra, self.cluster[:position], self.count[:position])
        if partial:
            extra[self.cluster[position]] += partial
        return extra


def round_up(value: float, digits: int = 10) -> str:
    """The number in so many digits, never smaller than it is, so that it can be typed back in."""
    exact = Decimal(value)
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(step, rounding=ROUND_CEILING)):.{digits}g}"
