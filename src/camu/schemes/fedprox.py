"""FedProx: local updates are pulled back to the global model."""

from dataclasses import dataclass
from typing import ClassVar

from camu.learning.job import LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class FedProx(Scheme):
    """Every device adds (m / 2) ||w - w_global||^2 to its loss, so that it cannot drift far."""

    local_updates: int = 2
    proximal: float = 0.1  # m; the authors try 0.001, 0.01, 0.1 and 1
    name: ClassVar[str] = "fedprox"
    family: ClassVar[str] = "drift"
    citation: ClassVar[str] = (
        "Li et al., Federated optimization in heterogeneous networks, MLSys 2020"
    )
    simplified: ClassVar[tuple[str, ...]] = (
        "all devices do the same number of updates; the original also takes partial work",
    )
    choices: ClassVar[tuple[str, ...]] = ("everyone takes part, weighted by data size",)

    def plan(self, world: World) -> Plan:
        """One device per unit, H updates with the proximal term."""
        groups = single_devices(world)
        rule = LocalRule(proximal=self.proximal)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)
