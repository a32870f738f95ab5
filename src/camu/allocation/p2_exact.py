"""P2 solved exactly: rounds, whole updates, powers and frequencies, with a certificate.

For every N_0 = min_c N_c the Lagrangian of `p2_dual` bounds the gap from below for all numbers
of rounds at once; the interior-point method of `p2_point` finds the best powers and
frequencies for given rounds and updates, and its prices are where the Lagrangian is tightest.
Where whole updates leave a gap between both, a small linear program over the rounds seen so far
gives better prices, and on small instances every combination of updates that the bounds do not
exclude is solved.
"""

from __future__ import annotations

import itertools
import math
import time

import numpy as np

from camu.allocation.answer import P2Answer
from camu.allocation.p2 import P2Problem
from camu.allocation.p2_dual import Choices, Prices, RoundCost, least_gap
from camu.allocation.p2_point import Point, solve_point
from camu.arrays import Float64, Int64
from camu.errors import CamuError

# Relative, of the gap: closer bounds count as equal. Sums over many clusters lose digits.
TOLERANCE, TOLERANCE_PER_CLUSTER = 1e-8, 1e-10
COMBINATIONS = 4096  # of updates, that are solved one by one where prices leave a gap
# Turns of the linear program for one number of rounds: at first where there are few clusters, and
# where there are many.
_FEW_TURNS, _TURNS, _TURNS_OF_MANY = 5, 40, 15
_SMALL, _MANY = 16, 2000  # clusters
_RECENT = 8  # prices that are tried on single choices
_SOLVES = 500  # of combinations, at most
_FIXED, _LARGEST = 128, 2_000_000  # intervals of the ready time, and numbers in one array


def solve_p2(problem: P2Problem) -> P2Answer:
    """The certified optimum of P2; `lower_bound` says how far it can be from it at most."""
    began = time.perf_counter()
    point, lower = _Search(problem).run()
    descent, error = problem.recursion(point.updates, point.power_watts)
    slopes = problem.gap_derivatives(point.rounds, float(descent), float(error))
    per_round = slopes.growth / point.rounds
    return P2Answer.of(
        problem,
        "exact",
        point.rounds,
        point.updates,
        point.power_watts,
        point.ready_seconds,
        lower_bound=lower,
        joule_price=per_round * point.prices.joule,
        second_price=per_round * point.prices.second,
        seconds=time.perf_counter() - began,
    )


class _Level:
    """The part of the search with one N_0: a bound for each number of rounds."""

    def __init__(self, problem: P2Problem, common: int, most_rounds: int) -> None:
        self.choices = Choices(problem, common)
        self.plain = np.full(problem.size, common)  # N_0 updates everywhere: the cheapest choice
        self.lower = np.zeros(most_rounds)  # the entry t - 1 is for t rounds
        self.seen: list[RoundCost] = []
        self.prices: list[Prices] = []
        self.stuck: set[int] = set()


