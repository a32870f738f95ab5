"""Configurations 1 and 4: clusters as units, one local update each."""

from dataclasses import dataclass

from camu.planning.groups import clusters, make_plan
from camu.schemes.contract import Plan, Scheme, World


@dataclass(frozen=True)
class Clustered(Scheme):
    """Configurations 1 and 4: dual-segment clusters, weights G_c, one local update per round."""

    name = "clustered"
    family = "paper"
    citation = "Sun et al., CAMU, sections III-A and V-B"

    def plan(self, world: World) -> Plan:
        groups = clusters(world)
        return make_plan(self, groups, groups.contribution_weights, multi_update=False)
