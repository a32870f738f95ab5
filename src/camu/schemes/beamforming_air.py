"""Over-the-air aggregation with a receive vector for as many devices as an error limit allows."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.planning.several_antennas import Beamformed, units_below_error
from camu.schemes.contract import Plan, Positive, State, View, World
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class BeamformingAir(LocalSgd):
    """As many devices as possible send at once with an error of the mean below a limit."""

    mse_limit: Positive = 0.01  # of the mean, per entry of updates with unit variance
    name = "beamforming-air"
    family = "over the air"
    citation = (
        "Yang, Jiang, Shi, Ding, Federated learning via over-the-air computation, IEEE TWC 2020"
    )
    simplified = []
    choices = [
        "devices leave by their multipliers and are tried again; the original relaxes their number "
        "to a difference of convex functions",
        "the limit is for weights that add up to 1: 0.01 is about the original's 5 dB, 20 devices",
        "if nobody is below the limit, the device with the strongest channel sends alone",
    ]

    def plan(self, world: World) -> Plan:
        return super().plan(world).over_the_air(Beamformed())

    def select(self, view: View, state: State) -> Iterable[int]:
        """The largest set found with sigma^2 / min_k |f^H h_k|^2 P_k / w_k^2 <= the limit."""
        units = np.array(view.powered, dtype=np.int64)
        if not len(units):
            return ()
        leaders, power, weight = (
            view.plan.column(name)[units] for name in ("leader", "power_watts", "weight")
        )
        chosen = units_below_error(
            view.world.links, view.round, leaders, power, weight, self.mse_limit
        )
        return tuple(units[chosen].tolist())
