"""CAMU with normalised updates, so that clusters that update more do not pull the optimum."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.plan import Plan
from camu.schemes.camu import Camu
from camu.schemes.nova import normalised
from camu.world import World


@dataclass(frozen=True)
class CamuNova(Camu):
    """CAMU with each unit's update divided by its number of steps (objective consistency).

    The mean step count gives back the length: sum_c G_c N_c times the mean direction. With equal
    N_c nothing changes.
    """

    name: ClassVar[str] = "camu-nova"
    family: ClassVar[str] = "paper"
    citation: ClassVar[str] = "Wang et al., FedNova, NeurIPS 2020, on CAMU"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = ("normalising CAMU's clusters is not in the CAMU paper",)

    def plan(self, world: World) -> Plan:
        """CAMU's plan with scaled updates."""
        return normalised(super().plan(world), world)
