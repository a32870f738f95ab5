"""Leaders that take turns, so that the first battery of a unit lasts as long as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.planning.costs import device_spending, flatten_groups
from camu.planning.dvfs import full_speed_costs
from camu.planning.link_costs import senders
from camu.planning.plan import Plan
from camu.planning.prices import unit_costs
from camu.world import World

MOST_CANDIDATES = 32  # per unit: those with the most energy left


def rotated(
    plan: Plan,
    world: World,
    charge_joules: Float64,
    spent_joules: Float64,
    away: npt.NDArray[np.bool_],
) -> Plan:
    """The plan with the leaders whose turn it is; without a change it is the same plan.

    A unit is led by the member under which its first battery lasts longest, counted from what is
    left in each (K,). Of equal ones, as where all are on mains power, it is the one that has spent
    the least. A leader needs a usable link to every other member; where no member has that, the
    leader stays. Devices that are away (K,) do not count. Prices are those of the old leaders:
    call `repriced`.
    """
    found = []  # the candidates of each unit with several members that are there
    for number, unit in enumerate(plan.units):
        there = [device for device in unit.members if not away[device]]
        if len(there) > 1:
            most = sorted(there, key=lambda device: (-charge_joules[device], device))
            found += [(number, device, there) for device in most[:MOST_CANDIDATES]]
    if not found:
        return plan
    units = np.array([number for number, _, _ in found])
    leaders = np.array([leader for _, leader, _ in found])
    # A leader sends with its own power, or as planned if that was optimised.
    own, planned = world.devices.power_watts, plan.column("power_watts")[units]
    optimised = planned != own[plan.column("leader")[units]]
    most_watts = world.devices.max_power_watts[leaders]
    power = np.where(optimised, np.minimum(planned, most_watts), own[leaders])
    members = [there for _, _, there in found]
    rounds = _rounds(plan, world, units, leaders, power, members, charge_joules)
    order = np.lexsort((leaders, spent_joules[leaders], -rounds, units))
    best = order[np.flatnonzero(np.diff(units[order], prepend=-1))]
    best = best[rounds[best] >= 0]
    best = best[leaders[best] != plan.column("leader")[units[best]]]
    if not len(best):
        return plan
    leading, powers = plan.column("leader").copy(), plan.column("power_watts").copy()
    leading[units[best]], powers[units[best]] = leaders[best], power[best]
    return plan.with_columns(leader=leading.tolist(), power_watts=powers.tolist())


def _rounds(
    plan: Plan,
    world: World,
    numbers: Int64,
    leaders: Int64,
    power_watts: Float64,
    members: Sequence[Sequence[int]],
    charge: Float64,
) -> Float64:
    """Rounds until the first member of a unit is empty, for each leader that it could have.

    `numbers` are those of the units in the plan. It is -1 where a link is too weak.
    """
    units = [plan.units[number] for number in numbers]
    flat, starts = flatten_groups(members)
    costs = unit_costs(
        world,
        members,
        leaders.tolist(),
        power_watts,
        [unit.payload_bits for unit in units],
        plan.parameters,
        rules=[unit.rule for unit in units],
        uplinks=senders(world.links, plan.column("leader")),
        bandwidth_hz=[unit.bandwidth_hz for unit in units],
        interference_watts=[unit.interference_watts for unit in units],
        cpu_share=[unit.cpu_share for unit in units],
        burst=plan.burst,
        gather_burst=plan.gather_burst,
        alternatives=True,
    )
    heard = np.array([unit.downlink_seconds for unit in units])  # all devices listen
    seconds = plan.round_seconds if np.any(costs.idle_watts) else 0.0
    # Of a unit's candidates only one gathers, so that none waits for another here.
    costs = replace(costs, downlink_seconds=heard, round_seconds=seconds, medium=None)
    if plan.dvfs != "none":
        joules = np.zeros(world.devices.count)
        full = full_speed_costs(
            *(world, plan.units, plan.parameters),
            burst=plan.burst,
            gather_burst=plan.gather_burst,
        )
        slow = plan.dvfs_costs(full, plan.units)
        everyone = flatten_groups([unit.members for unit in plan.units])[0]
        joules[everyone] = slow.member_compute_joules
        costs = replace(costs, member_compute_joules=joules[flat])
    updates = plan.column("local_updates")[numbers].astype(np.float64)
    need = device_spending(members, leaders.tolist(), updates, costs).joules
    left = np.where(np.isinf(charge[flat]), np.inf, charge[flat] / need)
    lead = np.repeat(leaders, costs.sizes)
    least = world.config.clustering.min_link_snr_db
    near = (flat == lead) | world.links.hear(flat, lead, least)
    first = np.minimum.reduceat(left, starts)
    return np.where(np.logical_and.reduceat(near, starts), first, -1.0)
