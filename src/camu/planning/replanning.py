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
from camu.planning import link_costs
from camu.planning.cells import interference
from camu.planning.plan import Plan
from camu.planning.prices import broadcast
from camu.planning.queues import arrivals
from camu.world import World

NUMBER_BITS = 32
MOST_REPORTED = 32  # other devices in a report


@dataclass(frozen=True, eq=False)
class Replanning:
    """Seconds, joules and bits of planning again; joules per device (K,)."""

    seconds: float
    transmit_joules: Float64
    receive_joules: Float64
    idle_joules: Float64
    base_station_joules: float
    uplink_bits: int
    downlink_bits: int

    @property
    def joules(self) -> Float64:
        """What it costs each device (K,)."""
        return self.transmit_joules + self.receive_joules + self.idle_joules


def report_bits(world: World) -> int:
    """The size of a device's report."""
    others = min(world.devices.count - 1, MOST_REPORTED)
    return NUMBER_BITS * (len(world.base_stations) + others)


def replanning_costs(
    world: World, plan: Plan, uplink_gain: Float64, there: npt.NDArray[np.bool_]
) -> Replanning:
    """What it costs to get from reports of these devices (K,), at these gains (K,), to a plan."""
    links, radio, bits = world.links, world.config.radio, report_bits(world)
    devices = np.flatnonzero(there)
    transmit, receive = np.zeros(len(there)), np.zeros(len(there))
    plan_bits = NUMBER_BITS * (len(there) + 3 * len(plan.units))
    if not len(devices):
        return Replanning(0.0, transmit, receive, np.zeros(len(there)), 0.0, 0, plan_bits)
    power, together = world.devices.power_watts[devices], link_costs.senders(links, devices)
    parts = np.array([together[band] for band in link_costs.bands(links, devices)])
    gain = uplink_gain[devices] / (1.0 + interference(world, devices, power))
    air = links.transmit_seconds(bits, power, gain, links.share(parts).bandwidth_hz)
    plain = link_costs.Sent(air, links.supply_watts(power) * air)
    who = devices.tolist()
    sent = link_costs.uplinks(world, who, power, gain, bits, together, plain)
    queues = link_costs.queues_of(links, who)
    reported = arrivals(np.zeros(len(who)), sent.seconds, radio.access, queues)
    heard = broadcast(world, devices, who, uplink_gain, plan_bits)
    transmit[devices] = sent.joules
    receive[devices] = heard.receive_watts * heard.seconds
    seconds = float(reported.max()) + float(np.max(heard.seconds))
    return Replanning(
        seconds=seconds,
        transmit_joules=transmit,
        receive_joules=receive,
        idle_joules=np.where(there, world.devices.idle_watts * seconds, 0.0),
        base_station_joules=radio.bs_power_watts * heard.station_seconds,
        uplink_bits=bits * len(who),
        downlink_bits=heard.copies * plan_bits,
    )
