"""Adaptive local updates: the number of local steps follows what training shows about the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.schemes.tau_bound import control_value, estimate, joules_of
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class AdaptiveTau(Scheme):
    """All devices run tau local updates; tau is searched each round from rho, beta and delta.

    The constants compare each device's own last model with the new global one, the budget R is the
    whole run's, tau grows at most tenfold up to 100, the last round is trimmed to the budget, and
    the best global model is kept.
    """

    control: float = 5e-5  # phi; the authors use 5e-5 for CNNs and 0.025 for an SVM
    max_updates: int = 100
    name: ClassVar[str] = "adaptive-tau"
    family: ClassVar[str] = "local updates"
    citation: ClassVar[str] = "Wang et al., Adaptive federated learning, IEEE JSAC 2019"
    simplified: ClassVar[tuple[str, ...]] = ("losses and gradients are exact and not charged",)
    choices: ClassVar[tuple[str, ...]] = (
        "the resource is energy: c joules per update of everyone, b per aggregation",
        "R is run.max_joules, or what the configured rounds of one update would cost",
    )
    uses_oracle: ClassVar[bool] = True

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
        local, fixed, budget = joules_of(view)
        constants = estimate(view)
        if constants is not None:
            rate = view.world.config.training.learning_rate
            terms = (*constants, rate, self.control, local, fixed, budget)
            tries = range(1, min(10 * tau, self.max_updates) + 1)
            tau = min(tries, key=lambda t: control_value(t, *terms))
        left = budget - view.joules
        if left < local * (tau + 1) + 2 * fixed:  # the last round: what still fits
            tau = max(1, min(tau, math.floor((left - fixed) / local)))
            state["last"] = True
            state["finished"] = left < local + fixed
        return view.plan.with_updates([tau] * len(view.plan.units))

    def finished(self, view: View, state: State) -> bool:
        """When the budget is spent."""
        return bool(state.get("finished"))
