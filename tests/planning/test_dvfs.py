"""Slow-down: the least joules in the same seconds, the same for plan, file, ledger and command."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from camu.arrays import send_in_turn
from camu.planning.dvfs import full_speed_costs
from camu.planning.groups import assess, make_plan
from camu.planning.queues import latest_ready
from camu.schemes import (
    CamuBalanced,
    ComputeRounds,
    FedAsync,
    FedAvg,
    HierFavg,
    Plan,
    Scheme,
    plans,
)
from camu.simulation import simulate
from camu.world import World

Tiny = Callable[..., World]
Camu = Callable[..., Any]
# Computing takes about as long as sending, so that units wait before and after they send.
FLEET: dict[str, Any] = {"fleet__dvfs": True, "fleet__cycles_per_sample": 4e6}


def ends(ready: npt.NDArray[Any], air: npt.NDArray[Any], access: str) -> npt.NDArray[Any]:
    return ready + air if access == "ofdma" else send_in_turn(ready, air)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_units_are_ready_later_in_the_same_order_and_the_round_is_no_longer(access: str) -> None:
    generator = np.random.default_rng(5)
    moved = 0
    for _ in range(300):
        count = int(generator.integers(1, 8))
        ready, air = generator.random(count), generator.random(count) * generator.choice([0.01, 1])
        latest = latest_ready(ready, air, access)
        assert (latest >= ready).all()
        before, after = ends(ready, air, access), ends(latest, air, access)
        assert after.max() == pytest.approx(before.max(), rel=1e-12)
        if access == "tdma":
            assert (np.argsort(latest, kind="stable") == np.argsort(ready, kind="stable")).all()
        # A little later than the latest moment, and the round is longer.
        for unit in range(count):
            later = latest.copy()
            later[unit] += 1e-3
            if (np.argsort(later, kind="stable") == np.argsort(ready, kind="stable")).all():
                assert ends(later, air, access).max() > before.max() + 0.9e-3
        moved += int((latest > ready + 1e-9).sum())
    assert moved > 300


def least_joules(plan: Plan, world: World) -> float:
    """The least computing joules of a round, by a general solver over times of every member.

    Variables are the seconds of an update of each member and when each unit begins to send.
    """
    training, devices = world.config.training, world.devices
    batch = np.ceil(training.batch_fraction * devices.samples)
    cycles = devices.cycles_per_sample * np.broadcast_to(batch, devices.count)
    units = sorted(plan.units, key=lambda unit: unit.ready_seconds)
    members = [k for unit in units for k in unit.members]
    owner = [u for u, unit in enumerate(units) for _ in unit.members]
    steps = np.array([units[u].local_updates * units[u].rule.steps for u in owner])
    fastest = np.array([cycles[k] / devices.cpu_hz[k] for k in members])
    count = len(members)

    def joules(x: npt.NDArray[Any]) -> float:
        hertz = cycles[members] / (x[:count] * fastest)
        return float(np.sum(steps * devices.capacitance[members] * cycles[members] * hertz**2))

    def spare(x: npt.NDArray[Any]) -> list[float]:
        send = x[count:]
        found = []
        for place, u in enumerate(owner):
            unit = units[u]
            busy = steps[place] * x[place] * fastest[place] + unit.gather_seconds
            found.append(send[u] - unit.downlink_seconds - busy)
        if plan.access == "tdma":
            for first, second in pairwise(range(len(units))):
                found.append(send[second] - send[first] - units[first].uplink_seconds)
        ended = [at + u.uplink_seconds for at, u in zip(send, units, strict=True)]
        found += [plan.round_seconds - end for end in ended]
        return found

    full = dataclasses.replace(plan, dvfs="none").repriced(world)
    arrive = dict(zip(full.units, full.arrival_seconds, strict=True))
    by_leader = {unit.leader: arrive[unit] - unit.uplink_seconds for unit in full.units}
    start = np.array([1.0] * count + [by_leader[unit.leader] for unit in units])
    answer = minimize(
        joules,
        start,
        method="SLSQP",
        bounds=[(1.0, None)] * count + [(0.0, None)] * len(units),
        constraints={"type": "ineq", "fun": spare},
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    assert min(spare(answer.x)) > -1e-6
    return float(answer.fun)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("scheme", [FedAvg(), ComputeRounds(), HierFavg()], ids=lambda s: s.name)
def test_no_frequencies_cost_less(tiny: Tiny, access: str, scheme: Scheme) -> None:
    for seed in range(3):
        world = tiny(**FLEET, run__seed=seed, radio__access=access, radio__d2d="free")
        plan = plans.plan(scheme, world)
        found = sum(unit.compute_joules for unit in plan.units)
        assert found == pytest.approx(least_joules(plan, world), rel=2e-4)
        assert plan.saved_joules > 0
        for unit in plan.units:
            assert unit.dvfs is not None
            own = world.devices.cpu_hz[list(unit.members)]
            assert (np.array(unit.dvfs.cpu_hz) <= own).all()


def test_who_waits_for_the_medium_computes_meanwhile(tiny: Tiny) -> None:
    world = tiny(**FLEET, radio__bandwidth_hz=1e5)  # gathers are long
    groups = assess(world, [(0, 1), (2, 3), (4, 5)])
    plan = make_plan(HierFavg(), groups, groups.sample_weights, 3).with_dvfs(world)
    costs = full_speed_costs(world, plan.units, plan.parameters)
    gathers = costs.gathers(3.0)
    assert gathers is not None
    for index, unit in enumerate(plan.units):
        assert unit.dvfs is not None
        allowed = unit.per_update.compute_seconds + gathers.shortest_wait[index]
        samples = world.devices.samples[list(unit.members)]
        cycles = 4e6 * np.ceil(world.config.training.batch_fraction * samples)
        assert unit.dvfs.cpu_hz == pytest.approx(cycles / allowed, rel=1e-12)
        joules = 3 * (1e-28 * cycles * np.array(unit.dvfs.cpu_hz) ** 2).sum()
        assert unit.compute_joules == pytest.approx(joules, rel=1e-9)
        assert unit.late_seconds == 0
    assert max(gathers.shortest_wait) > 0


@pytest.mark.parametrize("static", [0.0, 0.01, 0.1, 0.5, 3.0])
def test_static_power_decides_between_slowing_down_and_racing_to_idle(
    tiny: Tiny, static: float
) -> None:
    """Every member has the frequency of least energy on a fine grid of those that are allowed."""
    settings = FLEET | {"radio__d2d": "free", "fleet__min_hz": 3e8, "fleet__static_watts": static}
    world = tiny(**settings)
    plan = plans.plan(ComputeRounds(), world)
    free = plans.plan(ComputeRounds(), tiny(**settings | {"fleet__static_watts": 0.0}))
    for unit, slowest in zip(plan.units, free.units, strict=True):
        assert unit.dvfs is not None
        assert slowest.dvfs is not None
        spent = 0.0
        for place, device in enumerate(unit.members):
            own, least = world.devices.cpu_hz[device], slowest.dvfs.cpu_hz[place]
            samples = np.ceil(world.config.training.batch_fraction * world.devices.samples[device])
            cycles = 4e6 * samples
            grid = np.geomspace(min(own, least), own, 20_001)
            energy = 1e-28 * cycles * grid**2 + static * cycles / grid
            found = unit.dvfs.cpu_hz[place]
            assert 1e-28 * cycles * found**2 + static * cycles / found <= energy.min() * (1 + 1e-12)
            assert found >= min(own, 3e8) * (1 - 1e-12)
            spent += unit.local_updates * float(energy.min())
            if static >= 2 * 1e-28 * own**3:  # race to idle
                assert found == own
        assert unit.compute_joules == pytest.approx(spent, rel=1e-6)


def test_a_scheme_that_does_not_wait_slows_only_inside_its_units(tiny: Tiny) -> None:
    world = tiny(**FLEET)
    alone = plans.plan(FedAsync(), world)
    assert alone.dvfs == "members"
    assert alone.saved_joules == 0.0  # single devices
    together = plans.plan(HierFavg(), world)
    inside = HierFavg().plan(world).with_dvfs(world, together=False)
    assert 0 < inside.saved_joules < together.saved_joules
    assert all(unit.dvfs_seconds == 0 for unit in inside.units)


def test_the_printed_formula_never_slows_down(tiny: Tiny) -> None:
    """By l q / f p_cmp a slower device spends more."""
    world = tiny(**FLEET, readings__compute_model="literal")
    for scheme in (HierFavg(), CamuBalanced()):
        plan = plans.plan(scheme, world)
        assert plan.dvfs == "none"
        assert plan.saved_joules == 0.0


def test_a_file_holds_the_frequencies(tiny: Tiny) -> None:
    world = tiny(**FLEET)
    plan = plans.plan(HierFavg(), world)
    document = json.loads(json.dumps(plan.to_dict(world)))
    again = Plan.from_dict(document)
    assert again == plan
    assert again.round_joules == plan.round_joules
    assert document["saved_joules"] == plan.saved_joules
    assert len(document["units"][0]["dvfs"]["cpu_hz"]) == len(plan.units[0].members)
    assert plan.repriced(world) == plan
    assert "dvfs" not in HierFavg().plan(world).to_dict(world)
    document["slow_down"] = document.pop("dvfs")  # as version 0.3 wrote it
    for unit in document["units"]:
        unit["slow_down"] = unit.pop("dvfs")
    assert Plan.from_dict(document) == plan


@pytest.mark.parametrize("downlink", [False, True])
@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_a_run_pays_what_the_plan_says(tiny: Tiny, access: str, downlink: bool) -> None:
    world = tiny(**FLEET, run__rounds=2, radio__access=access, radio__downlink=downlink)
    result = simulate(world, HierFavg())
    final, plan = result.history.final, result.plan
    assert plan.saved_joules > 0
    assert final.total_joules == pytest.approx(2 * plan.round_joules, rel=1e-12)
    assert final.virtual_seconds == pytest.approx(2 * plan.round_seconds, rel=1e-12)
    waits = [plan.idle_seconds(index) for index in range(len(plan.units))]
    assert final.waiting_seconds == pytest.approx(waits, abs=1e-9)


def test_units_that_are_slowed_wait_less(tiny: Tiny) -> None:
    slow, full = (simulate(tiny(**FLEET | {"fleet__dvfs": own}), FedAvg()) for own in (True, False))
    pairs = zip(slow.history.final.waiting_seconds, full.history.final.waiting_seconds, strict=True)
    assert all(one <= other + 1e-12 for one, other in pairs)
    assert sum(slow.history.final.waiting_seconds) < sum(full.history.final.waiting_seconds)


BATTERIES = {"fleet__battery_joules": 2.0, "clustering__leader": "rotating"}


@pytest.mark.parametrize("scheme", [HierFavg(), ComputeRounds()], ids=lambda s: s.name)
def test_the_ledger_adds_up_with_batteries_faults_and_leaders_in_turn(
    tiny: Tiny, scheme: Scheme
) -> None:
    world = tiny(**FLEET, **BATTERIES, run__rounds=12, faults__dropout_probability=0.2)
    full = tiny(**FLEET | {"fleet__dvfs": False}, **BATTERIES, run__rounds=12)
    history = simulate(world, scheme).history
    assert history.devices is not None
    kinds = ("compute", "transmit", "receive", "idle")
    for kind in kinds:
        total = float(getattr(history.devices, f"{kind}_joules").sum())
        assert total == pytest.approx(history.final.joules[kind], rel=1e-9, abs=1e-12)
    spent = history.devices.battery_joules - history.devices.left_joules
    assert spent == pytest.approx(history.devices.joules, rel=1e-9)
    assert history.final.total_joules < simulate(full, scheme).history.final.total_joules


def test_the_command_says_what_is_saved(camu: Camu) -> None:
    arguments = ("plan", "--preset", "demo", "--scheme", "clustered", "--set", "fleet.dvfs=true")
    text = camu(*arguments).out
    document = json.loads(camu(*arguments, "--json").out)
    full = json.loads(camu(*arguments[:-2], "--json").out)
    saved = full["round_joules"] - document["round_joules"]
    assert document["saved_joules"] == pytest.approx(saved)
    assert document["round_seconds"] == full["round_seconds"]
    share = saved / full["round_joules"]
    assert f"Slow-down saves {saved:.3g} J ({share:.0%})" in " ".join(text.split())
    assert "Slow-down" not in camu(*arguments[:-2]).out
