"""COTAF: local SGD over the air, with precoding that follows the size of the updates."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from camu.arrays import Float64
from camu.planning.air import Amplitudes, Senders, Truncated, aligned
from camu.schemes.contract import NonNegative, Plan, State, View, World
from camu.schemes.local_sgd import LocalSgd

MARGIN = 1.1  # on the largest norm of the last round


@dataclass(frozen=True)
class Precoded(Truncated):
    """Aligned units; the common scale is that of an expected norm, and power is clipped."""

    norm: float | None = None  # expected max_k w_k ||s_k||; None: it is known

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        own = senders
        if not self.norm:
            return aligned(own, squares)
        eta = float((own.symbols * own.power_watts * own.gain).min()) / self.norm**2
        wanted = eta * own.weight**2 * squares / (own.symbols * own.gain)
        power = np.minimum(wanted, own.power_watts)
        part = np.sqrt(np.divide(power, wanted, out=np.ones(len(power)), where=wanted > 0))
        return Amplitudes(own.weight * part, math.sqrt(own.noise_watts / (2 * eta)), power)


@dataclass(frozen=True)
class Cotaf(LocalSgd):
    """Devices transmit their updates at once, scaled so that the largest one has all its power.

    As updates become smaller, the noise on their mean becomes smaller too.
    """

    norm: Literal["exact", "last"] = "exact"
    truncation: NonNegative = 0.0
    name = "cotaf"
    family = "over the air"
    citation = "Sery et al., Over-the-air federated learning from heterogeneous data, TSP 2021"
    simplified = ["the expectation of the largest norm is that of one round, not of many runs"]
    choices = [
        "`exact`: devices report their norms before they send; `last`: the largest norm of the "
        "last round, plus 10 %, and a device whose power would not do sends with all it has",
        "weights by data size are part of the amplitudes",
        "a complex symbol carries two parameters",
        "devices below `truncation` times their mean gain are silent",
    ]

    def plan(self, world: World) -> Plan:
        return super().plan(world).over_the_air(Precoded(self.truncation))

    def revise(self, view: View, state: State) -> Plan | None:
        norms = {unit: norm for one in view.arrived for unit, norm in one.norms.items()}
        sizes = [view.plan.units[unit].weight * norm for unit, norm in norms.items()]
        if self.norm == "exact" or not sizes or not math.isfinite(max(sizes)):
            return None
        return view.plan.over_the_air(Precoded(self.truncation, MARGIN * max(sizes)))