class _Search:
    """Bounds and the best point so far."""

    def __init__(self, problem: P2Problem) -> None:
        self.problem, self.most = problem, problem.most_descent()
        self.tolerance = max(TOLERANCE, TOLERANCE_PER_CLUSTER * problem.size)
        self.best: Point | None = None
        longest = most_rounds(problem)
        self.rounds = np.arange(1.0, longest + 1)
        common = range(1, int(problem.max_updates.min()) + 1)
        self.levels = [_Level(problem, n, longest) for n in common]

    @property
    def limit(self) -> float:
        """Bounds from here on cannot hide a better point."""
        return math.inf if self.best is None else self.best.gap * (1 - self.tolerance)

    def run(self) -> tuple[Point, float]:
        """The best point, and the lower bound on all."""
        order = sorted(self.levels, key=self.try_plain)
        # A few combinations are solved faster than prices that exclude them are found.
        size = self.problem.size
        most = _TURNS if size < _MANY else _TURNS_OF_MANY
        first = _FEW_TURNS if size <= _SMALL else most
        for level in order:
            self.bound(level, first)
        for level in order:
            if level.lower.min() < self.limit and not self.enumerate(level) and first < most:
                level.stuck.clear()
                self.bound(level, most)
                self.enumerate(level)
        if self.best is None:
            raise CamuError(
                f"{self.problem.source}: no round with positive descent fits both budgets; raise "
                "energy_joules or seconds"
            )
        lower = min(float(level.lower.min()) for level in self.levels)
        return self.best, min(lower, self.best.gap)

    def solve(self, updates: Int64, rounds: int) -> Point | None:
        """The best point for these updates and rounds, kept if it is the best of all."""
        point = solve_point(self.problem, updates, rounds)
        if point is not None and (self.best is None or point.gap < self.best.gap):
            self.best = point
        return point

    def probe(
        self, level: _Level, updates: Int64, rounds: Float64, lower: Float64, place: int
    ) -> Point | None:
        """Solve these updates for one of the numbers of rounds, and raise their lower bounds."""
        point = self.solve(updates, int(rounds[place]))
        if point is None:  # more rounds leave less for each
            lower[place:] = np.inf
            return None
        value = level.choices.bounds_of(point.prices, updates[None])
        bound = least_gap(self.problem, rounds, point.prices, value, self.most)
        np.maximum(lower, bound, out=lower)
        lower[place] = max(lower[place], point.gap)
        return point

    def raise_bound(self, level: _Level, prices: Prices) -> RoundCost | None:
        """Bound every number of rounds with these prices; returns the round that has the bound."""
        scale = 0.0 if self.best is None else self.best.gap / self.best.rounds
        found = level.choices.best(prices, 0.01 * self.tolerance * scale)
        if found is None:
            level.lower[:] = np.inf
            return None
        value, cost = found
        open_ = np.flatnonzero(level.lower < self.limit)
        bound = least_gap(self.problem, self.rounds[open_], prices, np.array(value), self.most)
        level.lower[open_] = np.maximum(level.lower[open_], bound)
        level.prices.append(prices)
        level.seen.append(cost)
        return cost

    def try_plain(self, level: _Level) -> float:
        """About the best gap if every cluster does N_0 updates; infinite if no round fits."""
        lower, found = np.zeros(self.rounds.size), math.inf
        index = self.rounds.size // 2 if self.best is None else self.best.rounds - 1
        for _ in range(20):
            point = self.probe(level, level.plain, self.rounds, lower, index)
            if point is None:  # nothing is cheaper
                level.lower[index:] = np.inf
                if index == 0:
                    break
                index = index // 2 if math.isinf(found) else int(lower.argmin())
                continue
            found, index = min(found, point.gap), int(lower.argmin())
            if lower[index] >= min(0.99 * found, self.limit):
                break
        return found

    def bound(self, level: _Level, turns: int) -> None:
        """Raise the bounds of a level until they meet the best point, or as far as prices go."""
        if self.best is not None:
            self.raise_bound(level, self.best.prices)
        while True:
            index = int(level.lower.argmin())
            if not level.lower[index] < self.limit or index in level.stuck:
                return
            self.close(level, index, turns)

    def close(self, level: _Level, index: int, turns: int) -> None:
        """Raise the bound of one number of rounds as far as prices can."""
        rounds = index + 1
        point = self.solve(level.plain, rounds)
        if point is None:  # nothing is cheaper, and more rounds leave less for each
            level.lower[index:] = np.inf
            return
        level.seen.append(point.cost)
        prices, tried = point.prices, {level.plain.tobytes()}
        for _ in range(turns):
            before = level.lower[index]
            cost = self.raise_bound(level, prices)
            if cost is None or level.lower[index] >= self.limit:
                return
            if (key := cost.updates.tobytes()) not in tried:
                tried.add(key)
                self.solve(cost.updates, rounds)
            found = self.master(level, rounds)
            if found is None:
                break
            hull, better, mixed = found
            # What the best mixture still leaves to the prices is little next to the whole gap.
            if level.lower[index] >= self.limit - 1.02 * (self.limit - hull):
                if mixed.tobytes() not in tried:
                    self.solve(mixed, rounds)
                break
            # Prices half way are steadier where the last ones brought nothing.
            half = Prices(*((a + b) / 2 for a, b in zip(prices, better, strict=True)))
            prices = better if level.lower[index] > before else half
        level.stuck.add(index)

    def master(self, level: _Level, rounds: int) -> tuple[float, Prices, Int64] | None:
        """The best mixture of the rounds seen: its gap, its prices, and updates near to it."""
        from scipy.optimize import linprog  # loading it takes long

        problem = self.problem
        numbers = np.array([cost[:4] for cost in level.seen])
        joules, seconds = problem.energy_joules / rounds, problem.seconds / rounds
        slope, shares = level.prices[-1].descent, np.zeros(len(numbers))
        for _ in range(4):
            done = linprog(
                numbers[:, 1] - slope * numbers[:, 0],
                A_ub=numbers[:, 2:].T / [[joules], [seconds]],
                b_ub=np.ones(2),
                A_eq=np.ones((1, len(numbers))),
                b_eq=np.ones(1),
                method="highs",
            )
            if not done.success or done.x is None:
                return None
            shares = done.x
            descent, error = shares @ numbers[:, :2]
            gap = problem.gap_derivatives(rounds, float(descent), float(error))
            close = abs(gap.slope - slope) <= 1e-9 * problem.initial_gap
            slope = min(gap.slope, problem.initial_gap)
            if close:
                break
        prices = Prices(slope, *(-done.ineqlin.marginals / [joules, seconds]).tolist())
        return gap.gap, prices, _mixture(level.seen, shares)

    def enumerate(self, level: _Level) -> bool:
        """Solve every combination of updates that the bounds leave open, the best first.

        False if they are too many.
        """
        open_ = np.flatnonzero(level.lower < self.limit)
        rounds = self.rounds[open_]
        updates = self.combinations(level, rounds)
        if updates is None:
            return False
        lower = np.tile(level.lower[open_], (len(updates), 1))
        for prices in level.prices[-_RECENT:] if len(updates) else ():
            value = level.choices.bounds_of(prices, updates)[:, None]
            lower = np.maximum(lower, least_gap(self.problem, rounds, prices, value, self.most))
        for _ in range(_SOLVES if len(updates) else 0):
            row, place = np.unravel_index(int(lower.argmin()), lower.shape)
            if not lower[row, place] < self.limit:
                break
            self.probe(level, updates[row], rounds, lower[row], int(place))
        proven = np.minimum(lower.min(axis=0, initial=np.inf), self.limit)
        level.lower[open_] = np.maximum(level.lower[open_], proven)
        return True

    def combinations(self, level: _Level, rounds: Float64) -> Int64 | None:
        """The updates that no price excludes, (V, C); None if they are too many."""
        problem, choices = self.problem, level.choices
        shape = choices.allowed.shape
        if choices.allowed.size * _FIXED > _LARGEST:
            return None
        lower = np.zeros(shape)
        for prices in level.prices[-_RECENT:]:
            value = choices.bound_if_fixed(prices, _FIXED).reshape(-1, 1)
            bound = least_gap(problem, rounds, prices, value, self.most).min(axis=1)
            lower = np.maximum(lower, bound.reshape(shape))
        kept = choices.allowed & (lower < self.limit)
        if math.prod(kept.sum(axis=0).tolist()) > COMBINATIONS:
            return None
        spans = [choices.common + np.flatnonzero(column) for column in kept.T]
        updates = np.array(list(itertools.product(*spans)), dtype=np.int64)
        updates = updates.reshape(-1, problem.size)
        return np.asarray(updates[updates.min(axis=1, initial=choices.common) == choices.common])


def _mixture(seen: list[RoundCost], shares: Float64) -> Int64:
    """Whole updates near a mixture: clusters take the rounds' choices in turn, by their shares."""
    order = np.argsort(-shares)[:4]
    ends = np.cumsum(shares[order])
    table = np.stack([seen[int(index)].updates for index in order])
    clusters = np.arange(table.shape[1])
    place = (clusters * 0.6180339887498949) % 1.0  # a fixed, even spread over the clusters
    pick = np.minimum(np.searchsorted(ends, place * ends[-1], side="right"), order.size - 1)
    return np.asarray(table[pick, clusters])


def most_rounds(problem: P2Problem) -> int:
    """No more rounds fit: each needs at least this much of both budgets."""
    ready = float((problem.least_seconds + problem.gather_seconds).max())
    seconds = ready + float((problem.air_scale * problem.least_air).sum())
    joules = float((problem.least_joules + problem.gather_joules).sum())
    most = min(problem.seconds / seconds, problem.energy_joules / joules, problem.max_rounds)
    if most < 1:
        raise CamuError(
            f"{problem.source}: one round takes at least {seconds:.4g} s and more than "
            f"{joules:.4g} J; raise seconds or energy_joules"
        )
    return int(most)
