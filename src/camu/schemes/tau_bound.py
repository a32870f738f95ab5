"""The bound behind `adaptive-tau`: its constants, its price of a round, its value (Wang et al.)."""

from __future__ import annotations

import math

import numpy as np

from camu.schemes.contract import View


def control_value(
    tau: int,
    rho: float,
    beta: float,
    delta: float,
    rate: float,
    phi: float,
    local_joules: float,
    fixed_joules: float,
    budget_joules: float,
) -> float:
    """G(tau), the bound on the final loss (Wang et al., eq. 19 and 20); smaller is better."""
    # h(tau) = delta/beta ((rate beta + 1)^tau - 1) - rate delta tau, in a form that keeps digits.
    drift = 0.0
    if beta > 0:
        drift = delta / beta * np.expm1(tau * np.log1p(rate * beta)) - rate * delta * tau
    usable = budget_joules - fixed_joules - local_joules
    if usable <= 0:
        return math.inf
    half = (local_joules * tau + fixed_joules) / (2 * rate * phi * usable * tau)
    return float(half + np.sqrt(half**2 + rho * drift / (rate * phi * tau)) + rho * drift)


def estimate(view: View) -> tuple[float, float, float] | None:
    """rho, beta and delta at the new global model, or None where no device moved."""
    oracle, world = view.oracle, view.world
    assert oracle is not None
    rho, beta, gradients, weights = [], [], [], []
    for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
        assert arrival.trained is not None
        members = view.plan.units[arrival.unit].members
        here = oracle.gradient(view.weights, members).astype(np.float64)
        there = oracle.gradient(arrival.trained, members).astype(np.float64)
        apart = arrival.trained.parameters.astype(np.float64) - view.weights.parameters
        distance = float(np.sqrt(np.square(apart).sum()))
        losses = oracle.loss(arrival.trained, members), oracle.loss(view.weights, members)
        values = (abs(losses[0] - losses[1]), float(np.sqrt(np.square(there - here).sum())))
        if not (distance > 0 and np.isfinite(values).all()):
            continue
        rho.append(values[0] / distance)
        beta.append(values[1] / distance)
        gradients.append(here)
        weights.append(float(world.devices.samples[list(members)].sum()))
    if not weights:
        return None
    shares, rows = np.array(weights) / sum(weights), np.stack(gradients)
    away = np.sqrt(np.square(rows - shares @ rows).sum(axis=1))
    return float(shares @ rho), float(shares @ beta), float(shares @ away)


def joules_of(view: View) -> tuple[float, float, float]:
    """Energy of one local update of everyone (c), of one aggregation (b), and of the run (R)."""
    each = [unit.per_update for unit in view.plan.units]
    local = sum(cost.compute_joules + cost.gather_joules for cost in each)
    fixed = sum(unit.uplink_joules for unit in view.plan.units)
    for unit in view.plan.units:
        local += unit.receive_watts * unit.per_update.gather_seconds
        fixed += unit.receive_watts * unit.downlink_seconds * len(unit.members)
    limits = view.world.config.run
    budget = limits.rounds * (local + fixed) if limits.max_joules is None else limits.max_joules
    return local, fixed, budget
