"""FedProx: local updates are pulled back to the global model."""

from dataclasses import dataclass
from typing import ClassVar

from camu.schemes import LocalRule, Plan, Scheme, make_plan, single_devices
from camu.world import World


@dataclass(frozen=True)
class FedProx(Scheme):
    """Every device adds (m / 2) ||w - w_global||^2 to its loss."""

    m: float = 0.1
    local_updates: int = 5
    citation: ClassVar[str] = "Li et al., MLSys 2020"

    def plan(self, world: World) -> Plan:
        """One device per unit, weighted by data size."""
        groups = single_devices(world)
        rule = LocalRule(proximal=self.m)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)
