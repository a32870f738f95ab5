"""Leaders in turn: the choice by brute force, and what it does for the first battery."""

from __future__ import annotations

import numpy as np
import pytest

from camu.arrays import Float64
from camu.planning import rotation
from camu.planning.groups import assess, make_plan
from camu.planning.plan import Plan
from camu.planning.rotation import rotated
from camu.schemes import FedAvg
from camu.simulation import dry_run
from camu.simulation.dry_run import battery_life
from camu.world import World
from helpers.small_fleets import make_world, random_world

NOBODY = np.zeros(12, dtype=bool)


def plan_of(world: World, groups: list[list[int]], leaders: list[int], updates: int = 1) -> Plan:
    found = assess(world, groups, leaders)
    return make_plan(FedAvg(), found, found.sample_weights, updates)


def rounds_until_empty(plan: Plan, world: World, charge: Float64, index: int) -> dict[int, float]:
    """Rounds until the first of a unit is empty under each leader, from priced plans."""
    found = {}
    for leader in plan.units[index].members:
        groups = [list(unit.members) for unit in plan.units]
        leaders = [unit.leader for unit in plan.units]
        leaders[index] = leader
        other = plan_of(world, groups, leaders, plan.units[index].local_updates)
        # A round of this plan, device by device.
        full = world.with_devices(battery_joules=np.full(world.devices.count, 1e9))
        need = battery_life(full, FedAvg(), other).round_joules
        own = list(plan.units[index].members)
        found[leader] = float((charge[own] / need[own]).min())
    return found


def test_candidates_of_a_unit_do_not_disturb_each_other() -> None:
    """Only one of them will gather, so that they are compared as on a free medium."""
    far = "fleet.base_station=[300.0,0.0,9.0]"
    charge = np.random.default_rng(2).uniform(1, 5, 12)
    leaders = []
    for key in ("radio.d2d=free", "radio.carrier_sense_dbm=0"):
        world = random_world(12, 4, [key, far])
        plan = plan_of(world, [[0, 1, 2, 3, 4], [5, 6, 7], [8], [9, 10, 11]], [0, 5, 8, 9], 2)
        now = rotated(plan, world, charge, np.zeros(12), NOBODY)
        leaders.append([unit.leader for unit in now.units])
    assert leaders[0] == leaders[1]


@pytest.mark.parametrize("downlink", ["false", "true"])
def test_the_leader_is_the_best_of_all_members(downlink: str) -> None:
    world = random_world(
        12, 4, [f"radio.downlink={downlink}", "fleet.base_station=[300.0,0.0,9.0]"]
    )
    plan = plan_of(world, [[0, 1, 2, 3, 4], [5, 6, 7], [8], [9, 10, 11]], [0, 5, 8, 9], 2)
    charge = np.random.default_rng(2).uniform(1, 5, 12)
    now = rotated(plan, world, charge, np.zeros(12), NOBODY)
    assert [unit.leader for unit in now.units] != [unit.leader for unit in plan.units]
    for index, unit in enumerate(now.units):
        found = rounds_until_empty(plan, world, charge, index)
        assert unit.leader == max(found, key=lambda device: found[device])
        assert unit.members == plan.units[index].members
    assert rotated(now, world, charge, np.zeros(12), NOBODY) is now


def test_devices_that_are_away_neither_lead_nor_count() -> None:
    world = random_world(12, 4)
    plan = plan_of(world, [[0, 1, 2, 3], list(range(4, 12))], [0, 4])
    charge = np.full(12, 5.0)
    charge[2] = 0.0
    away = NOBODY.copy()
    away[[2, 4, 5, 6, 7, 8, 9, 10, 11]] = True
    now = rotated(plan, world, charge, np.zeros(12), away)
    found = rounds_until_empty(plan_of(world, [[0, 1, 3], [4]], [0, 4]), world, charge, 0)
    assert now.units[0].leader == max(found, key=lambda device: found[device])
    assert now.units[1].leader == 4


def test_on_mains_power_the_one_that_spent_least_leads() -> None:
    world = random_world(12, 4)
    plan = plan_of(world, [list(range(12))], [0])
    spent = np.arange(12.0)
    spent[7] = -1.0
    now = rotated(plan, world, np.full(12, np.inf), spent, NOBODY)
    assert now.units[0].leader == 7


def test_a_leader_reaches_all_members() -> None:
    places = [[0, 0], [40, 0], [80, 0]]  # the one in the middle reaches both others
    probe = make_world(places, [[50]] * 3)
    near, far = (float(probe.links.pair_snr_db(np.array([0]), np.array([k]))[0]) for k in (1, 2))
    setting = f"clustering.min_link_snr_db={(near + far) / 2}"
    world = make_world(places, [[50]] * 3, [setting])
    plan = plan_of(world, [[0, 1, 2]], [0])
    charge, nobody = np.array([9.0, 1.0, 5.0]), np.zeros(3, dtype=bool)
    assert rotated(plan, world, charge, np.zeros(3), nobody).units[0].leader == 1


def test_an_optimised_power_stays_within_the_new_leaders_limit() -> None:
    world = random_world(12, 4)
    limits = np.full(12, 0.9)
    limits[7] = 0.6
    world = world.with_devices(max_power_watts=limits)
    groups = assess(world, [list(range(12))], [0])
    spent = np.arange(12.0)
    spent[7] = -1.0
    for planned, expected in ((0.8, 0.6), (0.55, 0.55), (0.5, 0.5)):
        plan = make_plan(FedAvg(), groups, [1.0], 1, [planned])
        now = rotated(plan, world, np.full(12, np.inf), spent, NOBODY)
        assert (now.units[0].leader, now.units[0].power_watts) == (7, expected)


def test_a_large_unit_tries_those_with_the_most_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = random_world(12, 4)
    plan = plan_of(world, [list(range(12))], [0])
    charge = np.arange(1.0, 13.0)
    monkeypatch.setattr(rotation, "MOST_CANDIDATES", 1)
    assert rotated(plan, world, charge, np.zeros(12), NOBODY).units[0].leader == 11


def test_turns_that_are_taken_together_change_a_forecast_by_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = ["clustering.rotate_every=5", "clustering.leader=rotating"]
    world = random_world(12, 4, [*settings, "fleet.base_station=[600.0,0.0,10.0]"])
    plan = plan_of(world, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], [0, 4, 8])
    joules = 3000 * plan.round_joules / 12
    world = world.with_devices(battery_joules=np.full(12, joules))
    quick = battery_life(world, FedAvg(), plan)
    monkeypatch.setattr(dry_run, "_TURNS", 10**9)
    exact = battery_life(world, FedAvg(), plan)
    assert exact.empty_round.min() > 2 * 200 * 5
    assert quick.empty_round == pytest.approx(exact.empty_round, rel=0.01)


def test_rotation_lengthens_the_time_to_the_first_empty_device() -> None:
    settings = ["fleet.base_station=[600.0,0.0,10.0]", "clustering.rotate_every=5"]
    first = {}
    for leader in ("exemplar", "rotating"):
        world = random_world(12, 4, [*settings, f"clustering.leader={leader}"])
        world = world.with_devices(battery_joules=np.full(12, 2000.0))
        plan = plan_of(world, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], [0, 4, 8])
        first[leader] = battery_life(world, FedAvg(), plan).empty_round.min()
    assert first["rotating"] > 2 * first["exemplar"]
