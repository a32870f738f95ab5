"""FedProx: local updates are pulled back to the global model."""

from dataclasses import dataclass

from camu.learning.job import LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, NonNegative, Plan, Scheme, World


@dataclass(frozen=True)
class FedProx(Scheme):
    """Every device adds (m / 2) ||w - w_global||^2 to its loss, so that it cannot drift far."""

    local_updates: Count = 2
    proximal: NonNegative = 0.1  # m; the authors try 0.001, 0.01, 0.1 and 1
    name = "fedprox"
    family = "drift"
    citation = "Li et al., Federated optimization in heterogeneous networks, MLSys 2020"
    simplified = [
        "all devices do the same number of updates; the original also takes partial work",
    ]
    choices = ["everyone takes part, weighted by data size"]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        rule = LocalRule(proximal=self.proximal)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)
