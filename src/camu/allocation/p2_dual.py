"""The Lagrangian of P2 over every choice of whole updates, and the bounds that it proves.

At a price of a joule, of a second and a value of descent, each cluster's power is the root of one
equation. For a given N_0 = min_c N_c and a given ready time m, each cluster takes its best number
of updates and its best power. Over m the sum is searched by branch and bound: each cluster's part
is concave in m, so tangents bound it on an interval, and they are highest at its ends.

`least_gap` turns the value of that Lagrangian into a lower bound on the gap for every number of
rounds at once. It rests on an identity: the bound after T rounds is gap_0 - g(d) (gap_0 d - B)
with g(d) = (1 - (1 - d)^T) / d, and 1 / g is convex in d. So a gap below phi means
gap_0 d - B - (gap_0 - phi) / g(d) > 0, where all but the last term is separable by cluster.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from camu.allocation.p2 import P2Problem
from camu.arrays import Float64, Int64

_BLOCK = 2_000_000  # numbers in one array of the search over m
_PARTS = 4  # into which an interval is split
_LEVELS = 30
_SMALL = 1e-3  # below, series replace closed forms that lose digits
_GOLDEN = (math.sqrt(5) - 1) / 2
_MARGIN = 1e-10  # rounding errors of the sums in a bound stay far below this share


class Prices(NamedTuple):
    """What descent earns, and what a joule and a second of one round cost, in units of B."""

    descent: float  # rho
    joule: float
    second: float


class RoundCost(NamedTuple):
    """One way to run a round, and what it needs."""

    descent: float
    error: float
    joules: float
    seconds: float
    updates: Int64


class Choices:
    """What every number of updates from N_0 on means for every cluster; arrays are (n, C)."""

    def __init__(self, problem: P2Problem, common: int) -> None:
        self.problem, self.common = problem, common  # N_0
        counts = np.arange(common, int(problem.max_updates.max()) + 1, dtype=np.float64)[:, None]
        self.allowed = counts <= problem.max_updates
        self.clean, self.square = problem.descent_terms(counts, common)
        self.variance = problem.error_terms(counts)
        self.gather = counts * problem.gather_joules
        self.cube = counts**3 * problem.cube_joules
        self.offset = counts * problem.gather_seconds
        self.earliest = counts * (problem.least_seconds + problem.gather_seconds)

    def _radio(self, prices: Prices) -> tuple[Float64, Float64, Float64, Float64, Float64]:
        """The Lagrangian without computing, and descent, error, joules and seconds, per choice."""
        problem = self.problem
        worth = prices.descent * self.square + self.variance
        cap = np.broadcast_to(problem.max_power_watts * problem.snr_per_watt, worth.shape)
        base, air, circuit = problem.base_joules, problem.air_scale, problem.circuit_watts
        x = best_ratio(
            worth, prices.joule * base, (prices.second + prices.joule * circuit) * air, cap
        )
        descent, error = self.clean - self.square / x, self.variance * (1 + 1 / x)
        y = 1 / np.log1p(x)
        seconds = air * y
        joules = self.gather + base * x * y + circuit * seconds
        value = prices.descent * descent - error - prices.joule * joules - prices.second * seconds
        return np.where(self.allowed, value, -np.inf), descent, error, joules, seconds

    def best(self, prices: Prices, tolerance: float) -> tuple[float, RoundCost] | None:
        """The largest rho d - B - joule E - second tau over all updates, powers and ready times.

        It is an upper bound within the tolerance, and comes with the round that has it; None if no
        round fits.
        """
        fixed, descent, error, joules, seconds = self._radio(prices)
        if self.earliest[0].max() >= self.problem.seconds:
            return None
        m, value = self._best_ready(prices, fixed, tolerance)
        ready = self.earliest <= m
        computing = self.cube / np.where(ready, m - self.offset, 1.0) ** 2
        here = np.where(ready, fixed - prices.joule * computing, -np.inf)
        choice = here.argmax(axis=0)
        take = (choice, np.arange(choice.size))
        return value, RoundCost(
            float(descent[take].sum()),
            float(error[take].sum()),
            float((joules + computing)[take].sum()),
            m + float(seconds[take].sum()),
            self.common + choice.astype(np.int64),
        )

    def _best_ready(self, prices: Prices, fixed: Float64, tolerance: float) -> tuple[float, float]:
        """The best m, and an upper bound on the Lagrangian at every m."""
        left, right = self._intervals(8)
        best, best_m, dropped = -np.inf, float(left[0]), -np.inf
        for _ in range(_LEVELS):
            upper, at_middle = self._bounds(prices, fixed, left, right)
            winner = int(at_middle.argmax())
            if at_middle[winner] > best:
                best, best_m = float(at_middle[winner]), float(left[winner] + right[winner]) / 2
            keep = upper > best + tolerance
            dropped = max(dropped, float(upper[~keep].max(initial=-np.inf)))
            if not keep.any():
                return best_m, max(best, dropped)
            cuts = np.linspace(left[keep], right[keep], _PARTS + 1)
            left, right = cuts[:-1].ravel(), cuts[1:].ravel()
        return best_m, max(best, dropped, float(upper[keep].max()))

    def _intervals(self, count: int) -> tuple[Float64, Float64]:
        """The beginnings and ends of intervals of m from the earliest to the latest one."""
        edges = np.geomspace(float(self.earliest[0].max()), self.problem.seconds, count + 1)
        return edges[:-1], edges[1:]

    def _bounds(
        self, prices: Prices, fixed: Float64, left: Float64, right: Float64
    ) -> tuple[Float64, Float64]:
        """Upper bounds on the Lagrangian in intervals of m, and its values in their middles."""
        upper, value, block = [], [], max(1, _BLOCK // fixed.size)
        for start in range(0, left.size, block):
            low, high = left[start : start + block], right[start : start + block]
            middle = (low + high) / 2
            inside, at_low, at_high = self._tangents(prices, fixed, low, high)
            first = at_low.max(axis=1).sum(axis=1) - prices.second * low
            second = at_high.max(axis=1).sum(axis=1) - prices.second * high
            upper.append(np.maximum(first, second))
            ready = np.where(self.earliest <= middle[:, None, None], inside, -np.inf)
            value.append(ready.max(axis=1).sum(axis=1) - prices.second * middle)
        return np.concatenate(upper), np.concatenate(value)

    def _tangents(
        self, prices: Prices, fixed: Float64, left: Float64, right: Float64
    ) -> tuple[Float64, Float64, Float64]:
        """The value of each choice in the middle of an interval, and its tangent at both ends."""
        low, high = left[:, None, None], right[:, None, None]
        # No choice is possible before it is ready; its tangent begins there.
        at = np.maximum((low + high) / 2, self.earliest)
        room = at - self.offset
        pull = prices.joule * self.cube / room**2
        slope = 2 * pull / room
        value = np.where(self.earliest <= high, fixed - pull, -np.inf)
        return value, value + slope * (low - at), value + slope * (high - at)

    def bound_if_fixed(self, prices: Prices, parts: int) -> Float64:
        """Upper bounds on the value of all rounds in which one cluster has one number of updates.

        The entry (i, c) fixes N_c = N_0 + i.
        """
        fixed, *_ = self._radio(prices)
        left, right = self._intervals(parts)
        _, at_left, at_right = self._tangents(prices, fixed, left, right)
        best = np.full(fixed.shape, -np.inf)
        for ends, m in ((at_left, left), (at_right, right)):
            top = ends.max(axis=1)
            total = top.sum(axis=1) - prices.second * m
            best = np.maximum(best, (total[:, None, None] - top[:, None] + ends).max(axis=0))
        return best

    def bounds_of(self, prices: Prices, updates: Int64) -> Float64:
        """The same for given updates, (V, C): the best over powers and ready times, (V,)."""
        fixed, *_ = self._radio(prices)
        rows = (updates - self.common, np.arange(updates.shape[1]))
        cube, offset = self.cube[rows], self.offset[rows]
        m = self.earliest[rows].max(axis=1)
        if prices.joule > 0:
            latest = max(self.problem.seconds, float(m.max()))
            m = best_ready(cube, offset, prices.second / prices.joule, m, latest)
        computing = (cube / np.maximum(m[:, None] - offset, 1e-300) ** 2).sum(axis=1)
        value = fixed[rows].sum(axis=1) - prices.joule * computing - prices.second * m
        return np.asarray(value)


def best_ratio(worth: Float64, joule: Float64, second: Float64, cap: Float64) -> Float64:
    """The x <= cap that minimises worth / x + joule x / ln(1+x) + second / ln(1+x).

    Newton's method in ln x on joule ((1+x) ln(1+x) - x) = worth (1+x) ln(1+x)^2 / x^2 + second,
    whose left side grows from 0 and whose right side falls.
    """
    with np.errstate(divide="ignore"):
        top = np.log(cap)
        guess = np.log(2 * (worth + second) / joule) / 2
    u = np.clip(guess, -80.0, top)
    for _ in range(60):
        x = np.exp(u)
        log = np.log1p(x)
        safe = np.where(x < _SMALL, 1.0, x)
        series = x**2 * (1 / 2 - x * (1 / 6 - x * (1 / 12 - x * (1 / 20 - x / 30))))
        left = joule * np.where(x < _SMALL, series, (1 + safe) * np.log1p(safe) - safe)
        square = (1 + x) * (log / x) ** 2
        right = worth * square + second
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = joule * x * log / left
            fall = worth * ((log**2 + 2 * log) / x - 2 * square) / right
            step = (np.log(right) - np.log(left)) / (rise - fall)
        step = np.nan_to_num(np.clip(step, -3.0, 3.0), nan=3.0)  # a free joule: full power
        moved = np.clip(u + step, -80.0, top)
        distance = float(np.abs(moved - u).max())
        u = moved
        if distance < 1e-8:  # convergence is quadratic
            break
    return np.exp(u)


def best_ready(
    cube: Float64, offset: Float64, ratio: float, earliest: Float64, latest: float
) -> Float64:
    """The m that minimises sum_c cube_c / (m - offset_c)^2 + ratio m, between its limits.

    Rows of ``cube`` and ``offset`` are separate problems. (sum 2 cube / (m - offset)^3)^(-1/3) is
    nearly a straight line in m, so Newton's method on it needs a handful of steps.
    """
    m = np.minimum(earliest, latest)
    if ratio <= 0:
        return np.full_like(m, latest)
    target = ratio ** (-1 / 3)
    tiny = 1e-300
    for _ in range(60):
        room = np.maximum(m[:, None] - offset, tiny)
        pull = (2 * cube / room**3).sum(axis=1)
        steep = (6 * cube / room**4).sum(axis=1)
        line = np.maximum(pull, tiny) ** (-1 / 3)
        slope = line * steep / np.maximum(3 * pull, tiny)
        step = np.where(pull > 0, (target - line) / np.maximum(slope, tiny), 0.0)
        moved = np.clip(m + step, earliest, latest)
        distance = float(np.abs(moved - m).max())
        m = moved
        if distance <= 1e-12 * float(np.abs(m).max()):
            break
    return m


def least_gap(
    problem: P2Problem, rounds: Float64, prices: Prices, value: Float64, most: float
) -> Float64:
    """A lower bound on the gap after each number of rounds, for all points of a Lagrangian.

    ``value`` is the largest rho d - B - joule E - second tau over those points, one for each
    number of rounds or broadcast to them; ``most`` is the largest d that any point has.
    """
    budget = prices.joule * problem.energy_joules + prices.second * problem.seconds
    room = value + budget / rounds

    def gap(d: Float64) -> Float64:
        log = np.log1p(-np.minimum(d, 1 - 1e-15)) * rounds
        left = np.exp(log)
        return problem.initial_gap * left - np.expm1(log) / d * (prices.descent * d - room)

    low, high = np.full(room.shape, 1e-12 * most), np.full(room.shape, most)
    first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_first, at_second = gap(first), gap(second)
    best = np.minimum(np.minimum(gap(low), gap(high)), np.minimum(at_first, at_second))
    for _ in range(36):
        lower = at_first <= at_second
        high, low = np.where(lower, second, high), np.where(lower, low, first)
        other = np.where(lower, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_other = gap(other)
        first, second = np.where(lower, other, second), np.where(lower, first, other)
        at_first, at_second = (
            np.where(lower, at_other, at_second),
            np.where(lower, at_first, at_other),
        )
        best = np.minimum(best, at_other)
    return np.asarray(best * (1 - _MARGIN) - _MARGIN * problem.initial_gap * 1e-4)
