"""Over-the-air aggregation with a receive vector for as many devices as an error limit allows."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from camu.allocation.beamforming import receive_beam, select_devices
from camu.arrays import Float64
from camu.planning.air import Air, Amplitudes, Senders, aligned
from camu.schemes.contract import Plan, Positive, State, View, World
from camu.schemes.local_sgd import LocalSgd
from camu.seeding import Stream, derive
from camu.world.antennas import Complex128
from camu.world.links import Links


def _starts(links: Links, round_: int) -> Stream:
    """The random starts of the search for a receive vector."""
    return derive(links.seed, "receive-vector", round_)


def _scaled(channels: Complex128, power_watts: Float64, weight: Float64) -> Complex128:
    """g_k = h_k sqrt(P_k) / w_k; a unit of no weight limits nobody."""
    scale = np.sqrt(power_watts) / np.maximum(weight, 1e-9)
    return np.asarray(scale[:, None] * channels)


@dataclass(frozen=True)
class Beamformed(Air):
    """Aligned units, received with the vector f that serves the worst of them best."""

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        channels = senders.links.channels(senders.round)[senders.leaders]
        scaled = _scaled(channels, senders.power_watts, senders.weight)
        beam = receive_beam(scaled, _starts(senders.links, senders.round))
        gain = np.square(np.abs(channels.conj() @ beam.vector))  # |f^H h_k|^2
        return aligned(replace(senders, gain=gain), squares)


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
        "one limit for weights that add up to 1: 0.01 is about the original's 5 dB for 20 devices",
    ]

    def plan(self, world: World) -> Plan:
        return super().plan(world).over_the_air(Beamformed()).repriced(world)

    def select(self, view: View, state: State) -> Iterable[int]:
        """The largest set found with sigma^2 / min_k |f^H h_k|^2 P_k / w_k^2 <= the limit."""
        units = np.array(view.powered, dtype=np.int64)
        if not len(units):
            return []
        links, plan = view.world.links, view.plan
        channels = links.channels(view.round)[plan.column("leader")[units]]
        scaled = _scaled(channels, plan.column("power_watts")[units], plan.column("weight")[units])
        target = links.noise_watts / self.mse_limit
        chosen, _ = select_devices(scaled, target, _starts(links, view.round))
        return tuple(units[chosen].tolist())
