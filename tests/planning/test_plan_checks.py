"""A plan refuses what no fleet could carry out, and names the unit."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.errors import InputError
from camu.planning.costs import UpdateCost
from camu.schemes import FedAvg, Plan, Unit, assess, make_plan, single_devices
from camu.world import World, build_world

UNIT = Unit(
    members=(0, 1),
    leader=1,
    weight=0.5,
    member_weights=(0.25, 0.75),
    local_updates=1,
    power_watts=0.5,
    samples=40,
    wasserstein=1.0,
    contribution=100.0,
    multi_update=False,
    per_update=UpdateCost(1.0, 0.1, 0.3, 0.05),
    uplink_seconds=0.2,
    uplink_joules=0.1,
    payload_bits=32_000,
)
OTHER = dataclasses.replace(UNIT, members=(2,), leader=2, member_weights=(1.0,))


def plan(*units: Unit) -> Plan:
    return Plan("mine", 0, 1000, "tdma", units)


def test_a_good_plan_passes() -> None:
    assert plan(UNIT, OTHER).units == (UNIT, OTHER)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"leader": 7}, "the leader 7 is not a member"),
        ({"members": (2, 2), "leader": 2, "member_weights": (0.5, 0.5)}, "different devices"),
        ({"members": (), "member_weights": ()}, "at least one"),
        ({"members": (0,), "leader": 0}, "device 0 is in another unit too"),
        ({"weight": math.nan}, "weight = nan"),
        ({"weight": math.inf}, "weight = inf"),
        ({"weight": -0.5}, "weight = -0.5"),
        ({"member_weights": (0.9,)}, "add up to 0.9, not 1"),
        ({"member_weights": (math.nan,)}, "one number from 0 per member"),
        ({"member_weights": (0.5, 0.5)}, "one number from 0 per member"),
        ({"members": (2, 3), "member_weights": (-1.0, 2.0)}, "one number from 0 per member"),
        ({"local_updates": 0}, "local_updates = 0 must be at least 1"),
        ({"power_watts": 0.0}, "power_watts = 0.0 must be a positive number"),
        ({"power_watts": math.nan}, "power_watts = nan"),
        ({"power_watts": math.inf}, "power_watts = inf"),
    ],
)
def test_a_wrong_unit_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        plan(UNIT, dataclasses.replace(OTHER, **change))
    assert str(refused.value).startswith("scheme mine: unit 1: ")
    assert words in str(refused.value)


def test_weights_must_add_up_to_one() -> None:
    with pytest.raises(InputError, match=r"scheme mine: the units' weights add up to 0\.75, not 1"):
        plan(UNIT, dataclasses.replace(OTHER, weight=0.25))


def test_a_plan_needs_a_unit() -> None:
    with pytest.raises(InputError, match="scheme mine: the plan has no unit"):
        plan()


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(load_config(preset="demo", settings=["fleet.max_power_watts=1.0"]), 0)


def test_power_above_what_the_leader_can_send(world: World) -> None:
    groups = single_devices(world)
    power = np.full(20, 1.0)  # exactly the largest is allowed
    assert make_plan(FedAvg(), groups, groups.sample_weights, power_watts=power).units
    power[4] = 1.25
    with pytest.raises(
        InputError, match=r"scheme fedsgd: unit 4: power_watts = 1\.25 exceeds the 1 W"
    ):
        make_plan(FedAvg(), groups, groups.sample_weights, power_watts=power)


def test_groups_must_hold_devices(world: World) -> None:
    for groups in ([], [(1, 2), ()]):
        with pytest.raises(InputError, match="empty"):
            assess(world, groups)


def test_without_leaders_the_best_uplink_leads(world: World) -> None:
    uplink = world.links.uplink_snr()
    groups = assess(world, [range(7), range(7, 20)])
    assert groups.leaders == (int(uplink[:7].argmax()), 7 + int(uplink[7:].argmax()))
    assert groups.sample_weights == pytest.approx([7 / 20, 13 / 20])


def test_one_number_holds_for_all_units(world: World) -> None:
    groups = assess(world, [range(7), range(7, 20)])
    units = make_plan(FedAvg(), groups, groups.sample_weights, 3, power_watts=0.2).units
    assert {(u.local_updates, u.power_watts, u.multi_update) for u in units} == {(3, 0.2, True)}


def test_a_scheme_cannot_forget_the_weights(world: World) -> None:
    groups = assess(world, [range(7), range(7, 20)])
    with pytest.raises(InputError, match="weights add up to"):
        make_plan(FedAvg(), groups, np.array([0.5, 0.4]))


@pytest.mark.parametrize("updates", [1.5, [1, 2], "three"])
def test_local_updates_are_whole_numbers_one_or_one_per_group(updates: Any) -> None:
    groups = single_devices(build_world(load_config(preset="demo")))
    with pytest.raises(InputError, match=r"scheme fedsgd: local_updates = .*one whole number"):
        make_plan(FedAvg(), groups, groups.sample_weights, updates)


def test_a_wrong_number_of_weights_or_updates_is_refused_in_words() -> None:
    groups = single_devices(build_world(load_config(preset="demo")))
    with pytest.raises(InputError, match=r"scheme fedsgd: weights have shape \(1,\).*20 groups"):
        make_plan(FedAvg(), groups, [1.0])
    plan = make_plan(FedAvg(), groups, groups.sample_weights)
    with pytest.raises(InputError, match=r"local_updates: 1 values were given for 20 units"):
        plan.with_updates([1])


def test_columns_of_a_plan_are_read_only_and_changed_one_value_per_unit() -> None:
    made = plan(UNIT, OTHER)
    assert made.column("weight").tolist() == [0.5, 0.5]
    assert made.column("seconds") == pytest.approx([1.3, 1.3])
    with pytest.raises(ValueError, match="read-only"):
        made.column("weight")[0] = 1.0
    other = made.with_columns(weight=[0.25, 0.75]).with_rates([1.0, 0.5])
    assert other.column("weight").tolist() == [0.25, 0.75]
    assert [unit.rule.rate for unit in other.units] == [1.0, 0.5]
    assert made.column("weight").tolist() == [0.5, 0.5]
    with pytest.raises(InputError, match="weight: 1 values were given for 2 units; give one per"):
        made.with_columns(weight=[1.0])
