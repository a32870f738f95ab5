"""The authors' earlier scheme: unlike devices together, so that clusters look like everyone."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import clusters, make_plan
from camu.planning.plan import Plan
from camu.world import World


@dataclass(frozen=True)
class Dsc:
    """Dual-segment clustering that groups devices with unlike labels; one update per round.

    Weights are those of `clustered`, so that the two differ in the grouping alone.
    """

    citation: ClassVar[str] = "Sun et al., dual-segment clustering, 2025"

    def plan(self, world: World) -> Plan:
        """One cluster of unlike devices per unit."""
        unlike = world.config.clustering.model_copy(update={"data": "literal"})
        groups = clusters(world, unlike)
        return make_plan("dsc", groups, groups.contribution_weights, multi_update=False)
