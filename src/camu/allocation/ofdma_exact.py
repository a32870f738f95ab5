"""The certified optimum of both problems under OFDMA: one search for the price of a hertz."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
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
_MOST_STEPS = 10
_TIGHT = 1e-14


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
    if budget <= problem.least_joules * (1.0 + 1e-9):
        raise CamuError(
            f"{problem.source}: energy_joules = {budget:.6g} is too little: sending alone needs "
            f"more than {problem.least_joules:.6g} J, however long it takes; give more"
        )
    best = least_energy(problem, first)
    deadline, bound = first, problem.least_seconds
    if best.joules > budget:
        known: dict[float, Spent] = {}

        def above(log_deadline: float) -> float:
            guess = next(reversed(known.values())).log_price if known else best.log_price
            known[log_deadline] = least_energy(problem, math.exp(log_deadline), guess)
            return math.log(known[log_deadline].joules / budget)

        deadline = math.exp(_safe_root(above, math.log(first)))
        best = least_energy(problem, deadline)
        bound = deadline + (best.lower_bound - budget) / -float(best.point.slope.sum())
    return _answer(problem, deadline, best, (deadline, bound), "energy_joules", began)


def least_energy(problem: OfdmaProblem, deadline: float, guess: float | None = None) -> Spent:
    """The price at which all devices together just fill the band, and what they spend then."""
    if guess is None:
        guess = math.log(problem.least_joules / problem.bandwidth_hz)

    def crowded(log_price: float) -> float:
        band = best_point(problem, deadline, math.exp(log_price)).bandwidth_hz
        return math.log(float(band.sum()) / problem.bandwidth_hz)

    log_price = _safe_root(crowded, guess)
    price = math.exp(log_price)
    point = best_point(problem, deadline, price)
    joules = float(device_joules(problem, deadline, point.air_seconds, point.bandwidth_hz).sum())
    return Spent(point, joules, point.value - price * problem.bandwidth_hz, log_price)


def _safe_root(falling: Callable[[float], float], guess: float) -> float:
    """Where a falling function is zero, or just below it; searched on both sides of a guess."""
    low, high, step = guess, guess, _STEP
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
    spent = best.joules / getattr(problem, "energy_joules", best.joules)
    if spent >= 1 - 1e-6:
        used = {limit: 1.0, **used}
    computing = np.where(problem.cycles > 0, problem.cycles / cpu, 0.0)
    return DeviceAnswer(
        kind=problem.kind,
        solver="exact",
        objective=value[0],
        lower_bound=min(value),
        energy_joules=best.joules,
        round_seconds=deadline,
        bandwidth_hz=band,
        power_watts=power,
        cpu_hz=cpu,
        device_seconds=computing + air,
        device_joules=device_joules(problem, deadline, air, band),
        binding=tuple(name for name, share in used.items() if share >= 1 - 1e-6),
        seconds=time.perf_counter() - began,
        details={"hertz_price": math.exp(best.log_price)},
    )
