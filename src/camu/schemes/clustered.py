"""Configurations 1 and 4: clusters as units, one local update each."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import clusters, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class Clustered(Scheme):
    """Configurations 1 and 4: dual-segment clusters, weights G_c, one local update per round."""

    name: ClassVar[str] = "clustered"
    family: ClassVar[str] = "paper"
    citation: ClassVar[str] = "Sun et al., CAMU, sections III-A and V-B"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = ()

    def plan(self, world: World) -> Plan:
        """One cluster per unit."""
        groups = clusters(world)
        return make_plan(self, groups, groups.contribution_weights, multi_update=False)
