"""Configuration 2: every device for itself, weighted by how ordinary its labels are."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class WassersteinWeights(Scheme):
    """Configuration 2: no clusters, aggregation weights from the Wasserstein distance (eq. 4)."""

    name: ClassVar[str] = "wasserstein"
    family: ClassVar[str] = "paper"
    citation: ClassVar[str] = "Sun et al., CAMU, section V-B"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = ()

    def plan(self, world: World) -> Plan:
        """One device per unit, G_k in place of the data size."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.contribution_weights)
