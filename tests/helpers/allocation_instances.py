"""Random instances of P1 and slow, independent ways to solve them, for the tests beside."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from camu.allocation.p1 import Problem
from camu.seeding import derive

Floats = NDArray[np.float64]


def random_problem(
    index: int,
    clusters: int | None = None,
    max_extra: int = 3,
    total_cap: bool = False,
    penalty: bool = False,
    tightness: float | None = None,
    own_caps: bool = False,
    circuits: bool = False,
) -> Problem:
    """A problem with the paper's orders of magnitude; the index decides everything."""
    rng = derive(7, "own-allocation-instance", index).numpy()
    size = clusters or int(rng.integers(1, 5))
    weight = rng.dirichlet(np.full(size, 3.0))
    descent = 0.01 * weight * rng.uniform(0.5, 1.5, size)
    # Now and then a cluster whose updates do harm, as Theorem 1's A allows.
    descent = np.where((rng.random(size) < 0.1) & (size > 2), -0.1 * descent, descent)
    values: dict[str, Any] = {
        "weight": weight,
        "gain": 10 ** rng.normal(-10.7, 0.4, size),
        "descent": descent,
        "compute_joules": rng.uniform(0.05, 1.0, size),
        "bandwidth_hz": rng.choice([5e5, 1e6, 2e6], size),
        "multi_update": rng.random(size) < 0.85,
        "max_extra_updates": rng.integers(0, max_extra + 1, size),
        "noise_watts": float(rng.choice([1e-12, 2e-14])),
        "payload_bits": 700_160.0,
        "max_power_watts": float(rng.choice([0.5, 1.0, 4.0])),
        "power_law": "power" if index % 2 else "amplitude",
        "first_update_free": bool(rng.random() < 0.2),
        "penalty": np.abs(descent) * rng.uniform(0, 0.2, size) if penalty else np.zeros(size),
    }
    if total_cap:
        values["max_total_power_watts"] = float(rng.uniform(0.1, 0.8) * size)
    if own_caps:
        caps = derive(7, "own-allocation-caps", index).numpy()
        values["max_power_watts"] = 10 ** caps.uniform(-2.5, 0.5, size)
    if circuits:
        radio = derive(7, "own-allocation-circuits", index).numpy()
        values["circuit_watts"] = float(radio.choice([1e-6, 1e-3, 0.1, 2.0]))
        values["amplifier_efficiency"] = float(radio.uniform(0.2, 1.0))
    probe = Problem(**values, energy_joules=1e6)
    small = probe.smallest_budget_joules
    large = float(probe.spent_joules(np.full(size, 0.5), probe.extra_limit))
    if circuits:  # so much power may be cheaper than the cheapest updates
        large = max(large, float(probe.spent_joules(probe.max_power_watts, probe.extra_limit)))
        large = max(large, 1.2 * small)
    share = rng.choice([1e-3, 0.03, 0.2, 0.5, 0.8, 1.0, 1.5, 4.0])
    share = share if tightness is None else tightness
    return Problem(**values, energy_joules=float(small + share * (large - small)))


def every_update(problem: Problem) -> NDArray[np.int64]:
    """All whole update counts, one row each."""
    ranges = [range(int(limit) + 1) for limit in problem.extra_limit]
    return np.array(list(itertools.product(*ranges)), dtype=np.int64)


def least_error(problem: Problem, budgets: Floats) -> Floats:
    """The least noise term for each transmission budget, by two nested bisections over powers.

    For a price of energy, each power is found by halving an interval of ln(p) until the slope of
    error + price * energy changes sign; the price is found by halving until the budget is met.
    """
    a, cap = problem.exponent, np.log(problem.max_power_watts)

    def powers(log_price: Floats) -> Floats:
        high = np.tile(cap, (budgets.size, 1))
        low = high - 60.0
        for _ in range(50):
            middle = (low + high) / 2
            p = np.exp(middle)
            nats = np.log1p(p * problem.snr_per_watt)
            rate = problem.bandwidth_hz * nats / np.log(2)
            drawn = p / problem.amplifier_efficiency + problem.circuit_watts
            grow = 1 / problem.amplifier_efficiency
            grow = grow - drawn * problem.snr_per_watt / ((1 + p * problem.snr_per_watt) * nats)
            push = np.exp(log_price)[:, None] * problem.payload_bits / rate * grow
            pull = a * problem.weight**2 / (p ** (a + 1) * problem.snr_per_watt)
            up = pull > push
            low, high = np.where(up, middle, low), np.where(up, high, middle)
        return np.exp(high)

    low, high = np.full(budgets.size, -60.0), np.full(budgets.size, 60.0)
    for _ in range(50):
        middle = (low + high) / 2
        over = problem.transmit_joules(powers(middle)).sum(axis=-1) > budgets
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return problem.error(powers(high))


def cheapest(problem: Problem) -> tuple[Floats, Floats]:
    """The power of the least transmission energy of each leader by scipy, and that energy."""
    log_power, cap = np.empty(problem.size), np.log(problem.max_power_watts)
    for c in range(problem.size):

        def joules(u: float, c: int = c) -> float:
            p = np.exp(u)
            rate = problem.bandwidth_hz[c] * np.log1p(p * problem.snr_per_watt[c]) / np.log(2)
            drawn = problem.circuit_watts + p / problem.amplifier_efficiency
            return float(drawn * problem.payload_bits / rate)

        grid = np.linspace(cap[c] - 40, cap[c], 400)
        near = int(np.argmin([joules(u) for u in grid]))
        ends = grid[max(near - 1, 0)], grid[min(near + 1, 399)]
        log_power[c] = minimize_scalar(joules, bounds=ends, options={"xatol": 1e-12}).x
    power = np.exp(log_power)
    return power, problem.transmit_joules(power)


def brute_force(problem: Problem) -> float:
    """The optimum without a total cap: every whole count, each with its best powers."""
    extra = every_update(problem)
    left = problem.energy_joules - problem.update_joules(extra).sum(axis=-1)
    below = problem.denominator(extra)
    least = cheapest(problem)[1] if problem.circuit_watts else problem.base_joules
    usable = (left > least.sum() * (1 + 1e-12)) & (below > 0)
    return float((least_error(problem, left[usable]) / below[usable]).min())


def slsqp(problem: Problem, extra: NDArray[np.int64]) -> float | None:
    """The best objective for given counts by scipy's SLSQP in ln(p), with every cap."""
    left = float(problem.energy_joules - problem.update_joules(extra).sum())
    below = float(problem.denominator(extra))
    power, least = cheapest(problem) if problem.circuit_watts else (None, problem.base_joules)
    if left <= least.sum() * (1 + 1e-6) or below <= 0:
        return None
    cap, total = np.log(problem.max_power_watts), problem.max_total_power_watts
    start = cap if power is None else np.log(power)
    while problem.transmit_joules(np.exp(start)).sum() > left or (
        total is not None and (np.exp(start) ** problem.exponent).sum() > total
    ):
        start = start - 0.1
    limits = [{"type": "ineq", "fun": lambda u: left - problem.transmit_joules(np.exp(u)).sum()}]
    if total is not None:
        limits.append(
            {"type": "ineq", "fun": lambda u: total - (np.exp(u) ** problem.exponent).sum()}
        )
    answer = minimize(
        lambda u: float(np.log(problem.error(np.exp(u)))),
        start,
        method="SLSQP",
        bounds=list(zip(cap - 40, cap, strict=True)),
        constraints=limits,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return float(np.exp(answer.fun)) / below
