"""The certified optimum of both problems under OFDMA: one search for the price of a hertz."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from camu.allocation.device_answer import DeviceAnswer
from camu.allocation.ofdma import (
    OfdmaEnergy,
    OfdmaProblem,
    OfdmaTime,
    Point,
    best_point,
    device_joules,
    frequencies,
)
from camu.errors import CamuError

_STEP = 0.5  # first step of the search for both sides of a root, in logarithms; it doubles
_MOST_STEPS = 60
_TIGHT = 1e-14
_WIDE = 1e-6  # sides of a root that are further apart, in logarithms, are halved
_LONGEST_STEP = 20.0  # of the search for a deadline, in logarithms
_CLOSE = 1e-12  # a bound that is so close ends the search for a deadline


class Spent(NamedTuple):
    """The least energy under a deadline."""

    point: Point
    joules: float
    lower_bound: float
    log_price: float


def solve_ofdma_energy(problem: OfdmaEnergy) -> DeviceAnswer:
    """The least energy of a round under the deadline."""
    began = time.perf_counter()
    deadline = problem.deadline_seconds
    if deadline < problem.shortest_deadline:
        raise CamuError(
            f"{problem.source}: deadline_seconds = {deadline:.6g} is too short: with all devices "
            "at their largest powers and frequencies a round takes "
            f"{problem.least_seconds:.6g} s; give more"
        )
    best = least_energy(problem, deadline)
    value = best.joules, best.lower_bound
    return _answer(problem, deadline, best, value, "deadline_seconds", began)


def solve_ofdma_time(problem: OfdmaTime) -> DeviceAnswer:
    """The shortest round within the energy budget.

    The least energy E(D) is convex and falls with the deadline D. So a tangent of it reaches the
    budget no later than E itself: the lower bound.
    """
    began = time.perf_counter()
    budget, first = problem.energy_joules, problem.shortest_deadline
    best, deadline, bound = least_energy(problem, first), first, problem.least_seconds
    if best.joules > budget:
        least = unhurried_joules(problem, best.joules)
        if budget <= least * (1.0 + 1e-9):
            raise CamuError(
                f"{problem.source}: energy_joules = {budget:.6g} is too little: a round needs "
                f"more than {least:.6g} J, however long it takes; give more"
            )
        best, deadline, bound = _shortest(problem, budget, bound)
    return _answer(problem, deadline, best, (deadline, bound), "energy_joules", began)


def unhurried_joules(problem: OfdmaProblem, enough: float) -> float:
    """The infimum of the energy over all deadlines, if so many joules are enough for one of them.

    Circuits alone would spend more than enough on a longer sending than the one that is tried.
    """
    if problem.circuit_watts == 0.0:
        return problem.least_joules
    sending = replace(problem, cycles=np.zeros(problem.size))
    longest = 2.0 * max(enough / problem.circuit_watts, sending.shortest_deadline)
    return least_energy(sending, longest).lower_bound + problem.least_compute_joules


def _shortest(problem: OfdmaTime, budget: float, bound: float) -> tuple[Spent, float, float]:
    """The deadline at which the least energy is the budget or just less, and a lower bound of it.

    It begins at twice the first deadline: near that the energy is too steep for Newton's steps.
    """
    low, high, step, near = problem.shortest_deadline, math.inf, _TIGHT, _STEP
    deadline, guess, found = 2.0 * low, None, None
    for _ in range(_MOST_STEPS):
        best = least_energy(problem, deadline, guess, near)
        slope, over = float(best.point.slope.sum()), math.log(best.joules / budget)
        if slope < 0.0:
            bound = max(bound, deadline + (best.lower_bound - budget) / -slope)
        if over > 0.0:
            low = deadline
        else:
            high, found = deadline, best
            if bound >= deadline * (1.0 - _CLOSE):
                break
        before, guess = deadline, best.log_price
        steep = max(-slope * deadline / best.joules, abs(over) / _LONGEST_STEP)
        deadline *= math.exp(over / steep) if over else 1.0
        if not low < deadline < high:  # rounding, or a slope that misleads
            if high < math.inf and math.log(high / low) > _WIDE:
                deadline = 0.5 * (low + high)
            else:
                deadline, step = min(low * (1.0 + step), 0.5 * (low + high)), 4.0 * step
        near = 4.0 * abs(math.log(deadline / before))
    if found is None:
        raise CamuError(f"{problem.source}: no deadline was found for this energy_joules")
    return found, high, bound


def least_energy(
    problem: OfdmaProblem, deadline: float, guess: float | None = None, near: float = _STEP
) -> Spent:
    """The price at which all devices together just fill the band, and what they spend then.

    The logarithm of the price is searched from a guess on, with this first step.
    """
    if guess is None:
        guess = math.log(problem.least_joules / problem.bandwidth_hz)

    points: dict[float, Point] = {}

    def crowded(log_price: float) -> float:
        if log_price not in points:
            points[log_price] = best_point(problem, deadline, math.exp(log_price))
        return math.log(float(points[log_price].bandwidth_hz.sum()) / problem.bandwidth_hz)

    log_price = _safe_root(crowded, guess, min(_STEP, max(near, 10.0 * _TIGHT)))
    price, point = math.exp(log_price), points[log_price]
    joules = float(device_joules(problem, deadline, point.air_seconds, point.bandwidth_hz).sum())
    return Spent(point, joules, point.value - price * problem.bandwidth_hz, log_price)


def _safe_root(falling: Callable[[float], float], guess: float, step: float) -> float:
    """Where a falling function is zero, or just below it; searched on both sides of a guess."""
    low, high = guess, guess
    up = falling(guess) > 0.0
    for _ in range(_MOST_STEPS):
        low, high = (high, high + step) if up else (low - step, low)
        if (falling(high if up else low) > 0.0) != up:
            break
        step *= 2.0
    from scipy.optimize import brentq  # loading it takes long

    root, step = float(brentq(falling, low, high, xtol=_TIGHT, rtol=1e-15)), _TIGHT
    while falling(root) > 0.0:
        root, step = root + step, 2.0 * step
    return root


def _answer(
    problem: OfdmaProblem,
    deadline: float,
    best: Spent,
    value: tuple[float, float],
    limit: str,
    began: float,
) -> DeviceAnswer:
    """The answer with what it costs and what binds; `value` is the objective and its bound."""
    point = best.point
    air, band = point.air_seconds, point.bandwidth_hz
    cpu = frequencies(problem, deadline, air)
    power = np.minimum(problem.transmit_watts(air, band), problem.max_power_watts)
    used = {
        "bandwidth_hz": float(band.sum()) / problem.bandwidth_hz,
        "max_power_watts": float((power / problem.max_power_watts).max()),
        "max_hz": float((cpu / problem.max_hz)[problem.cycles > 0].max(initial=0.0)),
        "max_bits_per_hz": float((problem.nats / (air * band)).max()) / problem.most_nats,
    }
    computing = np.where(problem.cycles > 0, problem.cycles / cpu, 0.0)
    taken = float((computing + air).max())
    spent = taken if limit == "deadline_seconds" else best.joules
    used = {limit: spent / getattr(problem, limit), **used}
    return DeviceAnswer(
        kind=problem.kind,
        solver="exact",
        objective=value[0],
        lower_bound=min(value),
        energy_joules=best.joules,
        round_seconds=taken,
        bandwidth_hz=band,
        power_watts=power,
        cpu_hz=cpu,
        device_seconds=computing + air,
        device_joules=device_joules(problem, deadline, air, band),
        binding=tuple(name for name, share in used.items() if share >= 1 - 1e-6),
        seconds=time.perf_counter() - began,
        details={"hertz_price": math.exp(best.log_price)},
    )
