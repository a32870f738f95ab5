"""CPU frequencies: devices that would wait compute more slowly, for fewer joules in the same time.

A cycle costs energy in proportion to f^2, so a device that takes x times as long pays 1/x^2. The
slowest member sets the time of a local update; the others of its unit may compute as slowly. A unit
may also be ready later than it could be, up to the latest moment that leaves the round as long as
it was: under `ofdma` its air time before the end, under `tdma` in the same order of sending. All
these moments are reached at once, so no other frequencies cost less in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from camu.arrays import Float64
from camu.planning.costs import Costs, arrivals, unit_costs
from camu.planning.unit import Unit, UnitDvfs
from camu.world import World

# none: devices compute at their own frequency. members: as slowly as the slowest of their unit.
# units: also until the latest moment that leaves the round as long, where the server waits for all.
DvfsKind = Literal["none", "members", "units"]
DVFS_KINDS: tuple[str, ...] = get_args(DvfsKind)


def full_speed_costs(
    world: World,
    units: Sequence[Unit],
    parameters: int,
    *,
    uplink_gain: Float64 | None = None,
    uplinks: int | None = None,
) -> Costs:
    """What these units cost at their own frequencies; see `unit_costs`."""
    return unit_costs(
        world,
        [unit.members for unit in units],
        [unit.leader for unit in units],
        [unit.power_watts for unit in units],
        [unit.payload_bits for unit in units],
        parameters,
        rules=[unit.rule for unit in units],
        uplink_gain=uplink_gain,
        uplinks=uplinks,
    )


def with_dvfs(costs: Costs, units: Sequence[Unit], access: str, kind: DvfsKind) -> Costs:
    """The costs of a round of these units with slowed devices; seconds are those of full speed."""
    if kind == "none":
        return costs
    updates = np.array([float(unit.local_updates) for unit in units])
    sizes = costs.sizes
    extra = np.zeros(len(updates))
    if kind == "units":
        ready = costs.ready_seconds(updates)
        extra = latest_ready(ready, costs.uplink_seconds, access) - ready
    allowed = np.repeat(costs.compute_seconds + extra / updates, sizes)
    own = costs.member_compute_seconds
    speeds = np.divide(own, allowed, out=np.ones(len(own)), where=own > 0)
    joules = costs.member_compute_joules * speeds**2
    return replace(
        costs,
        compute_joules=np.add.reduceat(joules, np.cumsum(sizes) - sizes),
        member_compute_joules=joules,
        member_speeds=speeds,
        dvfs_seconds=extra,
    )


def latest_ready(ready: Float64, air: Float64, access: str) -> Float64:
    """When each unit must be ready at the latest, for a round of the same length and order."""
    end = float(arrivals(ready, air, access).max())
    if access == "ofdma":
        return np.asarray(np.maximum(end - air, ready))
    order = np.argsort(ready, kind="stable")
    latest = np.empty(len(ready))
    latest[order] = end - np.cumsum(air[order][::-1])[::-1]
    return np.maximum(latest, ready)  # rounding


def joules_if_late(costs: Costs, late_seconds: Float64) -> Float64:
    """Energy to compute one local update of each unit if that may take so much longer."""
    starts = np.cumsum(costs.sizes) - costs.sizes
    work = costs.member_compute_joules * costs.member_compute_seconds**2
    given = costs.compute_seconds + late_seconds
    total = np.add.reduceat(work, starts)
    return np.divide(total, given**2, out=np.zeros(len(given)), where=given > 0)


def dvfs_of_units(full: Costs, slow: Costs, units: Sequence[Unit], world: World) -> list[UnitDvfs]:
    """What slowed costs mean for each unit."""
    if slow.member_speeds is None:
        raise ValueError("these costs are at full speed")
    speeds = np.split(slow.member_speeds, np.cumsum(full.sizes)[:-1])
    saved = full.compute_joules - slow.compute_joules
    extra = np.broadcast_to(slow.dvfs_seconds, len(units))
    return [
        UnitDvfs(
            cpu_hz=tuple((speeds[k] * world.devices.cpu_hz[list(unit.members)]).tolist()),
            seconds=float(extra[k]),
            joules=unit.local_updates * float(saved[k]),
        )
        for k, unit in enumerate(units)
    ]
