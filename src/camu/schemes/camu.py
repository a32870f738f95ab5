"""Configuration 3: the paper's strategy."""

from dataclasses import dataclass

import numpy as np

from camu.planning.contribution import extra_updates, gate
from camu.planning.groups import Groups, clusters, make_plan
from camu.schemes.contract import CountFromZero, Plan, Scheme, Share, Threshold, World


@dataclass(frozen=True)
class Camu(Scheme):
    """Configuration 3: only clusters whose contribution reaches a threshold update repeatedly.

    The threshold is a number, or, where that is unset, a quantile of the clusters' contributions.
    """

    threshold: Threshold | None = None
    threshold_quantile: Share = 0.5
    max_extra_updates: CountFromZero = 4
    name = "camu"
    tunable = {"threshold_quantile": (0.0, 1.0), "max_extra_updates": (0, 20)}
    family = "paper"
    citation = "Sun et al., CAMU, section III-B"
    choices = [
        "n_c fills the time of the slowest cluster's update; the paper gives no formula",
        "the default threshold is the median contribution",
    ]

    def groups(self, world: World) -> Groups:
        return clusters(world)

    def plan(self, world: World) -> Plan:
        """N_c = 1 + S_c n_c, eqs. (17)-(19)."""
        groups = self.groups(world)
        multi = gate(groups.log_contribution, self.threshold, self.threshold_quantile)
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        updates = 1 + np.where(multi, extra, 0)
        return make_plan(self, groups, groups.contribution_weights, updates, multi_update=multi)
