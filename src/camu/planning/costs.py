"""What a round costs each unit in seconds and joules: computing, gathering, sending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.world import World
from camu.world.compute import update_joules, update_seconds

Floats = npt.NDArray[np.float64]
BITS_PER_PARAMETER = 32


@dataclass(frozen=True, eq=False)
class Costs:
    """Seconds and joules of one round, one array entry per unit."""

    compute_seconds: Floats  # N_c updates of the slowest member
    gather_seconds: Floats  # members send to the leader after every update
    uplink_seconds: Floats
    compute_joules: Floats
    gather_joules: Floats
    uplink_joules: Floats

    def of(self, index: int) -> dict[str, float]:
        """The costs of one unit by name."""
        return {name: float(values[index]) for name, values in vars(self).items()}


def unit_costs(
    world: World,
    members: Sequence[Sequence[int]],
    leaders: Sequence[int],
    updates: npt.ArrayLike,
    power_watts: npt.ArrayLike,
    payload_bits: int,
    uplink_gain: Floats | None = None,
) -> Costs:
    """The costs of these units in a round; uplink gains (K,) are the mean ones unless given.

    After every local update the members send to their leader, in turn over the whole band; units
    are far enough apart to reuse it. The leaders then share the uplink as `radio.access` says.
    """
    config, devices, links = world.config, world.devices, world.links
    parameters = payload_bits // BITS_PER_PARAMETER
    seconds = update_seconds(devices, config.training)
    joules = update_joules(devices, config.fleet, config.training, parameters)
    flat = np.concatenate([np.asarray(own, dtype=np.int64) for own in members])
    starts = np.cumsum([0, *(len(own) for own in members[:-1])])
    times = np.asarray(updates, dtype=float)
    power = np.asarray(power_watts, dtype=float)
    gather_seconds, gather_joules = _gather(world, members, leaders, payload_bits)
    gain = (links.uplink_gain if uplink_gain is None else uplink_gain)[np.array(leaders)]
    air = links.transmit_seconds(payload_bits, power, gain, links.share(len(members)).bandwidth_hz)
    return Costs(
        compute_seconds=times * np.maximum.reduceat(seconds[flat], starts),
        gather_seconds=times * gather_seconds,
        uplink_seconds=air,
        compute_joules=times * np.add.reduceat(joules[flat], starts),
        gather_joules=times * gather_joules,
        uplink_joules=power * air,
    )


def _gather(
    world: World, members: Sequence[Sequence[int]], leaders: Sequence[int], bits: int
) -> tuple[Floats, Floats]:
    """Seconds and joules for the members of each unit to send to their leader once."""
    seconds, joules = np.zeros(len(members)), np.zeros(len(members))
    for index, (own, leader) in enumerate(zip(members, leaders, strict=True)):
        others = np.array([device for device in own if device != leader], dtype=np.int64)
        if others.size:
            power = world.devices.power_watts[others]
            gain = world.links.device_gain(others, [leader])[:, 0]
            air = world.links.transmit_seconds(bits, power, gain)
            seconds[index], joules[index] = air.sum(), (power * air).sum()
    return seconds, joules
