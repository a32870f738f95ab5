"""HierFAVG: devices average at an edge several times before the edges average at the cloud."""

from dataclasses import dataclass

from camu.learning.job import LocalRule
from camu.planning.groups import clusters, make_plan
from camu.schemes.contract import Count, Plan, Scheme, World


@dataclass(frozen=True)
class HierFavg(Scheme):
    """Members take k1 steps of their own between averages at their leader, k2 times per round."""

    local_updates: Count = 2  # k2, averages at the leader
    steps: Count = 2  # k1, steps of a member between two averages
    name = "hierfavg"
    tunable = {"local_updates": (1, 8), "steps": (1, 10, "log")}
    family = "clusters"
    citation = "Liu et al., Client-edge-cloud hierarchical federated learning, ICC 2020"
    choices = ["leaders of the dual-segment clusters act as edge servers"]

    def plan(self, world: World) -> Plan:
        """One cluster per unit, data size as weight on both levels."""
        groups, rule = clusters(world), LocalRule(steps=self.steps)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)
