"""Which devices hold a round up, and what it would win to replace them: plan and dry run again."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from camu.answers.dry import DryPlan
from camu.arrays import Float64, read_only_floats
from camu.planning.costs import flatten_groups
from camu.planning.dvfs import full_speed_costs
from camu.planning.plan import Plan
from camu.planning.prices import unit_costs
from camu.schemes import plans
from camu.work import Progress, silent
from camu.world import World

SHOWN = 10
_TRIED = 4  # times as many devices as are looked for are repriced before plans are made again
_LEAST = 0.005  # a round that is shorter by less counts as not shorter
_REFERENCE = 0.25  # the device that an upgrade makes of another: of this quantile of own seconds
_HARDWARE = (
    *("cpu_hz", "cycles_per_sample", "capacitance", "static_watts", "idle_watts"),
    *("sleep_watts", "board"),
    *("power_watts", "max_power_watts", "link", "rate_bps", "sample_seconds", "sample_joules"),
)
_TEXTS = ("board", "link")


@dataclass(frozen=True)
class Upgrade:
    """A device that holds a round up, and what a round costs once it is replaced."""

    device: int
    compute_seconds: float  # in which it computes in a round
    send_seconds: float  # in which it sends, to its leader, its members or the base station
    saved_seconds: float  # of a round
    saved_joules: float


@dataclass(frozen=True)
class Purchase:
    """Devices to replace together, the first one first, and what a round then costs."""

    devices: tuple[int, ...]
    seconds: float
    joules: float


def solo_seconds(world: World, plan: Plan) -> Float64:
    """What a round of each device alone takes: it computes one update, and sends the model (K,)."""
    count = world.devices.count
    alone = [(device,) for device in range(count)]
    bits = world.config.radio.bits_per_parameter * plan.parameters
    costs = unit_costs(
        world,
        alone,
        range(count),
        world.devices.power_watts,
        bits,
        plan.parameters,
        uplinks=dict.fromkeys(_bands(world), 1),
        alternatives=True,
    )
    return costs.compute_seconds + costs.uplink_seconds


def _bands(world: World) -> set[str]:
    from camu.planning.link_costs import bands

    return set(bands(world.links, range(world.devices.count)))


def reference(world: World, plan: Plan) -> int:
    """The device that others are made like: the slowest of the fastest quarter of the fleet."""
    seconds = solo_seconds(world, plan)
    order = np.argsort(seconds, kind="stable")
    return int(order[max(0, int(np.ceil(_REFERENCE * len(order))) - 1)])


def upgraded(world: World, devices: list[int], like: int) -> World:
    """The same fleet with these devices replaced by one like another.

    They get its computer, radio and link type, and an uplink as good as its own unless theirs is
    better. They stay where they are, with their data and batteries.
    """
    own, links = world.devices, world.links
    changes: dict[str, Any] = {}
    for field in fields(own):
        if field.name not in _HARDWARE:
            continue
        values = getattr(own, field.name)
        if field.name in _TEXTS:
            chosen = set(devices)
            new = tuple(values[like] if k in chosen else one for k, one in enumerate(values))
            changes[field.name] = new
        else:
            changed = np.array(values)
            changed[devices] = values[like]
            changes[field.name] = read_only_floats(changed)
    gain = np.array(links.uplink_gain)
    gain[devices] = np.maximum(gain[devices], gain[like])
    renewed = replace(own, **changes)
    return replace(world, links=replace(links, devices=renewed, uplink_gain=read_only_floats(gain)))


def own_seconds(plan: Plan, world: World) -> tuple[Float64, Float64]:
    """In a round, how long each device computes, and how long it sends, to anyone (K,)."""
    units, count = plan.units, world.devices.count
    costs = full_speed_costs(
        world,
        units,
        plan.parameters,
        burst=plan.burst,
        gather_burst=plan.gather_burst,
    )
    flat = flatten_groups([unit.members for unit in units])[0]
    updates = np.repeat([float(unit.local_updates) for unit in units], costs.sizes)
    compute, send = np.zeros(count), np.zeros(count)
    compute[flat] = updates * costs.member_compute_seconds
    if costs.medium is None:  # what each sends is not kept: an equal part
        send[flat] = updates * np.repeat(costs.gather_seconds / costs.sizes, costs.sizes)
    else:
        places = costs.medium.places
        send[flat[places]] = updates[places] * costs.medium.seconds
    send[[unit.leader for unit in units]] += costs.uplink_seconds
    return compute, send


def _candidates(plan: Plan, world: World, count: int) -> list[int]:
    """The devices that a shorter round may come from: the slowest to compute, and to send.

    Those of the unit that is ready last are among them.
    """
    compute, send = own_seconds(plan, world)
    last = max(plan.units, key=lambda unit: unit.ready_seconds).members
    order = [*np.argsort(-compute, kind="stable"), *np.argsort(-send, kind="stable")]
    slow = [
        int(k)
        for pair in zip(order[: len(compute)], order[len(compute) :], strict=True)
        for k in pair
    ]
    return list(dict.fromkeys([*slow[:count], *last[:count]]))[: 2 * count]


def holdups(
    dry: DryPlan, like: int, count: int = SHOWN, progress: Progress = silent
) -> list[Upgrade]:
    """The devices whose replacement shortens a round most, each alone, the largest gain first.

    With the plan kept, the most likely ones are priced first; for the best of these the scheme
    plans again, and a dry run says what a round takes then.
    """
    world, plan = dry.world, dry.plan
    tried = [k for k in _candidates(plan, world, _TRIED * count) if k != like]
    seconds = {}
    for number, device in enumerate(tried):
        progress("devices that hold a round up", number, len(tried) + count)
        seconds[device] = plan.repriced(upgraded(world, [device], like)).round_seconds
    compute, send = own_seconds(plan, world)
    best = sorted(tried, key=lambda k: (seconds[k], -(compute[k] + send[k])))[:count]
    found = []
    for number, device in enumerate(best):
        progress("devices that hold a round up", len(tried) + number, len(tried) + count)
        after = DryPlan.of(upgraded(world, [device], like), dry.scheme, dry.above_resting)
        found.append(
            Upgrade(
                device,
                float(compute[device]),
                float(send[device]),
                dry.cost.seconds - after.cost.seconds,
                dry.round_joules - after.round_joules,
            )
        )
    return sorted(found, key=lambda one: -one.saved_seconds)


def purchase(dry: DryPlan, like: int, count: int, progress: Progress = silent) -> Purchase:
    """So many devices to replace, one after the other the one that shortens the round most.

    Where no single one shortens it, the busiest of those that hold it up is next: units of several
    slow devices have to be replaced as a whole. The scheme plans again after each.
    """
    world, plan = dry.world, dry.plan
    chosen: list[int] = []
    for number in range(min(count, world.devices.count - 1)):
        progress("which devices to replace", number, count)
        compute, send = own_seconds(plan, world)
        busy = -(compute + send)
        tried = [k for k in _candidates(plan, world, SHOWN) if k not in chosen and k != like]
        if not tried:
            left = [k for k in range(world.devices.count) if k not in chosen and k != like]
            tried = sorted(left, key=lambda k: busy[k])[:SHOWN]
        seconds = {k: plan.repriced(upgraded(world, [k], like)).round_seconds for k in tried}
        shorter = {k: one for k, one in seconds.items() if one < (1 - _LEAST) * plan.round_seconds}
        best = min(shorter or tried, key=lambda k: (shorter.get(k, 0.0), busy[k]))
        chosen.append(best)
        world = upgraded(world, [best], like)
        plan = plans.plan(dry.scheme, world)
    after = DryPlan.of(world, dry.scheme, dry.above_resting)
    return Purchase(tuple(chosen), after.cost.seconds, after.round_joules)
