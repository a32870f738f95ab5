"""P1 solved exactly: the global optimum of the relaxation, whole updates, and a certificate.

The error is convex in the time on the air and the denominator concave in the updates, so their
ratio is quasi-convex and one number describes the optimum: the price of a joule. At a low price
the leaders burn the budget on power, at a high one the clusters get it for updates; the optimum is
where a joule helps both alike. The relaxation searches that price; then at most one update count is
fractional and is rounded, or the whole counts are found by branch and bound. The Lagrangian at the
relaxation's prices is a lower bound for every feasible point, whole or not.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from camu.allocation.answer import Allocation
from camu.allocation.p1 import Problem
from camu.allocation.p1_branch import Incumbent, Tangent, branch_and_bound
from camu.allocation.p1_powers import Powers, Transmit
from camu.arrays import Float64, Int64
from camu.errors import CamuError

BRANCH_UP_TO = 64  # clusters: up to these, whole counts are searched by branch and bound
BRANCH_STATES = 20_000  # at most; where they do not suffice, the counts are rounded
# Rounding errors of the sums in the certificate stay far below this share.
CERTIFICATE_MARGIN = 1e-11


class Relaxation(NamedTuple):
    """The optimum with fractional updates, and the lower bound that its prices prove."""

    powers: Powers
    update_joules: float  # spent on extra updates
    objective: float
    lower_bound: float


def solve_exact(problem: Problem) -> Allocation:
    """The certified optimum of P1.

    Up to 64 clusters branch and bound proves the whole counts to 1e-9, unless it takes too many
    states. Otherwise the one fractional update count is rounded and the powers are optimised again.
    """
    began = time.perf_counter()
    problem.require_feasible()
    search = _Search(problem)
    relaxation = search.relaxation()
    incumbent = search.rounded(relaxation)
    lower, proven = relaxation.lower_bound, False
    if problem.size <= BRANCH_UP_TO:
        tangent, most = Tangent.of(search.transmit, relaxation.powers), BRANCH_STATES
        incumbent, proven = branch_and_bound(problem, search.transmit, tangent, incumbent, most)
        if proven:
            lower = max(lower, incumbent.objective * (1 - 2e-9))
    power = _within_budget(problem, search.transmit.power_watts(incumbent.powers), incumbent.extra)
    return Allocation.of(
        problem,
        "exact",
        power,
        incumbent.extra,
        lower_bound=lower,
        seconds=time.perf_counter() - began,
        shadow_price=incumbent.powers.price / float(problem.denominator(incumbent.extra)),
        details={
            "integer": "branch" if proven else "round",
            "relaxation_objective": relaxation.objective,
            "relaxation_lower_bound": relaxation.lower_bound,
        },
    )


class _Search:
    """Bisection and secant on the logarithm of the price of a joule.

    The sign of `_tilt` says where the optimum lies: negative means that a joule moved from power
    to updates still helps, so the price must rise. It jumps where the best updates change from one
    item to the next, so the search first isolates a break between items or a single item.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.available = problem, problem.spare_joules
        self.transmit, self.updates = Transmit(problem), problem.updates

    def relaxation(self) -> Relaxation:
        """The global optimum when updates may be fractional, with its certificate."""
        free, total = self.transmit.free, float(self.updates.sum_cost[-1])
        fits = free.joules + total <= self.available
        return self._certified(*((free, total) if fits else self._best_price()))

    def _best_price(self) -> tuple[Powers, float]:
        """The powers at the best price, and the joules left for updates."""
        low, high = self._bracket()
        turn = 0
        while True:
            left, right = self._spare(low[1]), self._spare(high[1])
            first = int(np.searchsorted(self.updates.sum_cost, left, side="right"))
            last = int(np.searchsorted(self.updates.sum_cost, right, side="left"))
            if first >= last:
                return self._inside_item(low[1], high[1], first - 1)
            if turn >= 100:  # the bracket is one double wide and the items in it cost nothing
                return high[1], right
            if self.updates.sum_cost[first] == self.updates.sum_cost[last - 1]:
                return self._at_break(last - 1, low[1], high[1])
            middle = self._between(low, high, turn)
            powers = self.transmit.at_price(middle, high[1])
            tilt = self._tilt(powers)
            low, high = ((tilt, powers), high) if tilt < 0 else (low, (tilt, powers))
            turn += 1

    def _spare(self, powers: Powers) -> float:
        return self.available - powers.joules

    def _tilt(self, powers: Powers, item: int | None = None, joules: float | None = None) -> float:
        """ln(price * value / (error * rate)); its sign is that of the slope along the budget.

        The rate is the one of the item, by default of that on which the last joule is spent.
        """
        joules = self._spare(powers) if joules is None else joules
        if item is None:
            item = self.updates.position(joules) if joules >= 0 else -1
        if item >= self.updates.gain.size:
            return math.inf
        value = self.updates.value(joules, item) if item >= 0 else 0.0
        if value <= 0:
            return -math.inf
        rate = float(self.updates.rate[item])
        return powers.log_price + math.log(value / powers.error) - math.log(rate)

    def _bracket(self) -> tuple[tuple[float, Powers], tuple[float, Powers]]:
        powers = self.transmit.for_joules(self.available / 2)
        if powers.log_price == -math.inf:  # power is capped: any finite price is a start
            powers = self.transmit.at_price(self.transmit.first_guess(powers.joules))
        near, step = (self._tilt(powers), powers), 1.0
        rising = near[0] < 0
        while True:
            move = step if rising else -step
            powers = self.transmit.at_price(near[1].log_price + move, near[1])
            far = (self._tilt(powers), powers)
            if (far[0] < 0) != rising:
                return (near, far) if rising else (far, near)
            near, step = far, 2 * step

    def _between(self, low: tuple[float, Powers], high: tuple[float, Powers], turn: int) -> float:
        """The next price: alternately by the secant and by halving."""
        a, b = low[1].log_price, high[1].log_price
        if turn % 2 or not (math.isfinite(low[0]) and math.isfinite(high[0])):
            return (a + b) / 2
        share = min(0.99, max(0.01, low[0] / (low[0] - high[0])))
        return a + share * (b - a)

    def _at_break(self, item: int, low: Powers, high: Powers) -> tuple[Powers, float]:
        """The optimum when it is where this item is about to begin, or in a neighbouring item."""
        joules = float(self.updates.sum_cost[item])
        powers = self.transmit.for_joules(self.available - joules, high)
        if self._tilt(powers, item - 1, joules) > 0:
            return self._inside_item(low, powers, item - 1)
        if self._tilt(powers, item, joules) < 0:
            return self._inside_item(powers, high, item)
        return powers, joules

    def _inside_item(self, low: Powers, high: Powers, item: int) -> tuple[Powers, float]:
        """The optimum within one item, where the tilt is smooth: a guarded secant."""
        a, b = low.log_price, high.log_price
        tilt_a, tilt_b, powers = self._tilt(low, item), self._tilt(high, item), high
        side = 0
        for _ in range(200):
            if b - a <= 1e-13 * max(1.0, abs(a)):
                break
            share = tilt_a / (tilt_a - tilt_b) if math.isfinite(tilt_a) else 0.5
            middle = a + (share if 0 < share < 1 else 0.5) * (b - a)
            powers = self.transmit.at_price(middle, powers)
            tilt = self._tilt(powers, item)
            if abs(tilt) < 1e-13:
                break
            if tilt < 0:
                a, tilt_a = middle, tilt
                tilt_b, side = (tilt_b / 2 if side < 0 else tilt_b), -1
            else:
                b, tilt_b = middle, tilt
                tilt_a, side = (tilt_a / 2 if side > 0 else tilt_a), 1
        ends = self.updates.sum_cost[item : item + 2]
        return powers, float(np.clip(self._spare(powers), ends[0], ends[1]))

    def _certified(self, powers: Powers, joules: float) -> Relaxation:
        """Attach the Lagrangian's lower bound to a solution of the relaxation."""
        updates = self.updates
        objective = powers.error / updates.value(joules, updates.position(joules))
        tangent = Tangent.of(self.transmit, powers)
        cost, value = updates.sum_cost, updates.sum_value
        # The bound is a ratio of straight lines between the breaks, smallest at one of them. Where
        # the denominator starts below zero, only values count that could win even if all energy
        # went to power; they begin inside an item.
        if value[0] <= 0:
            cut = self.transmit.for_joules(self.available, powers).error / objective
            kept = value > cut
            cost = np.append(np.interp(cut, value, cost), cost[kept])
            value = np.append(cut, value[kept])
        lower = min(objective, float(((tangent.start + tangent.price * cost) / value).min()))
        return Relaxation(powers, joules, objective, max(0.0, lower) * (1 - CERTIFICATE_MARGIN))

    def rounded(self, relaxation: Relaxation) -> Incumbent:
        """The better of both roundings of the fractional count, with powers of its own."""
        updates, problem, joules = self.updates, self.problem, relaxation.update_joules
        position = updates.position(joules)
        options = [updates.counts(problem.size, position)]
        if position < updates.gain.size and joules > updates.sum_cost[position]:
            left = joules - float(updates.sum_cost[position])
            units = int(left / float(updates.cost[position]))
            for partial in (units, units + 1):
                if 0 < partial <= updates.count[position]:
                    options.append(updates.counts(problem.size, position, partial))
        if updates.sum_value[0] <= 0:
            options.append(problem.cheapest_updates())
        found = []
        for extra in options:
            left = self.available - float((problem.compute_joules * extra).sum())
            value = float(problem.denominator(extra))
            # The infimum of the powers' energy is not attained: a budget at it buys nothing.
            if left > 1e-15 * problem.energy_joules and value > 0:
                powers = self.transmit.for_joules(left, relaxation.powers)
                found.append(Incumbent(extra, powers, powers.error / value))
        if not found:
            raise CamuError(f"{problem.source}: no whole update counts fit the budget")
        return min(found, key=lambda incumbent: incumbent.objective)


def _within_budget(problem: Problem, power_watts: Float64, extra: Int64) -> Float64:
    """The powers, scaled down until rounding errors no longer exceed the budget."""
    shrink, limit = 1e-14, problem.energy_joules
    power_watts = np.minimum(power_watts, problem.max_power_watts)
    power, total = power_watts, problem.max_total_power_watts
    while float(problem.spent_joules(power, extra)) > limit or (
        total is not None and float((power**problem.exponent).sum()) > total
    ):
        power = np.maximum(power_watts * (1 - shrink), problem.cheapest_watts)
        shrink *= 2
    return power
