"""Hier-Local-QSGD: averages at an edge, then quantised updates from the edges to the cloud."""

from dataclasses import dataclass

from camu.learning.job import LocalRule
from camu.planning.codecs import Quantised
from camu.planning.groups import clusters, make_plan
from camu.schemes.contract import Count, Plan, Scheme, World


@dataclass(frozen=True)
class HierLocalQsgd(Scheme):
    """HierFAVG whose leaders round their updates at random to few levels."""

    local_updates: Count = 2  # tau2, averages at the leader
    steps: Count = 2  # tau1, steps of a member between two averages
    levels: Count = 7  # s
    name = "hier-local-qsgd"
    family = "compression"
    tunable = {
        "local_updates": (1, 8),
        "steps": (1, 10, "log"),
        "levels": [1, 3, 7, 15, 127],  # 2, 3, 4, 5 and 8 bits
    }
    citation = (
        "Liu, Zhang, Song, Letaief, Hierarchical federated learning with quantization: convergence "
        "analysis and system design, IEEE TWC 2023"
    )
    simplified = [
        "members send to their leader in full; the original quantises there, too",
        "entropy coding of the levels is not counted",
    ]
    choices = ["leaders of the dual-segment clusters act as edge servers"]

    def plan(self, world: World) -> Plan:
        """One cluster per unit, data size as weight on both levels."""
        groups, rule, codec = clusters(world), LocalRule(steps=self.steps), Quantised(self.levels)
        weights = groups.sample_weights
        return make_plan(self, groups, weights, self.local_updates, rule=rule, codec=codec)
