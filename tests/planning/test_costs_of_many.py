"""Costs and groups of many units at once: the numbers of a plain loop over units."""

from __future__ import annotations

import numpy as np
import pytest

from camu.arrays import send_in_turn
from camu.planning.contribution import group_counts
from camu.planning.groups import assess, make_plan
from camu.planning.prices import unit_costs
from camu.schemes import FedAvg
from helpers.small_fleets import device_gain, random_world

WORLD = random_world(60, 3)
DRAW = np.random.default_rng(5)
CUTS = np.sort(DRAW.choice(np.arange(1, 60), 17, replace=False))
MEMBERS = [own.tolist() for own in np.split(DRAW.permutation(60), CUTS)]
LEADERS = [int(DRAW.choice(own)) for own in MEMBERS]


def air_of(device: int, gain: float, bits: int) -> float:
    return float(WORLD.links.transmit_seconds(bits, WORLD.devices.power_watts[device], gain))


def test_the_gather_of_each_unit_by_a_loop() -> None:
    bits, parameters = 32 * 1000, 1000
    power = WORLD.devices.power_watts
    costs = unit_costs(WORLD, MEMBERS, LEADERS, power[LEADERS], bits, parameters)
    place = 0
    assert {len(own) for own in MEMBERS} >= {1, 2, 3}
    for index, (own, leader) in enumerate(zip(MEMBERS, LEADERS, strict=True)):
        senders = [device for device in own if device != leader]
        gain = device_gain(WORLD.links, senders, [leader])[:, 0] if senders else np.empty(0)
        air = WORLD.links.transmit_seconds(bits, power[senders], gain)
        answer = air_of(leader, gain.min(), bits) if senders else 0.0
        assert costs.answer_seconds[index] == answer
        assert costs.gather_seconds[index] == air.sum() + answer
        each = dict(zip(senders, power[senders] * air, strict=True)) | {
            leader: power[leader] * answer
        }
        assert costs.gather_joules[index] == pytest.approx(sum(each.values()), rel=1e-15)
        for device in own:
            assert costs.member_gather_joules[place] == each.get(device, 0.0)
            place += 1


def test_groups_are_measured_as_a_loop_measures_them() -> None:
    counts = WORLD.devices.label_counts
    found = group_counts(counts, MEMBERS)
    assert (found == np.stack([counts[own].sum(axis=0) for own in MEMBERS])).all()
    groups = assess(WORLD, MEMBERS, LEADERS)
    for own, shares in zip(MEMBERS, groups.member_weights, strict=True):
        samples = WORLD.devices.samples[own]
        assert shares == (samples / samples.sum()).tolist()


def test_a_plan_puts_every_number_into_its_field() -> None:
    groups = assess(WORLD, MEMBERS, LEADERS)
    updates = 1 + np.arange(len(groups)) % 3
    plan = make_plan(FedAvg(), groups, groups.sample_weights, updates)
    for index, unit in enumerate(plan.units):
        assert unit.members == tuple(MEMBERS[index])
        assert unit.leader == LEADERS[index]
        assert unit.weight == groups.sample_weights[index]
        assert unit.local_updates == updates[index]
        assert unit.power_watts == WORLD.devices.power_watts[unit.leader]
        assert unit.samples == WORLD.devices.samples[MEMBERS[index]].sum()
        assert unit.wasserstein == groups.wasserstein[index]
        assert unit.multi_update is bool(updates[index] > 1)
        assert unit.update_scale == 1.0
        assert unit.payload_bits == 32 * plan.parameters
    assert plan == plan.repriced(WORLD)


@pytest.mark.parametrize("seed", range(5))
def test_sending_in_turn_by_a_simulated_queue(seed: int) -> None:
    draw = np.random.default_rng(seed)
    ready, air = draw.integers(0, 6, 30).astype(float), draw.uniform(0.1, 1.0, 30)
    ends, clock, waiting = {}, 0.0, list(range(30))
    while waiting:
        first = min(waiting, key=lambda unit: (ready[unit], unit))
        waiting.remove(first)
        clock = max(clock, ready[first]) + air[first]
        ends[first] = clock
    assert send_in_turn(ready, air).tolist() == [ends[unit] for unit in range(30)]
