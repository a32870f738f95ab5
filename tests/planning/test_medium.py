"""Gathers on a shared medium, against an event simulation of every message, written apart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import camu
from camu.planning import gathering, nearby
from camu.planning.costs import device_spending
from camu.planning.dvfs import full_speed_costs
from camu.planning.groups import Groups
from camu.planning.medium import short
from camu.planning.nearby import carrier_sense_watts
from camu.simulation.dry_run import dry_run
from camu.world import World
from helpers.configs import IDEAL

LAYOUT = IDEAL | {
    "data.samples_per_device": 60,
    "training.model": "logistic",
    "radio.receive_watts": 0.1,
}


def paper_world(**overrides: Any) -> World:
    return camu.build_world(camu.load_config(preset="study", overrides=LAYOUT | overrides))


def hears(world: World, first: int, second: int) -> bool:
    gain = float(world.links.pair_gain(np.array([first]), np.array([second]))[0])
    power = world.devices.power_watts
    return gain * max(power[first], power[second]) >= carrier_sense_watts(world)[first]


def messages(world: World, unit: camu.Unit, parameters: int) -> list[tuple[float, float]]:
    """Power and gain of each message of a gather: members in their order, then the answer."""
    power, bits = world.devices.power_watts, []
    for member in unit.members:
        if member != unit.leader:
            gain = world.links.pair_gain(np.array([member]), np.array([unit.leader]))[0]
            bits.append((float(power[member]), float(gain)))
    return [*bits, (float(power[unit.leader]), min(gain for _, gain in bits))]


def simulated(world: World, plan: camu.Plan) -> tuple[list[float], list[float], dict[int, float]]:
    """When each unit is ready, its joules of sending in gathers, and for how long each device
    listens: message by message.

    A unit is computing, waiting, sending message number i with so many bits left, or done.
    """
    radio, noise = world.config.radio, world.links.noise_watts
    bits = radio.bits_per_parameter * plan.parameters
    compute = [unit.per_update.compute_seconds for unit in plan.units]
    queue = [messages(world, u, plan.parameters) if len(u.members) > 1 else [] for u in plan.units]
    ready = [unit.local_updates * own for unit, own in zip(plan.units, compute, strict=True)]
    joules = [0.0] * len(plan.units)
    heard = {device: 0.0 for unit in plan.units for device in unit.members}
    computing = {k: compute[k] for k, own in enumerate(queue) if own}  # until when
    waiting: dict[int, float] = {}  # since when
    sending: dict[int, tuple[int, float]] = {}  # which message, bits left
    done = [0] * len(plan.units)
    now = 0.0
    leader = [unit.leader for unit in plan.units]
    gains = world.links.pair_gain(np.array(leader)[:, None], np.array(leader)).tolist()
    power_of = world.devices.power_watts[leader].tolist()
    near = [[hears(world, one, other) for other in leader] for one in leader]
    while computing or waiting or sending:
        for unit in [k for k, until in computing.items() if until <= now]:
            waiting[unit] = computing.pop(unit)
        for unit in sorted(waiting, key=lambda k: (waiting[k], k)):
            if not any(near[unit][other] for other in sending):
                del waiting[unit]
                sending[unit] = (0, bits)
        rates = {}
        for unit, (number, _) in sending.items():
            power, gain = queue[unit][number]
            others = 0.0
            for other in sending:
                if other != unit:
                    watts = gains[unit][other] * power_of[other]
                    others += watts if watts > 1e-3 * noise else 0.0
            rates[unit] = radio.bandwidth_hz * math.log2(1 + power * gain / (noise + others))
        ends = [now + left / rates[k] for k, (_, left) in sending.items()]
        following = min([*ends, *computing.values()], default=now)
        for unit in sorted(sending):
            number, left = sending[unit]
            power, _ = queue[unit][number]
            joules[unit] += power * (following - now)
            answers = number + 1 == len(queue[unit])
            for device in plan.units[unit].members:
                if (device != leader[unit]) == answers:
                    heard[device] += following - now
            left -= rates[unit] * (following - now)
            if left > 1e-9 * bits:
                sending[unit] = (number, left)
            elif number + 1 < len(queue[unit]):
                sending[unit] = (number + 1, bits)
            else:
                del sending[unit]
                done[unit] += 1
                ready[unit] = following
                if done[unit] < plan.units[unit].local_updates:
                    computing[unit] = following + compute[unit]
        now = following
    return ready, joules, heard


def check(world: World, plan: camu.Plan) -> None:
    ready, joules, heard = simulated(world, plan)
    assert plan.column("ready_seconds") == pytest.approx(ready, rel=1e-9)
    assert list(np.argsort(ready)) == list(np.argsort(plan.column("ready_seconds")))
    assert plan.column("gather_joules") == pytest.approx(joules, rel=1e-9, abs=1e-15)
    watts = world.config.radio.receive_watts
    received = [watts * sum(heard[device] for device in unit.members) for unit in plan.units]
    assert plan.column("receive_joules") == pytest.approx(received, rel=1e-9, abs=1e-15)
    costs = full_speed_costs(world, plan.units, plan.parameters)
    members, leaders = [u.members for u in plan.units], [u.leader for u in plan.units]
    updates = plan.column("local_updates").astype(float)
    spending = device_spending(members, leaders, updates, costs)
    each = [watts * heard[device] for device in spending.devices.tolist()]
    assert spending.receive_joules == pytest.approx(each, rel=1e-9, abs=1e-15)
    assert spending.busy_joules.sum() == pytest.approx(plan.column("joules").sum(), rel=1e-12)


@pytest.mark.parametrize("name", ["compute-rounds", "hierfavg", "camu-balanced"])
def test_a_round_on_the_paper_s_layout_is_that_of_the_messages(name: str) -> None:
    world = paper_world()
    plan = camu.plan(camu.make_scheme(world.config, name), world)
    check(world, replace(plan, dvfs="none").repriced(world))
    final = dry_run(world, camu.make_scheme(world.config, name), 1).final
    assert final.virtual_seconds == pytest.approx(plan.round_seconds, rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_random_units_far_and_near_gather_as_their_messages_do(seed: int) -> None:
    """Some hear each other, others interfere; powers, updates and speeds differ."""
    generator = np.random.default_rng(seed)
    regions = [
        {"name": str(k), "devices": int(generator.integers(1, 5)), "x": [x, x + 8], "y": [0, 8]}
        for k, x in enumerate(generator.uniform(0, 150, 6).round(1).tolist())
    ]
    world = paper_world(**{"fleet.regions": regions, "data.noniid_devices": 0, "run.seed": seed})
    members = [
        tuple(k for k, own in enumerate(world.devices.regions) if own == str(n)) for n in range(6)
    ]
    groups = camu.assess(world, members)
    updates = generator.integers(1, 5, 6)
    plan = camu.make_plan(camu.schemes.FedAvg(), groups, groups.sample_weights, updates)
    check(world, plan)
    costs = full_speed_costs(world, plan.units, plan.parameters)
    assert costs.round_joules(updates) == pytest.approx(plan.column("joules"), rel=1e-12)


def pairs_in_a_square(count: int, side: float, **overrides: Any) -> tuple[World, Groups]:
    """Units of two devices each, anywhere in a square, of several powers."""
    region = {"name": "square", "devices": 2 * count, "x": [0.0, side], "y": [0.0, side]}
    keys = {"fleet.regions": [region], "data.noniid_devices": 0, "data.with_replacement": True}
    world = paper_world(**keys, **overrides)
    power = world.devices.power_watts * np.tile([1.0, 0.3], count)
    world = world.with_devices(power_watts=power)
    return world, camu.assess(world, np.arange(2 * count).reshape(-1, 2).tolist())


@pytest.mark.parametrize("kept", [1 << 24, 100])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"radio.path_loss": "umi", "radio.carrier_sense_dbm": -80.0},
        {"radio.shadowing_db": 6.0},
    ],
)
def test_neighbours_found_by_place_are_those_of_all_pairs(
    keys: dict[str, Any], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "_BLOCK", 16)
    monkeypatch.setattr(nearby, "_MOST_KEPT", kept)
    world, groups = pairs_in_a_square(60, 200.0, **keys)
    shared = groups.costs_of_one_update.medium
    assert shared is not None
    found = 0
    for unit, leader in enumerate(groups.leaders):
        own = [k for k, other in enumerate(groups.leaders) if hears(world, leader, other)]
        assert shared.neighbours(unit).tolist() == [k for k in own if k != unit]
        found += len(own) - 1
    assert 60 < found < 60 * 59


def test_many_clusters_gather_as_their_messages_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a block of them, of which many interfere at a time."""
    monkeypatch.setattr(nearby, "_BLOCK", 16)
    _, groups = pairs_in_a_square(30, 350.0)
    updates = np.random.default_rng(1).integers(1, 3, 30)
    plan = camu.make_plan(camu.schemes.FedAvg(), groups, groups.sample_weights, updates)
    check(groups.world, plan)
    assert plan.column("wait_seconds").max() > 0
    assert plan.column("interference_joules").max() > 0


