"""Adaptive local updates: the number of local steps follows what training shows about the data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class AdaptiveTau(Scheme):
    """All devices run tau local updates; tau is searched each round from rho, beta and delta.

    As published (Algorithms 2 and 3): the constants compare each device's own last model with the
    new global one, the budget R is the whole run's, tau grows at most tenfold up to 100, the last
    round is trimmed to the budget, and the best global model is kept. The resource is energy: c
    joules per local update of everyone, b per aggregation; R is run.max_joules, or what the
    configured rounds of one update would cost. Losses and gradients are exact and not charged.
    """

    control: float = 5e-5  # phi; the authors use 5e-5 for CNNs and 0.025 for an SVM
    max_updates: int = 100
    name: ClassVar[str] = "adaptive-tau"
    citation: ClassVar[str] = "Wang et al., IEEE JSAC 2019"
    uses_oracle: ClassVar[bool] = True

    def plan(self, world: World) -> Plan:
        """One device per unit; the first round runs one update."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights)

    def select(self, view: View, state: State) -> Iterable[int]:
        """Everyone, until the budget is spent."""
        return () if state.get("finished") else view.idle

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean; after the last round, the best global model of the run."""
        new = super().aggregate(view, state)
        assert view.oracle is not None
        loss = view.oracle.loss(new)
        if loss <= state.get("best_loss", math.inf):
            state["best_loss"] = loss
            state["best_parameters"], state["best_buffers"] = new.parameters, new.buffers
        if not state.get("last"):
            return new
        state["finished"] = True
        return type(new)(state["best_parameters"], state["best_buffers"], new.layout)

    def revise(self, view: View, state: State) -> Plan | None:
        """tau for the next round, the same for all."""
        tau = view.plan.units[0].local_updates
        local, fixed = joules_of(view.plan)
        budget = view.world.config.run.max_joules
        if budget is None:
            budget = view.world.config.run.rounds * (local + fixed)
        constants = estimate(view)
        if constants is not None:
            rate = view.world.config.training.learning_rate
            most = min(10 * tau, self.max_updates)
            scores = [
                control_value(t, *constants, rate, self.control, local, fixed, budget)
                for t in range(1, most + 1)
            ]
            tau = 1 + int(np.argmin(scores))
        left = budget - view.joules
        if left < local * (tau + 1) + 2 * fixed:  # the last round: what still fits
            tau = max(1, min(tau, math.floor((left - fixed) / local)))
            state["last"] = True
            state["finished"] = left < local + fixed
        return view.plan.with_updates([tau] * len(view.plan.units))


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


def joules_of(plan: Plan) -> tuple[float, float]:
    """Energy of one local update of everyone (c), and of one aggregation (b)."""
    each = [unit.per_update for unit in plan.units]
    local = sum(cost.compute_joules + cost.gather_joules for cost in each)
    fixed = sum(unit.uplink_joules for unit in plan.units)
    for unit in plan.units:
        local += unit.receive_watts * unit.per_update.gather_seconds
        fixed += unit.receive_watts * unit.downlink_seconds * len(unit.members)
    return local, fixed
