"""A plan of your own: small clusters count more, and fast ones fill their waiting time."""

from dataclasses import dataclass

import camu
from camu.schemes import extra_updates


@dataclass(frozen=True)
class Fairness(camu.Scheme):
    """Clusters count with a power of their size: 1 gives FedAvg's weights, 0 equal ones."""

    exponent: float = 0.5
    max_extra_updates: int = 4
    citation = "docs/own-scheme.md"

    def plan(self, world: camu.World) -> camu.Plan:
        """Dual-segment clusters, weights |D_c|^exponent, updates while the slowest does one."""
        groups = camu.clusters(world)
        powers = groups.samples**self.exponent
        updates = 1 + extra_updates(groups.step_seconds, self.max_extra_updates)
        return camu.make_plan(self, groups, powers / powers.sum(), updates)
