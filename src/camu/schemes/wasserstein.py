"""Configuration 2: every device for itself, weighted by how ordinary its labels are."""

from dataclasses import dataclass

from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Plan, Scheme, World


@dataclass(frozen=True)
class WassersteinWeights(Scheme):
    """Configuration 2: no clusters, aggregation weights from the Wasserstein distance (eq. 4)."""

    name = "wasserstein"
    family = "paper"
    citation = "Sun et al., CAMU, section V-B"

    def plan(self, world: World) -> Plan:
        """One device per unit, G_k in place of the data size."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.contribution_weights)
