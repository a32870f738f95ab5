"""Leaders that take turns, so that the first battery of a unit lasts as long as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.planning.costs import in_a_row
from camu.planning.plan import Plan
from camu.planning.slow_down import full_speed_costs
from camu.planning.unit import Unit
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
    flat, starts = in_a_row([unit.members for unit in plan.units])
    unit = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(flat)))
    here = ~away[flat]
    flat, unit = flat[here], unit[here]
    several = np.bincount(unit, minlength=len(plan.units))[unit] > 1
    flat, unit = flat[several], unit[several]
    if not len(flat):
        return plan
    trials = _trials(flat, unit, charge_joules)
    lifetimes = _lifetimes(plan, world, trials, charge_joules)
    order = np.lexsort((trials.heads, spent_joules[trials.heads], -lifetimes, trials.units))
    first = order[np.flatnonzero(np.diff(trials.units[order], prepend=-1))]
    units = list(plan.units)
    for place in first[lifetimes[first] >= 0].tolist():
        index, leader = int(trials.units[place]), int(trials.heads[place])
        if units[index].leader != leader:
            units[index] = _led_by(units[index], leader, world)
    if all(new is old for new, old in zip(units, plan.units, strict=True)):
        return plan
    return replace(plan, units=tuple(units))


@dataclass(frozen=True, eq=False)
class _Trials:
    """Every candidate as the leader of its unit, with the members that it would have."""

    units: Int64  # (trials,) number of the unit
    heads: Int64  # (trials,) the leader that is tried
    starts: Int64  # (trials,) where the members of a trial begin
    members: Int64  # trial after trial
    trial: Int64  # the trial of each member


def _trials(flat: Int64, unit: Int64, charge_joules: Float64) -> _Trials:
    """The trials of units whose members are in a row."""
    order = np.lexsort((flat, -charge_joules[flat], unit))
    begin = np.flatnonzero(np.diff(unit, prepend=-1))
    sizes = np.diff(begin, append=len(flat))
    group = np.repeat(np.arange(len(begin)), sizes)
    rank = np.arange(len(flat)) - begin[group]
    chosen = rank < MOST_CANDIDATES
    heads, groups = flat[order][chosen], group[chosen]
    count = sizes[groups]
    starts = np.cumsum(count) - count
    trial = np.repeat(np.arange(len(heads)), count)
    places = np.repeat(begin[groups] - starts, count) + np.arange(int(count.sum()))
    return _Trials(unit[begin][groups], heads, starts, flat[places], trial)


def _lifetimes(plan: Plan, world: World, trials: _Trials, charge: Float64) -> Float64:
    """Rounds until the first member of each trial is empty; -1 where a link is too weak."""
    devices, links, config = world.devices, world.links, world.config
    units, members, trial = plan.units, trials.members, trials.trial

    def each(values: list[Any]) -> npt.NDArray[Any]:
        return np.array(values)[trials.units]

    heads = trials.heads[trial]
    leads = members == heads
    near = leads | (links.pair_snr_db(members, heads) >= config.clustering.min_link_snr_db)
    updates = each([float(unit.local_updates) for unit in units])
    listening = each([unit.receive_watts for unit in units])
    down = each([unit.downlink_seconds for unit in units])
    power = devices.power_watts[members]
    bits = config.radio.bits_per_parameter * plan.parameters
    gather = links.transmit_seconds(bits, power, links.pair_gain(members, heads))
    gather = np.where(leads, 0.0, gather)
    compute = _compute_joules(plan, world)[members]
    need = updates[trial] * (compute + power * gather)
    need += listening[trial] * down[trial]
    sending = links.transmit_joules(
        each([unit.payload_bits for unit in units]),
        _powers(
            world,
            trials.heads,
            each([unit.power_watts for unit in units]),
            each([unit.leader for unit in units]),
        ),
        links.uplink_gain[trials.heads],
        links.share(len(units)).bandwidth_hz,
    )
    receiving = listening * updates * np.add.reduceat(gather, trials.starts)
    need[leads] += sending + receiving
    left = np.where(np.isinf(charge[members]), np.inf, charge[members] / need)
    first = np.minimum.reduceat(left, trials.starts)
    return np.where(np.logical_and.reduceat(near, trials.starts), first, -1.0)


def _compute_joules(plan: Plan, world: World) -> Float64:
    """What one local update costs each device under the rule of its unit (K,)."""
    costs = plan.slow_costs(full_speed_costs(world, plan.units, plan.parameters), plan.units)
    joules = np.zeros(world.devices.count)
    joules[in_a_row([unit.members for unit in plan.units])[0]] = costs.member_compute_joules
    return joules


def _led_by(unit: Unit, leader: int, world: World) -> Unit:
    """A unit with another leader and the power that it sends with."""
    power = _powers(
        world, np.array([leader]), np.array([unit.power_watts]), np.array([unit.leader])
    )
    return replace(unit, leader=leader, power_watts=float(power[0]))


def _powers(world: World, devices: Int64, planned_watts: Float64, leaders: Int64) -> Float64:
    """Power of devices in place of leaders: their own, or as planned if that was optimised."""
    own, most = world.devices.power_watts, world.devices.max_power_watts[devices]
    optimised = planned_watts != own[leaders]
    return np.where(optimised, np.minimum(planned_watts, most), own[devices])
