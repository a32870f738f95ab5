"""Configuration 3: the paper's strategy."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import Groups, clusters, extra_updates, gate, local_updates, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class Camu(Scheme):
    """Configuration 3: only clusters whose contribution reaches a threshold update repeatedly.

    The threshold is a number, or, where that is unset, a quantile of the clusters' contributions.
    """

    threshold: float | None = None
    threshold_quantile: float = 0.5
    max_extra_updates: int = 4
    name: ClassVar[str] = "camu"
    family: ClassVar[str] = "paper"
    citation: ClassVar[str] = "Sun et al., CAMU, section III-B"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = (
        "n_c fills the time of the slowest cluster's update; the paper gives no formula",
        "the default threshold is the median contribution",
    )

    def groups(self, world: World) -> Groups:
        """The dual-segment clusters."""
        return clusters(world)

    def plan(self, world: World) -> Plan:
        """N_c = 1 + S_c n_c, eqs. (17)-(19)."""
        groups = self.groups(world)
        multi = gate(groups.log_contribution, self.threshold, self.threshold_quantile)
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        updates = local_updates(multi, extra)
        return make_plan(self, groups, groups.contribution_weights, updates, multi_update=multi)
