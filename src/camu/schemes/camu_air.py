"""CAMU over the air: the paper's received signal y = sum_c h_c p_c s_c + n_0 as it stands."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from camu.arrays import Float64
from camu.planning.air import ALIGNED, Air, Amplitudes, Senders
from camu.schemes.camu import Camu
from camu.schemes.contract import Plan, World
from camu.world.antennas import zero_forcing_noise


@dataclass(frozen=True)
class Separated(Air):
    """The antennas take the sum apart by zero forcing: (H^H H)^-1 H^H y, noise on each signal."""

    combines = True

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        own = senders
        channels = own.links.channels(own.round)[own.leaders]
        each = own.noise_watts * zero_forcing_noise(channels) * squares
        noise = own.weight**2 * each / (2 * own.symbols * own.power_watts)
        return Amplitudes(own.weight, math.sqrt(float(noise.sum())), own.power_watts)


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
        leaders = np.array(plan.column("leader"))
        zero_forcing_noise(world.links.channels(0)[leaders])  # refuses too few antennas
        return plan.over_the_air(Separated())
