"""CPU frequencies: devices that would wait compute more slowly, for fewer joules in the same time.

A cycle costs energy in proportion to f^2, so a device that takes x times as long pays 1/x^2, and
its static power x times as long. So it slows down to the frequency at which both together are
least, or as far as it may, and races to idle if that is above its own frequency. The
slowest member sets the time of a local update; the others of its unit may compute as slowly. A unit
may also be ready later than it could be, up to the latest moment that leaves the round as long as
it was: under `ofdma` its air time before the end, under `tdma` in the same order of sending, with
other link types on the same channel, over the air until the last one is ready. A unit that waits
for the medium before each of its gathers may compute in that time instead, and is ready when it
was. All these moments are reached at once, so no other frequencies cost less in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from camu.arrays import Float64
from camu.planning.air import Signal
from camu.planning.costs import Costs
from camu.planning.prices import unit_costs
from camu.planning.queues import arrivals, latest_ready
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
    uplinks: Mapping[str, int] | None = None,
    round_: int | None = None,
    burst: Signal | None = None,
    gather_burst: Signal | None = None,
) -> Costs:
    """What these units cost at the frequencies that they are given; see `unit_costs`."""
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
        round_=round_,
        bandwidth_hz=[unit.bandwidth_hz for unit in units],
        interference_watts=[unit.interference_watts for unit in units],
        cpu_share=[unit.cpu_share for unit in units],
        burst=burst,
        gather_burst=gather_burst,
    )


def with_dvfs(costs: Costs, units: Sequence[Unit], access: str, kind: DvfsKind) -> Costs:
    """The costs of a round of these units with slowed devices; seconds are those of full speed."""
    if kind == "none":
        return costs
    updates = np.array([float(unit.local_updates) for unit in units])
    sizes = costs.sizes
    slack = np.zeros(len(updates))
    if kind == "units":
        slack = slack_seconds(costs, updates, access) / updates
    speeds, joules = _slowed(costs, slack)
    longer = costs.member_compute_seconds / speeds - np.repeat(costs.compute_seconds, sizes)
    starts = np.cumsum(sizes) - sizes
    extra = updates * np.maximum(np.maximum.reduceat(longer, starts), 0.0)
    return replace(
        costs,
        compute_joules=np.add.reduceat(joules, starts),
        member_compute_joules=joules,
        member_speeds=speeds,
        dvfs_seconds=extra,
    )


def slack_seconds(costs: Costs, updates: Float64 | float, access: str) -> Float64:
    """How much longer each unit may compute in a round that stays as long as it is."""
    ready = costs.ready_seconds(updates)
    slack = latest_ready(ready, costs.uplink_seconds, access, costs.queues) - ready
    gathers = costs.gathers(updates)
    if gathers is None:
        return slack
    # A later gather would delay others; what a unit waits before each of its own is free.
    return np.where(costs.sizes > 1, updates * gathers.shortest_wait, slack)


def _slowed(costs: Costs, slack: Float64) -> tuple[Float64, Float64]:
    """The speeds of members that may take so much longer per update, and the joules of one."""
    own, static = costs.member_compute_seconds, costs.static_watts
    dynamic = np.maximum(costs.member_compute_joules - static * own, 0.0)
    allowed = np.repeat(costs.compute_seconds + slack, costs.sizes)
    speeds = np.divide(own, allowed, out=np.ones(len(own)), where=own > 0)
    leaking = bool(np.any(static > 0))
    if leaking:  # energy dynamic s^2 + static own / s is least at this speed s
        best = np.cbrt(np.divide(static * own, 2 * dynamic, out=np.ones(len(own)), where=own > 0))
        speeds = np.maximum(speeds, np.minimum(best, 1.0))
    speeds = np.maximum(speeds, costs.member_slowest)
    joules = dynamic * speeds**2
    return speeds, joules + static * own / speeds if leaking else joules


def joules_if_late(costs: Costs, late_seconds: Float64) -> Float64:
    """Energy to compute one local update of each unit if that may take so much longer."""
    return np.add.reduceat(_slowed(costs, late_seconds)[1], np.cumsum(costs.sizes) - costs.sizes)


def priced_round(
    costs: Costs, gathers: int, access: str, slowed: bool = True
) -> tuple[float, float]:
    """Joules and seconds of a round with so many updates of each unit, as its plan has them.

    `slowed`: with devices that slow down where they would wait.
    """
    own, ready = costs, costs.ready_seconds(gathers)
    seconds = float(arrivals(ready, own.uplink_seconds, access, own.queues).max())
    longer = own.extra_joules(gathers) + own.extra_listening_joules(gathers)
    extra = float(longer.sum()) + own.all_idle_watts * seconds
    if slowed:
        slack = slack_seconds(own, gathers, access)
        own = replace(own, compute_joules=joules_if_late(own, slack / gathers))
    return float((own.fixed_joules + gathers * own.update_joules).sum()) + extra, seconds


def dvfs_of_units(full: Costs, slow: Costs, units: Sequence[Unit], world: World) -> list[UnitDvfs]:
    """What slowed costs mean for each unit."""
    if slow.member_speeds is None:
        raise ValueError("these costs are at full speed")
    speeds = np.split(slow.member_speeds, np.cumsum(full.sizes)[:-1])
    saved = full.compute_joules - slow.compute_joules
    extra = np.broadcast_to(slow.dvfs_seconds, len(units))
    return [
        UnitDvfs(
            cpu_hz=tuple(
                (speeds[k] * unit.cpu_share * world.devices.cpu_hz[list(unit.members)]).tolist()
            ),
            seconds=float(extra[k]),
            joules=unit.local_updates * float(saved[k]),
        )
        for k, unit in enumerate(units)
    ]
