"""The Lagrangian of P2 over every choice of whole updates, and the bounds that it proves.

For a given N_0 = min_c N_c, given prices and a given ready time m, P2 separates: each cluster takes
its best number of updates and its best power. Over m the sum is searched by branch and bound: each
cluster's worth is concave in m, so tangents bound it on an interval, and they are highest at its
ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from camu.allocation.horizon import HorizonProblem
from camu.allocation.horizon_prices import Prices, best_ratio, best_ready
from camu.arrays import Float64, Int64

_BLOCK = 2_000_000  # numbers in one array of the search over m
_PARTS = 4  # into which an interval is split
_LEVELS = 30


class Column(NamedTuple):
    """One way to run a round, and what it needs."""

    descent: float
    error: float
    joules: float
    seconds: float
    updates: Int64


class Worth(NamedTuple):
    """The Lagrangian at its best."""

    value: float  # an upper bound, within the tolerance asked for
    column: Column


@dataclass(frozen=True, eq=False)
class Menu:
    """What every number of updates from N_0 on means for every cluster; arrays are (n, C)."""

    problem: HorizonProblem
    common: int  # N_0
    counts: Float64  # (n, 1)
    allowed: np.typing.NDArray[np.bool_]
    clean: Float64
    square: Float64
    variance: Float64
    gather: Float64
    cube: Float64
    offset: Float64
    earliest: Float64

    @classmethod
    def of(cls, problem: HorizonProblem, common: int) -> Menu:
        """The menu of all clusters that do at least so many updates."""
        counts = np.arange(common, int(problem.max_updates.max()) + 1, dtype=np.float64)[:, None]
        clean, square = problem.descent_terms(counts, common)
        return cls(
            problem,
            common,
            counts,
            counts <= problem.max_updates,
            clean,
            square,
            problem.error_terms(counts),
            counts * problem.gather_joules,
            counts**3 * problem.cube_joules,
            counts * problem.gather_seconds,
            counts * (problem.least_seconds + problem.gather_seconds),
        )

    def radio(self, prices: Prices) -> tuple[Float64, Float64, Float64, Float64, Float64]:
        """Worth without computing, and descent, error, joules and seconds, per choice."""
        problem = self.problem
        worth = prices.descent * self.square + self.variance
        cap = np.broadcast_to(problem.max_power_watts * problem.snr_per_watt, worth.shape)
        base, air = problem.base_joules, problem.air_scale
        x = best_ratio(worth, prices.joule * base, prices.second * air, cap)
        descent, error = self.clean - self.square / x, self.variance * (1 + 1 / x)
        y = 1 / np.log1p(x)
        joules, seconds = self.gather + base * x * y, air * y
        value = prices.descent * descent - error - prices.joule * joules - prices.second * seconds
        return np.where(self.allowed, value, -np.inf), descent, error, joules, seconds

    def best(self, prices: Prices, tolerance: float) -> Worth:
        """The largest rho d - B - joule E - second tau over all updates, powers and ready times."""
        fixed, descent, error, joules, seconds = self.radio(prices)
        lowest, highest = float(self.earliest[0].max()), self.problem.seconds
        if lowest >= highest:
            return Worth(-np.inf, Column(0.0, 0.0, np.inf, np.inf, self.counts[0].astype(np.int64)))
        m, value = self._best_ready(prices, fixed, lowest, highest, tolerance)
        ready = self.earliest <= m
        computing = self.cube / np.where(ready, m - self.offset, 1.0) ** 2
        here = np.where(ready, fixed - prices.joule * computing, -np.inf)
        choice = here.argmax(axis=0)
        take = (choice, np.arange(choice.size))
        return Worth(
            value,
            Column(
                float(descent[take].sum()),
                float(error[take].sum()),
                float((joules + computing)[take].sum()),
                m + float(seconds[take].sum()),
                self.common + choice.astype(np.int64),
            ),
        )

    def _best_ready(
        self, prices: Prices, fixed: Float64, lowest: float, highest: float, tolerance: float
    ) -> tuple[float, float]:
        """The best m, and an upper bound on the worth at every m."""
        edges = np.geomspace(lowest, highest, 9)
        left, right = edges[:-1], edges[1:]
        best, best_m, dropped = -np.inf, lowest, -np.inf
        for _ in range(_LEVELS):
            upper, middle, at_middle = self._bounds(prices, fixed, left, right)
            winner = int(at_middle.argmax())
            if at_middle[winner] > best:
                best, best_m = float(at_middle[winner]), float(middle[winner])
            keep = upper > best + tolerance
            dropped = max(dropped, float(upper[~keep].max(initial=-np.inf)))
            if not keep.any():
                return best_m, max(best, dropped)
            cuts = np.linspace(left[keep], right[keep], _PARTS + 1)
            left, right = cuts[:-1].ravel(), cuts[1:].ravel()
        return best_m, max(best, dropped, float(upper[keep].max()))

    def _bounds(
        self, prices: Prices, fixed: Float64, left: Float64, right: Float64
    ) -> tuple[Float64, Float64, Float64]:
        """Upper bounds on intervals of m, their best points, and the worth there."""
        block = max(1, _BLOCK // fixed.size)
        parts = [
            self._block(prices, fixed, left[i : i + block], right[i : i + block])
            for i in range(0, left.size, block)
        ]
        upper, middle, value = (np.concatenate(column) for column in zip(*parts, strict=True))
        return upper, middle, value

    def _block(
        self, prices: Prices, fixed: Float64, left: Float64, right: Float64
    ) -> tuple[Float64, Float64, Float64]:
        middle = (left + right) / 2
        value, at_left, at_right = self._tangents(prices, fixed, left, right)
        lower = at_left.max(axis=1).sum(axis=1) - prices.second * left
        upper = at_right.max(axis=1).sum(axis=1) - prices.second * right
        here = np.where(self.earliest <= middle[:, None, None], value, -np.inf)
        there = here.max(axis=1).sum(axis=1) - prices.second * middle
        return np.maximum(lower, upper), middle, there

    def _tangents(
        self, prices: Prices, fixed: Float64, left: Float64, right: Float64
    ) -> tuple[Float64, Float64, Float64]:
        """The worth of each choice in the middle of an interval, and its tangent at both ends."""
        low, high = left[:, None, None], right[:, None, None]
        # No choice is possible before it is ready; its tangent begins there.
        at = np.maximum((low + high) / 2, self.earliest)
        room = at - self.offset
        pull = prices.joule * self.cube / room**2
        slope = 2 * pull / room
        value = np.where(self.earliest <= high, fixed - pull, -np.inf)
        return value, value + slope * (low - at), value + slope * (high - at)

    def forced(self, prices: Prices, parts: int = 128) -> Float64:
        """Upper bounds on the worth of all rounds in which one cluster has one number of updates.

        The entry (i, c) forces N_c = N_0 + i.
        """
        fixed, *_ = self.radio(prices)
        edges = np.geomspace(float(self.earliest[0].max()), self.problem.seconds, parts + 1)
        left, right = edges[:-1], edges[1:]
        _, at_left, at_right = self._tangents(prices, fixed, left, right)
        best = np.full(fixed.shape, -np.inf)
        for ends, m in ((at_left, left), (at_right, right)):
            top = ends.max(axis=1)
            total = top.sum(axis=1) - prices.second * m
            best = np.maximum(best, (total[:, None, None] - top[:, None] + ends).max(axis=0))
        return best

    def worths(self, prices: Prices, updates: Int64) -> Float64:
        """The same for given updates, (V, C): the best over powers and ready times, (V,)."""
        fixed, *_ = self.radio(prices)
        rows = (updates - self.common, np.arange(updates.shape[1]))
        cube, offset, earliest = self.cube[rows], self.offset[rows], self.earliest[rows]
        soonest = earliest.max(axis=1)
        latest = max(self.problem.seconds, float(soonest.max()))
        ratio = prices.second / prices.joule if prices.joule > 0 else np.inf
        m = best_ready(cube, offset, ratio, soonest, latest) if np.isfinite(ratio) else soonest
        computing = (cube / np.maximum(m[:, None] - offset, 1e-300) ** 2).sum(axis=1)
        value = fixed[rows].sum(axis=1) - prices.joule * computing - prices.second * m
        return np.asarray(value)
