"""HierFAVG: devices average at an edge several times before the edges average at the cloud."""

from dataclasses import dataclass
from typing import ClassVar

from camu.learning.job import LocalRule
from camu.planning.groups import clusters, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class HierFavg(Scheme):
    """Members take k1 steps of their own between averages at their leader, k2 times per round."""

    local_updates: int = 2  # k2, averages at the leader
    steps: int = 2  # k1, steps of a member between two averages
    name: ClassVar[str] = "hierfavg"
    family: ClassVar[str] = "clusters"
    citation: ClassVar[str] = (
        "Liu et al., Client-edge-cloud hierarchical federated learning, ICC 2020"
    )
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = (
        "leaders of the dual-segment clusters act as edge servers",
        "what a leader sends back to its members is not charged",
    )

    def plan(self, world: World) -> Plan:
        """One cluster per unit, data size as weight on both levels."""
        groups, rule = clusters(world), LocalRule(steps=self.steps)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)
