"""A scheme of one's own: small clusters are heard, and nobody updates more often than fits."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.contribution import extra_updates
from camu.schemes import Plan, Scheme, clusters, make_plan
from camu.world import World


@dataclass(frozen=True)
class Fairness(Scheme):
    """Clusters count with a power of their size: 1 is FedAvg's weight, 0 is one voice each."""

    exponent: float = 0.5
    max_extra_updates: int = 4
    citation: ClassVar[str] = "docs/own-scheme.md"

    def plan(self, world: World) -> Plan:
        """Dual-segment clusters, weights |D_c|^exponent, updates while the slowest does one."""
        groups = clusters(world)
        voices = groups.samples**self.exponent
        updates = 1 + extra_updates(groups.step_seconds, self.max_extra_updates)
        return make_plan(self, groups, voices / voices.sum(), updates)
