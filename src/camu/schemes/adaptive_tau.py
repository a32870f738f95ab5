"""Adaptive local updates: the number of local steps follows what training shows about the data."""

import math
from dataclasses import dataclass

import numpy as np

from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, Positive, Scheme, State, View, Weights, World


@dataclass(frozen=True)
class AdaptiveTau(Scheme):
    """All devices run tau local updates; tau is searched each round from rho, beta and delta.

    The constants compare each device's own last model with the new global one, the budget R is the
    whole run's, tau grows at most tenfold up to 100, the last round is trimmed to the budget, and
    the best global model is kept.
    """

    control: Positive = 5e-5  # phi; the authors use 5e-5 for CNNs and 0.025 for an SVM
    max_updates: Count = 100
    name = "adaptive-tau"
    tunable = {"control": (1e-5, 1e-2, "log")}
    family = "local updates"
    citation = "Wang et al., Adaptive federated learning, IEEE JSAC 2019"
    simplified = ["losses and gradients are exact and not charged"]
    choices = [
        "the resource is energy: c joules per update of everyone, b per aggregation",
        "R is run.max_joules, or what the configured rounds of one update would cost",
    ]
    uses_oracle = True

    def plan(self, world: World) -> Plan:
        """One device per unit; the first round runs one update."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights)

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
        local, fixed, budget = joules = joules_of(view)
        constants = estimate(view)
        if constants is not None:
            terms = constants, joules, view.world.config.training.learning_rate, self.control
            tries = range(1, min(10 * tau, self.max_updates) + 1)
            tau = min(tries, key=lambda t: control_value(t, *terms))
        left = budget - view.joules
        if left < local * (tau + 1) + 2 * fixed:  # the last round: what still fits
            tau = max(1, min(tau, math.floor((left - fixed) / local)))
            state["last"] = True
            state["finished"] = left < local + fixed
        return view.plan.with_updates([tau] * len(view.plan.units))

    def finished(self, view: View, state: State) -> bool:
        return bool(state.get("finished"))


Three = tuple[float, float, float]


def control_value(tau: int, constants: Three, joules: Three, rate: float, phi: float) -> float:
    """G(tau), the bound on the final loss (Wang et al., eq. 19 and 20); smaller is better.

    The constants are rho, beta and delta; the joules are those of `joules_of`.
    """
    (rho, beta, delta), (local, fixed, budget) = constants, joules
    # h(tau) = delta/beta ((rate beta + 1)^tau - 1) - rate delta tau, in a form that keeps digits.
    drift = 0.0
    if beta > 0:
        drift = delta / beta * np.expm1(tau * np.log1p(rate * beta)) - rate * delta * tau
    usable = budget - fixed - local
    if usable <= 0:
        return math.inf
    half = (local * tau + fixed) / (2 * rate * phi * usable * tau)
    return float(half + np.sqrt(half**2 + rho * drift / (rate * phi * tau)) + rho * drift)


def estimate(view: View) -> Three | None:
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


def joules_of(view: View) -> Three:
    """Energy of one local update of everyone (c), of one aggregation (b), and of the run (R)."""
    local, fixed = view.plan.joules_of_updates
    limits = view.world.config.run
    budget = limits.rounds * (local + fixed) if limits.max_joules is None else limits.max_joules
    return local, fixed, budget
