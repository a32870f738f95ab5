"""Random instances of P2, and a slow, independent way to solve them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from camu.allocation.p2 import P2Problem
from camu.seeding import derive


def random_p2(index: int, clusters: int | None = None, **changes: Any) -> P2Problem:
    """A problem with the paper's orders of magnitude; the index decides everything."""
    rng = derive(7, "own-horizon-instance", index).numpy()
    size = clusters or int(rng.integers(1, 5))
    members = rng.integers(1, 4, size)
    devices = int(members.sum())
    values: dict[str, Any] = {
        "weight": rng.dirichlet(np.full(size, 5.0)),
        "divergence": rng.uniform(0, 1.5, size),
        "dissimilarity": rng.uniform(1, 2, size),
        "variance": float(rng.choice([0, 0.1, 3.0])) * rng.uniform(0.5, 2, size),
        "gain": 10 ** rng.normal(-10.7, 0.4, size),
        "bandwidth_hz": rng.choice([5e5, 1e6], size),
        "gather_seconds": rng.uniform(0.0, 0.2, size),
        "gather_joules": rng.uniform(0.01, 0.1, size),
        "max_updates": rng.integers(1, 3 if size > 2 else 4, size),
        "max_power_watts": rng.choice([0.5, 2.0], size),
        "cluster": np.repeat(np.arange(size), members),
        "cycles": rng.uniform(2e7, 3e8, devices),
        "capacitance": np.full(devices, 1e-28),
        "max_hz": rng.uniform(2e8, 2e9, devices),
        "noise_watts": 1e-12,
        "payload_bits": 700_160.0,
        "convexity": float(rng.uniform(0.05, 0.5)),
        "smoothness": 1.0,
        "learning_rate": float(rng.uniform(0.05, 0.4)),
        "initial_gap": 2.3,
        "energy_joules": size * float(10 ** rng.uniform(0.0, 0.8)),
        "seconds": 2 + size * float(10 ** rng.uniform(0.2, 0.9)),
        "max_rounds": 5,
    }
    return P2Problem(**{**values, **changes})


def brute_force(problem: P2Problem) -> float:
    """The smallest gap over all rounds and updates, each with its powers from SciPy's SLSQP.

    Nothing of the solver is used, and no formula of `P2Problem`: they are written out below.
    """
    best = math.inf
    for updates in itertools.product(*(range(1, most + 1) for most in problem.max_updates)):
        for rounds in range(1, problem.max_rounds + 1):
            found = _best_powers(problem, np.array(updates), rounds)
            if found is None:  # more rounds leave less for each
                break
            best = min(best, found)
    return best


def gap_after(problem: P2Problem, rounds: int, updates: Any, power: Any) -> float:
    """The bound, round by round: gap <- A gap + B."""
    p, half = problem, problem.learning_rate * problem.smoothness / 2
    fewest = min(updates)
    descent = error = 0.0
    for c, n in enumerate(updates):
        snr = power[c] * p.gain[c] / p.noise_watts
        delta, weight = p.dissimilarity[c], p.weight[c]
        square = n**2 * delta**2 * (1 + weight / snr)
        aside = (n - fewest) * p.divergence[c]
        descent += weight * (n - aside - half * (n * (n - 1) * delta + square))
        error += half * p.learning_rate * weight**2 * n * p.variance[c] * (1 + 1 / snr)
    gap = p.initial_gap
    for _ in range(rounds):
        gap = (1 - 2 * p.convexity * p.learning_rate * descent) * gap + error
    return float(gap)


def cost_of_round(
    problem: P2Problem, updates: Any, power: Any, ready: float
) -> tuple[float, float]:
    """Joules and seconds: devices run so that all clusters are ready then; leaders send in turn."""
    p, joules, seconds = problem, 0.0, ready
    for c, n in enumerate(updates):
        rate = p.bandwidth_hz[c] * math.log2(1 + power[c] * p.gain[c] / p.noise_watts)
        air = p.payload_bits / rate
        drawn = p.circuit_watts + power[c] / p.amplifier_efficiency
        joules += drawn * air + n * p.gather_joules[c]
        seconds += air
    for k, c in enumerate(p.cluster):
        hertz = p.cycles[k] / (ready / updates[c] - p.gather_seconds[c])
        joules += updates[c] * p.capacitance[k] * p.cycles[k] * hertz**2
    return joules, seconds


def _best_powers(problem: P2Problem, updates: Any, rounds: int) -> float | None:
    """Powers and ready time in logarithms, with two constraints; None if nothing fits."""
    size, top = problem.size, np.log(problem.max_power_watts)
    slowest = [0.0] * size  # one update at full frequency
    for k, c in enumerate(problem.cluster):
        slowest[c] = max(slowest[c], problem.cycles[k] / problem.max_hz[k])
    earliest = float((updates * (slowest + problem.gather_seconds)).max())
    latest = problem.seconds / rounds
    if earliest >= latest:
        return None

    def shares(z: Any) -> Any:
        joules, seconds = cost_of_round(problem, updates, np.exp(z[:size]), math.exp(z[size]))
        return rounds * np.array([joules / problem.energy_joules, seconds / problem.seconds])

    bounds = [(cap - 20, cap) for cap in top]
    bounds.append((math.log(earliest * (1 + 1e-12)), math.log(latest)))
    # The most room in both budgets is a start, and shows whether anything fits.
    start = np.append(top - 1, (bounds[-1][0] + bounds[-1][1]) / 2)
    options = {"maxiter": 500, "ftol": 1e-13}
    room = minimize(
        lambda z: z[-1],
        np.append(start, shares(start).max()),
        bounds=[*bounds, (0, None)],
        constraints={"type": "ineq", "fun": lambda z: z[-1] - shares(z[:-1])},
        method="SLSQP",
        options=options,
    )
    if shares(room.x[:-1]).max() > 1 - 1e-9:
        return None

    def gap(z: Any) -> float:
        return gap_after(problem, rounds, updates, np.exp(z[:size]))

    found = [
        minimize(
            gap,
            begin,
            bounds=bounds,
            constraints={"type": "ineq", "fun": lambda z: 1 - shares(z)},
            method="SLSQP",
            options=options,
        )
        for begin in (room.x[:-1], room.x[:-1] + 1e-3)
    ]
    good = [done.fun for done in found if shares(done.x).max() <= 1 + 1e-9]
    clean = replace(problem, variance=np.zeros(size))
    falls = gap_after(clean, 1, updates, problem.max_power_watts) < problem.initial_gap
    return min(good, default=gap(room.x[:-1])) if falls else math.inf
