"""A scheme of one's own: small clusters are heard, and nobody updates more often than fits."""

from dataclasses import dataclass
from typing import ClassVar

import camu
from camu.schemes import extra_updates


@dataclass(frozen=True)
class Fairness(camu.Scheme):
    """Clusters count with a power of their size: 1 is FedAvg's weight, 0 is one voice each."""

    exponent: float = 0.5
    max_extra_updates: int = 4
    citation: ClassVar[str] = "docs/own-scheme.md"

    def plan(self, world: camu.World) -> camu.Plan:
        """Dual-segment clusters, weights |D_c|^exponent, updates while the slowest does one."""
        groups = camu.clusters(world)
        voices = groups.samples**self.exponent
        updates = 1 + extra_updates(groups.step_seconds, self.max_extra_updates)
        return camu.make_plan(self, groups, voices / voices.sum(), updates)
