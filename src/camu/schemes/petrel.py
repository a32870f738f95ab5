"""Benchmark 2: clusters as units, as many local updates as computing power allows."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import Groups, clusters, extra_updates, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class Petrel(Scheme):
    """Benchmark 2: clusters update as often as fits while the slowest updates once.

    This is the CAMU paper's benchmark, not the whole of Petrel: clusters replace communities of
    workers alike in speed, a fixed rule that fills the waiting time replaces the learned search,
    and rounds are synchronous. The paper prints no weights for it; those of `camu` are used.
    """

    max_extra_updates: int = 4
    name: ClassVar[str] = "petrel"
    citation: ClassVar[str] = "Zhou et al., Petrel, IEEE TPDS 2020"

    def plan(self, world: World) -> Plan:
        """N_c from the clusters' speed alone."""
        return self.plan_of(clusters(world))

    def plan_of(self, groups: Groups) -> Plan:
        """The plan of clusters that are formed already."""
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        return make_plan(self, groups, groups.contribution_weights, 1 + extra, multi_update=True)
