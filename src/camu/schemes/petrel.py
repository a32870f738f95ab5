"""Benchmark 2: clusters as units, as many local updates as computing power allows."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.contribution import extra_updates
from camu.planning.groups import clusters, make_plan
from camu.planning.plan import Plan
from camu.world import World


@dataclass(frozen=True)
class Petrel:
    """Benchmark 2: clusters update as often as fits while the slowest updates once.

    Petrel's communities are replaced by the clusters of this paper, and its adaptive search by the
    rule that fills the waiting time, as the paper describes its benchmark.
    """

    max_extra_updates: int = 4
    citation: ClassVar[str] = "Zhou et al., Petrel, IEEE TPDS 2020"

    def plan(self, world: World) -> Plan:
        """N_c from the clusters' speed alone."""
        groups = clusters(world)
        extra = extra_updates(groups.update_seconds, self.max_extra_updates)
        return make_plan(
            "petrel", groups, groups.contribution_weights, 1 + extra, multi_update=True
        )
