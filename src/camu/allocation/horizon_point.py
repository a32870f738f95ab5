"""P2 for given rounds and updates: powers and ready time by an interior-point method.

In the time on the air y = 1 / ln(1 + x) the energy, the noise 1 / x and the time are convex, and so
is the energy of computing in the ready time m. The gap is quasi-convex; each Newton step takes the
concave problem that has the same solution. Its Hessian is diagonal plus three columns, so a step
costs as much as a few passes over the clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from camu.allocation.horizon import Bend, HorizonProblem
from camu.allocation.horizon_prices import Prices, best_ratio, best_ready
from camu.arrays import Float64, Int64

_DEEP = 0.97  # a start that needs less than this share of both budgets is deep enough inside
_ACCURACY = 1e-9  # relative, of the gap
_LAST = 8  # steps at the end of the path, more only if they still gain


@dataclass(frozen=True, eq=False)
class Point:
    """A feasible point: its powers, its ready time, its gap, and the prices that it implies."""

    rounds: int
    updates: Int64
    power_watts: Float64
    ready_seconds: float
    gap: float
    prices: Prices


def solve_point(problem: HorizonProblem, updates: Int64, rounds: int) -> Point | None:
    """The best powers and ready time for so many rounds and updates; None if they do not fit."""
    barrier = _Barrier(problem, updates, rounds)
    return barrier.run() if barrier.start() else None


class _Shape(NamedTuple):
    """Everything a Newton step needs to know about the present point."""

    joules_left: float
    seconds_left: float
    descent: float
    error: float
    bend: Bend


class _Barrier:
    """One interior-point solve; budgets are those of one round."""

    def __init__(self, problem: HorizonProblem, updates: Int64, rounds: int) -> None:
        n = updates.astype(np.float64)
        self.problem, self.updates, self.rounds = problem, updates, rounds
        self.joules, self.seconds = problem.energy_joules / rounds, problem.seconds / rounds
        clean, self.square = problem.descent_terms(n, n.min())
        self.variance = problem.error_terms(n)
        self.clean, self.spread = float(clean.sum()), float(self.variance.sum())
        self.cube, self.offset = n**3 * problem.cube_joules, n * problem.gather_seconds
        self.gather = float((n * problem.gather_joules).sum())
        self.earliest = float((n * (problem.least_seconds + problem.gather_seconds)).max())
        self.least, self.base, self.air = problem.least_air, problem.base_joules, problem.air_scale
        self.y, self.m = self.least, self.earliest

    def start(self) -> bool:
        """Find a point inside both budgets; False if there is none.

        Each price of a second in joules has a point that no other beats in both budgets.
        """
        inside = 1 - 1e-6  # not on the caps
        cap = self.problem.max_power_watts * self.problem.snr_per_watt * inside
        zero, low, high = np.zeros_like(cap), -80.0, 80.0
        earliest = np.array([self.earliest / inside])
        middle = math.log(self.joules / self.seconds)
        for _ in range(80):
            price = math.exp(middle)
            self.y = 1 / np.log1p(best_ratio(zero, self.base, price * self.air, cap))
            latest = max(self.seconds, float(earliest[0]))
            self.m = float(
                best_ready(self.cube[None], self.offset[None], price, earliest, latest)[0]
            )
            joules, seconds = self.spent(self.y, self.m)
            if joules + price * seconds > self.joules + price * self.seconds:
                return False  # no point is cheaper at this price
            joules, seconds = joules / self.joules, seconds / self.seconds
            if max(joules, seconds) < (_DEEP if high - low > 1e-3 else 1 - 1e-12):
                spare = (1 - seconds) * self.seconds  # more time costs no joule: leave the limits
                self.m += spare / 4
                self.y = self.y + spare / 4 / (self.air * self.y.size)
                return self.clean > 0
            low, high = (middle, high) if seconds > joules else (low, middle)
            middle = (low + high) / 2
        return False

    def spent(self, y: Float64, m: float) -> tuple[float, float]:
        """Joules and seconds of a round."""
        sending = float((self.base * y * np.expm1(1 / y)).sum())
        computing = float((self.cube / (m - self.offset) ** 2).sum())
        return sending + computing + self.gather, m + float((self.air * y).sum())

    def shape(self, y: Float64, m: float) -> _Shape | None:
        """The point's room in both budgets and its gap; None outside."""
        if m <= self.earliest or (y <= self.least).any():
            return None
        joules, seconds = self.spent(y, m)
        if joules >= self.joules or seconds >= self.seconds:
            return None
        noise = 1 / np.expm1(1 / y)
        descent = self.clean - float((self.square * noise).sum())
        error = self.spread + float((self.variance * noise).sum())
        bend = self.problem.bend(self.rounds, descent, error)
        return _Shape(self.joules - joules, self.seconds - seconds, descent, error, bend)

    def run(self) -> Point | None:
        """Newton's method along the central path."""
        here = self.shape(self.y, self.m)
        last, weight, least = 0, 1.0, max(_ACCURACY / (self.y.size + 3), 1e-11)
        for _ in range(300):
            if here is None:
                return None
            step_y, step_m, gain = self.newton(here, weight)
            length, found = self.search(here, weight, step_y, step_m, gain)
            if found is None:
                break  # rounding errors are all that is left
            self.y, self.m, here = self.y + length * step_y, self.m + length * step_m, found
            if weight > least:
                if gain <= max(0.5 * weight, _ACCURACY / 5):  # near the centre of the path
                    weight = max(least, 0.05 * weight)
                continue
            last += 1  # prices are good at the centre only
            if gain <= 1e-3 * weight or (last > _LAST and gain <= _ACCURACY):
                break
        return None if here is None else self.point(here, weight)

    def newton(self, here: _Shape, weight: float) -> tuple[Float64, float, float]:
        """The Newton step, and how much it promises to gain."""
        y, bend = self.y, here.bend
        scale = bend.growth / bend.gap
        grow = np.expm1(1 / y)
        noise = 1 / grow
        tilt = noise * (1 + noise) / y**2
        worth = scale * (bend.slope * self.square + self.variance)
        joule, second = weight / here.joules_left, weight / here.seconds_left
        sending = self.base * (grow - (1 + grow) / y)
        room = self.m - self.offset
        computing = -float((2 * self.cube / room**3).sum())
        slack, early = y - self.least, self.m - self.earliest
        up = -worth * tilt - joule * sending - second * self.air + weight / slack
        up_m = -joule * computing - second + weight / early
        flat = worth * tilt * ((1 + 2 * noise) / y**2 - 2 / y)
        flat = flat + joule * self.base * (1 + grow) / y**3 + weight / slack**2
        flat_m = joule * float((6 * self.cube / room**4).sum()) + weight / early**2
        root = math.sqrt(weight)
        columns = np.zeros((3, y.size + 1))
        columns[0, :-1] = math.sqrt(scale * bend.curvature) * self.square * tilt
        columns[1, :-1] = root / here.joules_left * sending
        columns[1, -1] = root / here.joules_left * computing
        columns[2, :-1] = root / here.seconds_left * self.air
        columns[2, -1] = root / here.seconds_left
        diagonal, slope = np.empty(y.size + 1), np.empty(y.size + 1)
        diagonal[:-1], diagonal[-1] = flat, flat_m
        slope[:-1], slope[-1] = up, up_m
        scaled = columns / diagonal
        small = np.eye(3) + scaled @ columns.T
        step = slope / diagonal - scaled.T @ np.linalg.solve(small, scaled @ slope)
        return step[:-1], float(step[-1]), float(slope @ step)

    def search(
        self, here: _Shape, weight: float, step_y: Float64, step_m: float, gain: float
    ) -> tuple[float, _Shape | None]:
        """The longest step of halving length that stays inside and gains."""
        start, length = self.merit(here, here, self.y, self.m, weight), 1.0
        back = np.minimum(step_y, 0)
        reach = float((-back / (self.y - self.least)).max())
        reach = max(reach, -step_m / (self.m - self.earliest))
        if reach > 0:
            length = min(1.0, 0.99 / reach)
        for _ in range(40):
            y, m = self.y + length * step_y, self.m + length * step_m
            found = self.shape(y, m)
            if found is not None:
                value = self.merit(here, found, y, m, weight)
                if value >= start + 0.01 * length * gain - 1e-13 * abs(start):
                    return length, found
            length /= 2
        return 0.0, None

    def merit(self, here: _Shape, at: _Shape, y: Float64, m: float, weight: float) -> float:
        """The concave objective of this step, as a share of the gap, with the barrier."""
        gap_0, bend = self.problem.initial_gap, here.bend
        psi = gap_0 - bend.gap
        value = gap_0 * at.descent - at.error - psi / at.bend.growth
        logs = math.log(at.joules_left) + math.log(at.seconds_left)
        logs += float(np.log(y - self.least).sum()) + math.log(m - self.earliest)
        return bend.growth / bend.gap * value + weight * logs

    def point(self, here: _Shape, weight: float) -> Point:
        """The result, with the prices of both budgets."""
        problem = self.problem
        per_error = weight * here.bend.gap / here.bend.growth
        power = np.minimum(np.expm1(1 / self.y) / problem.snr_per_watt, problem.max_power_watts)
        return Point(
            rounds=self.rounds,
            updates=self.updates,
            power_watts=power,
            ready_seconds=self.m,
            gap=float(problem.objective(self.rounds, self.updates, power)),
            prices=Prices(
                min(here.bend.slope, problem.initial_gap),
                per_error / here.joules_left,
                per_error / here.seconds_left,
            ),
        )