def test_a_round_that_is_asked_for_again_is_not_computed_again() -> None:
    _, groups = pairs_in_a_square(5, 30.0)
    power = groups.world.devices.power_watts[np.array(groups.leaders)]
    first, again = groups.costs(power), groups.costs(0.5 * power)  # uplinks are not gathers
    assert again.gathers(2.0) is first.gathers(2.0)
    assert first.gathers(3.0) is not first.gathers(2.0)
    assert first.with_steps(2).gathers(2.0) is not first.gathers(2.0)


def test_interference_is_met_in_these_worlds() -> None:
    world = paper_world(**{"radio.carrier_sense_dbm": 20.0})  # nobody hears anyone
    plan = camu.plan(camu.make_scheme(world.config, "hierfavg"), world)
    for name in ("interference_joules", "interference_listening_joules"):
        assert (plan.column(name)[plan.column("gather_seconds") > 0] > 0).any()
    check(world, plan)


def test_who_hears_all_gathers_in_one_queue_and_who_hears_nobody_at_once() -> None:
    shared = paper_world()
    plan = camu.plan(camu.make_scheme(shared.config, "clustered"), shared)
    costs = full_speed_costs(shared, plan.units, plan.parameters)
    gathers = costs.sizes > 1
    queued = camu.arrays.send_in_turn(costs.compute_seconds[gathers], costs.gather_seconds[gathers])
    assert plan.column("ready_seconds")[gathers] == pytest.approx(queued, rel=1e-12)
    free = paper_world(**{"radio.d2d": "free"})
    alone = plan.repriced(free)
    assert (alone.column("wait_seconds") == 0).all()
    assert alone.column("ready_seconds") == pytest.approx(costs.busy_seconds(1.0), rel=1e-12)
    assert plan.round_joules == pytest.approx(alone.round_joules, rel=1e-12)


