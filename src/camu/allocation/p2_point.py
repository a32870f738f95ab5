"""P2 for given rounds and updates: powers and ready time by an interior-point method.

In the time on the air y = 1 / ln(1 + x) the energy, the noise 1 / x and the time are convex, and so
is the energy of computing in the ready time m. The gap is quasi-convex; each Newton step takes the
concave problem that has the same solution. Its Hessian is diagonal plus three columns, so a step
costs as much as a few passes over the clusters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from camu.allocation.p2 import GapDerivatives, P2Problem
from camu.allocation.p2_dual import Prices, RoundCost, best_ratio, best_ready
from camu.arrays import Float64, Int64

_DEEP = 0.97  # a start that needs less than this share of both budgets is deep enough inside
_ACCURACY = 1e-9  # relative, of the gap
_LAST = 8  # steps at the end of the path, more only if they still gain


class Point(NamedTuple):
    """A feasible point: its powers, its ready time, its gap, its prices and a round's cost."""

    rounds: int
    updates: Int64
    power_watts: Float64
    ready_seconds: float
    gap: float
    prices: Prices
    cost: RoundCost


def solve_point(problem: P2Problem, updates: Int64, rounds: int) -> Point | None:
    """The best powers and ready time for so many rounds and updates; None if they do not fit."""
    barrier = _Barrier(problem, updates, rounds)
    return barrier.run() if barrier.start() else None


class _Shape(NamedTuple):
    """Everything a Newton step needs to know about the present point."""

    joules_left: float
    seconds_left: float
    descent: float
    error: float
    gap: GapDerivatives


