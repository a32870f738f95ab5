"""What planning again costs: every device reports its links, and all hear of the new plan.

A report holds the SNR of a device's links to every base station and to at most 32 other devices,
those that it hears best, in 32 bits each. It is sent as bits at the device's own power, and arrives
without error; reports share the uplink as `radio.access` says. The broadcast of the plan has 32
bits for each device (its unit) and 96 for each unit (leader, local updates, power). As for models,
receiving costs time and energy with `radio.downlink` only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.planning.cells import interference, sharing
from camu.planning.costs import arrivals, broadcast_seconds
from camu.planning.plan import Plan
from camu.world import World

NUMBER_BITS = 32
MOST_REPORTED = 32  # other devices in a report


@dataclass(frozen=True, eq=False)
class Replanning:
    """Seconds, joules and bits of planning again; joules per device (K,)."""

    seconds: float
    transmit_joules: Float64
    receive_joules: Float64
    base_station_joules: float
    uplink_bits: int
    downlink_bits: int

    @property
    def joules(self) -> Float64:
        """What it costs each device (K,)."""
        return self.transmit_joules + self.receive_joules


def report_bits(world: World) -> int:
    """The size of a device's report."""
    others = min(world.devices.count - 1, MOST_REPORTED)
    return NUMBER_BITS * (len(world.base_stations) + others)


def replanning_costs(
    world: World, plan: Plan, uplink_gain: Float64, there: npt.NDArray[np.bool_]
) -> Replanning:
    """What it costs to get from reports of these devices (K,), at these gains (K,), to a plan."""
    links, radio, bits = world.links, world.config.radio, report_bits(world)
    devices, transmit = np.flatnonzero(there), np.zeros(len(there))
    power = world.devices.power_watts[devices]
    band = links.share(sharing(world, devices, devices)).bandwidth_hz
    gain = uplink_gain[devices] / (1.0 + interference(world, devices, power))
    air = links.transmit_seconds(bits, power, gain, band)
    transmit[devices] = links.supply_watts(power) * air
    plan_bits = NUMBER_BITS * (len(there) + 3 * len(plan.units))
    heard = broadcast_seconds(world, uplink_gain[devices], plan_bits) if len(devices) else 0.0
    reported = arrivals(np.zeros(len(air)), air, radio.access, links.cells[devices])
    return Replanning(
        seconds=float(reported.max(initial=0.0)) + heard,
        transmit_joules=transmit,
        receive_joules=np.where(there, radio.receive_watts * heard, 0.0),
        base_station_joules=radio.bs_power_watts * heard,
        uplink_bits=bits * len(devices),
        downlink_bits=plan_bits,
    )