def test_carrier_sensing_scales_with_the_band() -> None:
    narrow, wide = paper_world(), paper_world(**{"radio.bandwidth_hz": 2e7})
    assert carrier_sense_watts(wide) == pytest.approx(10 ** ((-82 - 30) / 10))
    assert carrier_sense_watts(narrow) == pytest.approx(carrier_sense_watts(wide) / 20)


def test_the_answer_is_sent_timed_and_paid() -> None:
    world = paper_world(**{"radio.d2d": "free", "radio.receive_watts": 0.1})
    groups = camu.assess(world, [(0, 1, 2)], [1])
    costs = groups.costs(np.array([0.5]))
    bits, power = costs.downlink_bits, world.devices.power_watts
    gain = world.links.pair_gain(np.array([0, 2]), np.array([1, 1]))
    noise, band = world.links.noise_watts, world.config.radio.bandwidth_hz
    up = [
        bits / (band * math.log2(1 + power[k] * g / noise))
        for k, g in zip((0, 2), gain, strict=True)
    ]
    answer = bits / (band * math.log2(1 + power[1] * gain.min() / noise))
    assert costs.answer_seconds == pytest.approx([answer], rel=1e-12)
    assert costs.gather_seconds == pytest.approx([sum(up) + answer], rel=1e-12)
    sent = [power[0] * up[0], power[1] * answer, power[2] * up[1]]
    assert costs.member_gather_joules == pytest.approx(sent, rel=1e-12)
    heard = world.config.radio.receive_watts * (sum(up) + 2 * answer)
    assert costs.listening_joules == pytest.approx([heard], rel=1e-12)
    assert costs.gather_bits.tolist() == [3 * bits]


@pytest.mark.slow
@pytest.mark.parametrize("side", [350.0, 1100.0, 3600.0])  # 80, 810 and 8 600 m2 per device
def test_a_gather_is_work_for_those_whom_it_disturbs_only(
    side: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once when it begins and once when it ends, however many gather far away."""
    updated, add = 0, gathering._Sending._add_level

    def counted(own: Any, columns: Any, change: Any) -> None:
        nonlocal updated
        updated += len(columns)
        add(own, columns, change)

    monkeypatch.setattr(gathering._Sending, "_add_level", counted)
    world, groups = pairs_in_a_square(750, side)
    leaders = np.array(groups.leaders)
    gains = world.links.pair_gain(leaders[:, None], leaders)
    np.fill_diagonal(gains, 0.0)
    near = gains * world.devices.power_watts[leaders] > 1e-3 * world.links.noise_watts
    camu.make_plan(camu.schemes.FedAvg(), groups, groups.sample_weights)
    assert 0 < updated <= 2 * (near | near.T).sum()
    assert side < 3000 or (near | near.T).mean() < 0.1


def test_a_world_without_waits_has_the_same_clusters() -> None:
    world = paper_world()
    free = world.without_waits()
    assert camu.schemes.clusters(free).members == camu.schemes.clusters(world).members
    plan = camu.plan(camu.make_scheme(free.config, "camu"), free)
    assert (plan.column("wait_seconds") == 0).all()
    assert camu.planning.groups.clustering(free) is camu.planning.groups.clustering(world)


def test_arrays_that_are_divided_elsewhere_are_not_the_same() -> None:
    """Units 0 and 1 led by 5 are not unit 0 led by 1 and 5."""
    one, two = ((np.array([0, 1]), np.array([5])), (np.array([0]), np.array([1, 5])))
    assert short(*one) != short(*two)
    assert short(*one) == short(*(array.copy() for array in one))
