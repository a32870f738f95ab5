"""FedAsync: each model that arrives is mixed into the global one at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from camu.learning.job import LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View, mix_models
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class FedAsync(Scheme):
    """Asynchronous: w <- (1 - a) w + a w_k with a = mixing (1 + staleness)^-decay."""

    local_updates: int = 2
    mixing: float = 0.6  # alpha
    decay: float = 0.5  # a of the polynomial rule
    proximal: float = 0.005  # rho
    name: ClassVar[str] = "fedasync"
    family: ClassVar[str] = "asynchronous"
    citation: ClassVar[str] = "Xie, Koyejo, Gupta, Asynchronous federated optimization, 2019"
    simplified: ClassVar[tuple[str, ...]] = (
        "the polynomial rule for staleness alone; the mixing does not fall in time",
    )
    choices: ClassVar[tuple[str, ...]] = ("all devices train at all times",)

    def plan(self, world: World) -> Plan:
        """One device per unit."""
        groups, rule = single_devices(world), LocalRule(proximal=self.proximal)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)

    def ready(self, view: View, state: State) -> bool:
        """At each arrival."""
        return bool(view.arrived) or not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """The model that has arrived, mixed in by its staleness."""
        shares = [self.mixing * (1 + one.staleness) ** -self.decay for one in view.arrived]
        return mix_models(view, shares)
