"""CAMU over the air: the paper's received signal y = sum_c h_c p_c s_c + n_0 as it stands."""

from dataclasses import dataclass
from typing import Literal

from camu.planning.air import ALIGNED
from camu.planning.several_antennas import Separated
from camu.schemes.camu import Camu
from camu.schemes.contract import Plan, World
from camu.world.antennas import zero_forcing


@dataclass(frozen=True)
class CamuAir(Camu):
    """The clusters and updates of `camu`; their leaders transmit at once.

    `together`: leaders are aligned, and one antenna receives the weighted sum. `separated`: each
    leader sends with all its power, and as many antennas as leaders take the signals apart. The
    reading in which leaders send in turn is `camu` itself, with radio.uplink = "analog".
    """

    signals: Literal["together", "separated"] = "together"
    name = "camu-air"
    family = "over the air"
    citation = "Sun et al., CAMU, section III-A: the received signal"
    choices = [
        "leaders send updates, not raw weights",
        "p_c is an amplitude, as in the paper's constraint on |p_k|^2",
        "a complex symbol carries two parameters",
    ]

    def plan(self, world: World) -> Plan:
        plan = super().plan(world)
        if self.signals == "together":
            return plan.over_the_air(ALIGNED)
        # Too few antennas, or channels that are parallel, are refused here.
        zero_forcing(world.links.channels(0)[plan.column("leader")])
        return plan.over_the_air(Separated())
