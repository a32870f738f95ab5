"""CAMU with normalised updates, so that clusters that update more do not pull the optimum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from camu.planning.plan import Plan
from camu.schemes.camu import Camu
from camu.world import World


@dataclass(frozen=True)
class CamuNova(Camu):
    """CAMU with each unit's update divided by its number of steps (objective consistency).

    The mean step count gives back the length: sum_c G_c N_c times the mean direction. With equal
    N_c nothing changes. Beyond the paper.
    """

    name: ClassVar[str] = "camu-nova"
    citation: ClassVar[str] = "Wang et al., FedNova, NeurIPS 2020, on CAMU"

    def plan(self, world: World) -> Plan:
        """CAMU's plan with scaled updates."""
        plan = super().plan(world)
        mean = sum(unit.weight * unit.local_updates for unit in plan.units)
        units = [replace(u, update_scale=mean / u.local_updates) for u in plan.units]
        return replace(plan, units=tuple(units))
