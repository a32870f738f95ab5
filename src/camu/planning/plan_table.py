"""A plan as a table for other tools: a row per unit, with its leader, members and channel use."""

from __future__ import annotations

import csv
import io

from camu.planning.plan import Plan
from camu.world import World

COLUMNS = (
    "unit",
    "leader",
    "members",
    "local_updates",
    "power_watts",
    "max_power_watts",
    "base_station",
    "bandwidth_hz",
    "payload_bits",
    "uplink_seconds",
    "uplink_share",
    "gather_seconds",
    "compute_seconds",
    "compute_joules",
    "transmit_joules",
    "samples",
    "weight",
)


def plan_csv(plan: Plan, world: World) -> str:
    """The plan as CSV; members are separated by semicolons.

    `uplink_share` is the share of a round in which the unit's leader sends. `base_station` is the
    number of its base station, from 0.
    """
    ids, serving = world.devices.ids, world.links.serving
    bandwidth_hz = world.links.share(len(plan.units)).bandwidth_hz
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, unit in enumerate(plan.units):
        writer.writerow(
            [
                number,
                ids[unit.leader],
                ";".join(ids[member] for member in unit.members),
                unit.local_updates,
                unit.power_watts,
                float(world.devices.max_power_watts[unit.leader]),
                0 if serving is None else int(serving[unit.leader]),
                bandwidth_hz,
                unit.payload_bits,
                unit.uplink_seconds,
                unit.uplink_seconds / plan.round_seconds,
                unit.gather_seconds,
                unit.compute_seconds + unit.slow_seconds,
                unit.compute_joules,
                unit.transmit_joules,
                unit.samples,
                unit.weight,
            ]
        )
    return out.getvalue()