class _Barrier:
    """One interior-point solve over z, the times on the air y and the ready time m of a round.

    Budgets are those of one round.
    """

    def __init__(self, problem: P2Problem, updates: Int64, rounds: int) -> None:
        n = updates.astype(np.float64)
        self.problem, self.updates, self.rounds = problem, updates, rounds
        self.joules, self.seconds = problem.energy_joules / rounds, problem.seconds / rounds
        clean, self.square = problem.descent_terms(n, n.min())
        self.variance = problem.error_terms(n)
        self.clean, self.spread = float(clean.sum()), float(self.variance.sum())
        self.cube, self.offset = n**3 * problem.cube_joules, n * problem.gather_seconds
        self.gather = float((n * problem.gather_joules).sum())
        self.base, self.air = problem.base_joules, problem.air_scale
        self.circuit = problem.circuit_watts * self.air  # joules of a leader's circuits per y
        earliest = (n * (problem.least_seconds + problem.gather_seconds)).max()
        self.floor = np.append(problem.least_air, earliest)  # z is above it
        self.z = self.floor

    def start(self) -> bool:
        """Find a point inside both budgets; False if there is none.

        Each price of a second in joules has a point that no other beats in both budgets.
        """
        inside = 1 - 1e-6  # not on the caps
        cap = self.problem.max_power_watts * self.problem.snr_per_watt * inside
        zero, low, high = np.zeros_like(cap), -80.0, 80.0
        earliest = self.floor[-1:] / inside
        latest = max(self.seconds, float(earliest[0]))
        middle = math.log(self.joules / self.seconds)
        for _ in range(80):
            price = math.exp(middle)
            y = 1 / np.log1p(best_ratio(zero, self.base, price * self.air + self.circuit, cap))
            m = best_ready(self.cube[None], self.offset[None], price, earliest, latest)
            self.z = np.append(y, m)
            joules, seconds = self.spent(self.z)
            if joules + price * seconds > self.joules + price * self.seconds:
                return False  # no point is cheaper at this price
            joules, seconds = joules / self.joules, seconds / self.seconds
            if max(joules, seconds) < (_DEEP if high - low > 1e-3 else 1 - 1e-12):
                # Leave the limits. More time costs no joule, unless it is that of circuits.
                spare = (1 - seconds) * self.seconds / 4 / np.append(self.air * y.size, 1.0)
                while self.circuit.any() and self.spent(self.z + spare)[0] >= self.joules:
                    spare = spare / 2
                self.z = self.z + spare
                return self.clean > 0
            low, high = (middle, high) if seconds > joules else (low, middle)
            middle = (low + high) / 2
        return False

    def spent(self, z: Float64) -> tuple[float, float]:
        """Joules and seconds of a round."""
        y, m = z[:-1], float(z[-1])
        sending = float((self.base * y * np.expm1(1 / y) + self.circuit * y).sum())
        computing = float((self.cube / (m - self.offset) ** 2).sum())
        return sending + computing + self.gather, m + float((self.air * y).sum())

    def shape(self, z: Float64) -> _Shape | None:
        """The point's room in both budgets and its gap; None outside."""
        if (z <= self.floor).any():
            return None
        joules, seconds = self.spent(z)
        if joules >= self.joules or seconds >= self.seconds:
            return None
        noise = 1 / np.expm1(1 / z[:-1])
        descent = self.clean - float((self.square * noise).sum())
        error = self.spread + float((self.variance * noise).sum())
        gap = self.problem.gap_derivatives(self.rounds, descent, error)
        return _Shape(self.joules - joules, self.seconds - seconds, descent, error, gap)

    def run(self) -> Point | None:
        """Newton's method along the central path."""
        here = self.shape(self.z)
        last, weight, least = 0, 1.0, max(_ACCURACY / (self.z.size + 2), 1e-11)
        for _ in range(300):
            if here is None:
                return None
            step, gain = self.newton(here, weight)
            moved = self.search(here, weight, step, gain)
            if moved is None:
                break  # rounding errors are all that is left
            self.z, here = moved
            if weight > least:
                if gain <= max(0.5 * weight, _ACCURACY / 5):  # near the centre of the path
                    weight = max(least, 0.05 * weight)
                continue
            last += 1  # prices are good at the centre only
            if gain <= 1e-3 * weight or (last > _LAST and gain <= _ACCURACY):
                break
        return None if here is None else self.point(here, weight)

    def newton(self, here: _Shape, weight: float) -> tuple[Float64, float]:
        """The Newton step, and how much it promises to gain."""
        y, gap = self.z[:-1], here.gap
        scale = gap.growth / gap.gap
        grow, room = np.expm1(1 / y), self.z[-1] - self.offset
        noise = 1 / grow
        # First and second derivatives by z of noise, joules and seconds; noise has none by m.
        tilt = noise * (1 + noise) / y**2
        worth = scale * (gap.slope * self.square + self.variance)
        sending = self.base * (grow - (1 + grow) / y) + self.circuit
        spend = np.append(sending, -(2 * self.cube / room**3).sum())
        bent = np.append(self.base * (1 + grow) / y**3, (6 * self.cube / room**4).sum())
        delay = np.append(self.air, 1.0)
        joule, second, slack = (
            weight / here.joules_left,
            weight / here.seconds_left,
            self.z - self.floor,
        )
        slope = weight / slack - joule * spend - second * delay
        slope[:-1] -= worth * tilt
        diagonal = weight / slack**2 + joule * bent
        diagonal[:-1] += worth * tilt * ((1 + 2 * noise) / y**2 - 2 / y)
        root = math.sqrt(weight)
        columns = np.stack(
            [
                np.append(math.sqrt(scale * gap.curvature) * self.square * tilt, 0.0),
                root / here.joules_left * spend,
                root / here.seconds_left * delay,
            ]
        )
        scaled = columns / diagonal
        small = np.eye(3) + scaled @ columns.T
        step = slope / diagonal - scaled.T @ np.linalg.solve(small, scaled @ slope)
        return step, float(slope @ step)

    def search(
        self, here: _Shape, weight: float, step: Float64, gain: float
    ) -> tuple[Float64, _Shape] | None:
        """The point after the longest step of halving length that stays inside and gains."""
        start = self.merit(here, here, self.z, weight)
        reach = float((-step / (self.z - self.floor)).max())
        length = min(1.0, 0.99 / reach) if reach > 0 else 1.0
        for _ in range(40):
            z = self.z + length * step
            found = self.shape(z)
            if found is not None:
                value = self.merit(here, found, z, weight)
                if value >= start + 0.01 * length * gain - 1e-13 * abs(start):
                    return z, found
            length /= 2
        return None

    def merit(self, here: _Shape, at: _Shape, z: Float64, weight: float) -> float:
        """The concave objective of this step, as a share of the gap, with the barrier."""
        gap_0 = self.problem.initial_gap
        value = gap_0 * at.descent - at.error - (gap_0 - here.gap.gap) / at.gap.growth
        logs = math.log(at.joules_left) + math.log(at.seconds_left)
        logs += float(np.log(z - self.floor).sum())
        return here.gap.growth / here.gap.gap * value + weight * logs

    def point(self, here: _Shape, weight: float) -> Point:
        """The result, with the prices of both budgets."""
        problem = self.problem
        per_error = weight * here.gap.gap / here.gap.growth
        power = np.expm1(1 / self.z[:-1]) / problem.snr_per_watt
        power = np.minimum(power, problem.max_power_watts)
        joules, seconds = self.joules - here.joules_left, self.seconds - here.seconds_left
        return Point(
            rounds=self.rounds,
            updates=self.updates,
            power_watts=power,
            ready_seconds=float(self.z[-1]),
            gap=float(problem.objective(self.rounds, self.updates, power)),
            prices=Prices(
                min(here.gap.slope, problem.initial_gap),
                per_error / here.joules_left,
                per_error / here.seconds_left,
            ),
            cost=RoundCost(here.descent, here.error, joules, seconds, self.updates),
        )
