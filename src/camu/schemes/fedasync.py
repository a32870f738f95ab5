"""FedAsync: each model that arrives is mixed into the global one at once."""

from dataclasses import dataclass

from camu.learning.job import LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.schemes.aggregation import mix_models
from camu.schemes.contract import (
    Count,
    NonNegative,
    Plan,
    PositiveShare,
    Scheme,
    State,
    View,
    Weights,
    World,
)


@dataclass(frozen=True)
class FedAsync(Scheme):
    """Asynchronous: w <- (1 - a) w + a w_k with a = mixing (1 + staleness)^-decay."""

    local_updates: Count = 2
    mixing: PositiveShare = 0.6  # alpha
    decay: NonNegative = 0.5  # a of the polynomial rule
    proximal: NonNegative = 0.005  # rho
    name = "fedasync"
    family = "asynchronous"
    citation = "Xie, Koyejo, Gupta, Asynchronous federated optimization, 2019"
    simplified = ["the polynomial rule for staleness alone; the mixing does not fall in time"]
    choices = ["all devices train at all times"]

    def plan(self, world: World) -> Plan:
        groups, rule = single_devices(world), LocalRule(proximal=self.proximal)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)

    def ready(self, view: View, state: State) -> bool:
        return bool(view.arrived) or not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """The model that has arrived, mixed in by its staleness."""
        shares = [self.mixing * (1 + one.staleness) ** -self.decay for one in view.arrived]
        return mix_models(view, shares)
