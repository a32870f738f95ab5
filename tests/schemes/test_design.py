"""Designs from pilots and formulas: K and E, M, the split of updates, talk or work."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camu.schemes import (
    CostEffective,
    FedAvg,
    FedSa,
    HtiTotal,
    LocalSgd,
    Pilot,
    Plan,
    State,
    TalkOrWork,
)
from camu.schemes.cost_effective import (
    best_pair,
    expected_longest,
    fit_ratio,
    participation_factor,
    round_seconds,
    rounds_between,
)
from camu.schemes.fedsa import mean_round_seconds
from camu.schemes.hti_total import split_total
from camu.schemes.talk_or_work import best_updates
from camu.simulation import simulate
from camu.world import World
from helpers.scheme_runs import bits

Tiny = Callable[..., World]
COLUMNS = ("uplink_seconds", "downlink_seconds", "update_joules", "fixed_joules")
EQUAL: dict[str, Any] = {"fleet__cpu_hz": [1e9, 1e9]}


def alike(plan: Plan, work: float, air: float) -> Plan:
    """The plan with the same times and joules for all units, every band its own."""
    units = tuple(
        replace(
            unit,
            per_update=replace(unit.per_update, compute_seconds=work, compute_joules=work / 10),
            uplink_seconds=air,
            uplink_joules=air / 10,
        )
        for unit in plan.units
    )
    return replace(plan, units=units, access="ofdma")


# Luo et al.: K and E


@pytest.mark.parametrize(("count", "devices"), [(5, 1), (5, 3), (6, 6), (7, 2)])
def test_the_expected_longest_time_against_all_draws(count: int, devices: int) -> None:
    times = np.sort(np.random.default_rng(count).exponential(size=count))
    draws = [max(draw) for draw in itertools.combinations(times, devices)]
    assert expected_longest(times, devices) == pytest.approx(float(np.mean(draws)))


def test_the_search_takes_thousands_of_devices(tiny: Tiny) -> None:
    plan = CostEffective().plan(tiny())
    units = (plan.units * 700)[:4000]  # more than a plan accepts: each device stands in many
    columns = {name: np.array([getattr(unit, name) for unit in units]) for name in COLUMNS}
    many = cast(
        Plan,
        SimpleNamespace(
            units=units,
            access="tdma",
            queues=None,
            column=columns.__getitem__,
            idle_watts=0.0,
        ),
    )
    times = np.sort(np.random.default_rng(0).exponential(size=4000))
    assert times[0] < expected_longest(times, 2000) < expected_longest(times, 4000) == times[-1]
    began = time.process_time()
    devices, updates = best_pair(many, 50.0, 0.5, 20)
    assert time.process_time() - began < 20
    assert 1 <= devices <= 4000
    assert 1 <= updates <= 20


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_a_round_of_all_devices_takes_the_time_of_the_plan(tiny: Tiny, access: str) -> None:
    plan = CostEffective().plan(
        tiny(fleet__cpu_hz=[2e8, 2e9], radio__access=access, radio__downlink=True)
    )
    seconds, count = round_seconds(plan, 6), len(plan.units)
    for updates in range(1, 7):
        priced = plan.with_updates([updates] * count)
        assert seconds[updates - 1, -1] == pytest.approx(priced.round_seconds, rel=1e-12)
    assert (seconds <= seconds[:, -1:]).all()  # nobody waits longer for fewer devices
    alone = plan.column("ready_seconds") + plan.column("uplink_seconds")
    assert seconds[0, 0] == pytest.approx(alone.mean())


def test_a_price_of_energy_alone_takes_one_device(tiny: Tiny) -> None:
    plan = CostEffective().plan(tiny())
    for ratio in (0.1, 5.0, 100.0):
        assert best_pair(plan, ratio, 1.0, 20)[0] == 1


def test_a_price_of_time_alone_takes_all_devices_alike(tiny: Tiny) -> None:
    plan = alike(CostEffective().plan(tiny()), 0.1, 0.4)
    for ratio in (0.1, 5.0, 100.0):
        assert best_pair(plan, ratio, 0.0, 20)[0] == len(plan.units)


@pytest.mark.parametrize("energy_price", [0.0, 1.0])
def test_receiving_the_model_counts_in_the_best_pair(tiny: Tiny, energy_price: float) -> None:
    """With everyone alike, K = N costs what the plan costs."""
    plan = alike(CostEffective().plan(tiny()), 0.1, 0.4)
    units = [replace(unit, downlink_seconds=30.0, receive_watts=1.0) for unit in plan.units]
    heard = replace(plan, units=tuple(units))
    _, before = best_pair(plan, 1e4, energy_price, 200)
    _, after = best_pair(heard, 1e4, energy_price, 200)
    assert after > 2 * before


def test_updates_rise_with_the_time_of_sending(tiny: Tiny) -> None:
    plan = CostEffective().plan(tiny())
    found = [best_pair(alike(plan, 0.1, air), 50.0, 0.5, 50)[1] for air in (0.0, 0.1, 1.0, 10.0)]
    assert found == sorted(found)
    assert found[0] < found[-1] <= math.sqrt(50) + 1


def test_the_search_agrees_with_the_alternation_of_the_paper(tiny: Tiny) -> None:
    """For equal clients the mean time is the longest: step by step to a fixed point of (K, E)."""
    plan = CostEffective().plan(tiny())
    count, ratio = len(plan.units), 30.0
    for work, air, price in ((0.1, 0.5, 0.3), (0.02, 1.0, 0.8), (0.3, 0.3, 0.5)):
        tp, tm, ep, em = work, air, work / 10, air / 10

        def cost(k: float, e: float) -> float:
            once = (1 - price) * (tp * e + tm) + price * k * (ep * e + em)  # noqa: B023
            return once * (ratio / e + (1 + (count - k) / (k * (count - 1))) * e)

        k, e = float(count), 1.0
        for _ in range(200):
            top = (1 - price) * (tp * e + tm) * e**2 * count
            bottom = price * (ep * e + em) * (ratio * (count - 1) + e**2 * (count - 2))
            k = min(max(math.sqrt(top / bottom), 1.0), float(count))
            p, m = (1 - price) * tp + price * k * ep, (1 - price) * tm + price * k * em
            b = participation_factor(1, count) if k == 1 else 1 + (count - k) / (k * (count - 1))
            roots = np.roots([2 * p * b, m * b, 0.0, -m * ratio])
            e = max(float(r.real) for r in roots if abs(r.imag) < 1e-9)
        near = min(
            itertools.product((math.floor(k), math.ceil(k)), (max(1, math.floor(e)), math.ceil(e))),
            key=lambda pair: cost(*pair),
        )
        assert best_pair(alike(plan, work, air), ratio, price, 40) == near


def test_rounds_from_the_bound_give_its_ratio_back() -> None:
    pairs = [(20, 1), (20, 5), (10, 2), (5, 8)]
    for a0, b0 in ((10.0, 0.5), (3.0, 3.0), (0.2, 1.0)):
        rounds = [7 * (a0 / e + b0 * participation_factor(k, 20) * e) for k, e in pairs]
        assert fit_ratio(pairs, rounds, 20) == pytest.approx(a0 / b0)
    assert fit_ratio(pairs, [1 / e for _, e in pairs], 20) == math.inf


def test_rounds_between_common_levels() -> None:
    slow, fast = [10.0, 8.0, 6.0, 4.0], [9.0, 5.0, 1.0]
    # Both fall from 9 to 4: from round 0.5 to 3, and from 0 to 1.25.
    assert rounds_between([slow, fast]) == pytest.approx([2.5, 1.25])
    assert rounds_between([[1.0, 2.0], [5.0, 4.0]]) == [1.0, 1.0]


def test_everyone_with_fixed_updates_is_local_sgd(tiny: Tiny) -> None:
    world = tiny()
    found = simulate(world, CostEffective(participants=6, updates=3)).history
    assert found.weights_sha256 == bits(world, LocalSgd(3))
    assert found.records[0].total_joules == 0


def test_the_pilots_are_charged_and_their_choice_is_kept(tiny: Tiny) -> None:
    world = tiny(run__rounds=2)
    seen: list[tuple[int, tuple[int, ...]]] = []

    class Spy(CostEffective):
        def pilot(self, pilot: Pilot, state: State) -> Plan | None:
            plan = super().pilot(pilot, state)
            assert plan is not None
            updates = tuple(unit.local_updates for unit in plan.units)
            seen.append((state["participants"], updates))
            pair = best_pair(pilot.plan, state["ratio"], self.energy_price, self.most_updates)
            assert pair == (seen[0][0], updates[0])
            return plan

    history = simulate(world, Spy(energy_price=0.9)).history
    ((participants, updates),) = seen
    assert len(set(updates)) == 1
    assert history.records[0].total_joules > 0
    assert [record.units for record in history.records[1:]] == [participants] * 2


# FedSA: M


@pytest.mark.parametrize("first", [1, 2, 4, 6])
def test_the_mean_round_is_that_of_the_loop(tiny: Tiny, first: int) -> None:
    world = tiny(run__rounds=40)  # tdma, no fading
    scheme = FedSa(2, first=first, max_staleness=10**6)
    history = simulate(world, scheme).history
    predicted = mean_round_seconds(scheme.plan(world), first, rounds=40)
    assert history.final.virtual_seconds / 40 == pytest.approx(predicted)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_rounds_do_not_get_shorter_as_more_are_waited_for(tiny: Tiny, access: str) -> None:
    plan = LocalSgd(2).plan(tiny(radio__access=access))
    seconds = [mean_round_seconds(plan, first) for first in range(1, 7)]
    assert all(one <= other * (1 + 1e-9) for one, other in itertools.pairwise(seconds))


# Pan et al.: the split


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=4),
    st.integers(0, 7),
)
def test_the_split_has_the_shortest_round(times: list[tuple[int, int]], extra: int) -> None:
    per, fixed = (np.array(column, dtype=float) for column in zip(*times, strict=True))
    total = len(times) + extra
    found = split_total(per, fixed, total)
    assert found.sum() == total
    assert found.min() >= 1
    best = min(
        max(n * a + b for n, a, b in zip(counts, per, fixed, strict=True))
        for counts in itertools.product(range(1, extra + 2), repeat=len(times))
        if sum(counts) == total
    )
    assert (found * per + fixed).max() == best


def test_one_update_per_device_is_fedavg_and_equal_devices_get_equal_counts(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, HtiTotal(1)) == bits(world, FedAvg())
    even = split_total(np.full(5, 0.3), np.full(5, 1.1), 17)
    assert even.max() - even.min() == 1
    assert split_total(np.full(6, 0.3), np.full(6, 1.1), 18).tolist() == [3] * 6


def test_fast_devices_get_more(tiny: Tiny) -> None:
    plan = HtiTotal(3).plan(tiny())
    assert sum(unit.local_updates for unit in plan.units) == 18
    order = np.argsort([unit.per_update.compute_seconds for unit in plan.units])
    counts = [plan.units[k].local_updates for k in order]
    assert counts[0] > counts[-1]


# Shi et al.: talk or work


@pytest.mark.parametrize("ratio", [1.0, 9.0, 25.0, 400.0])
@pytest.mark.parametrize("talk", [1e-9, 0.1, 1.0, 30.0, 1e6])
def test_the_best_updates_against_all(ratio: float, talk: float) -> None:
    joules = {h: (ratio / h + h) * (h * 0.7 + talk) for h in range(1, 60)}
    assert joules[best_updates(0.7, talk, ratio)] == pytest.approx(min(joules.values()))


def test_updates_grow_as_the_cube_root_of_the_price_of_talking_and_then_no_more() -> None:
    small = [best_updates(1.0, talk, 1e9) for talk in (1e-3, 8e-3, 64e-3)]
    assert small[1] / small[0] == pytest.approx(2, rel=0.05)
    assert small[2] / small[1] == pytest.approx(2, rel=0.05)
    assert best_updates(1.0, 1e9, 144.0) == 12
    assert best_updates(1.0, 0.0, 144.0) == 1


@pytest.mark.parametrize("settings", [{}, {"radio__downlink": True, "radio__receive_watts": 50.0}])
def test_it_is_luos_design_for_energy_alone_and_everyone(
    tiny: Tiny, settings: dict[str, Any]
) -> None:
    """With g = 1 and K = N: K (ep E + em) (A0 / E + B0 E)."""
    world = tiny(**settings)
    plan = TalkOrWork(ratio=40.0).plan(world)
    found = {unit.local_updates for unit in plan.units}
    costs = {
        e: plan.with_updates([e] * 6).round_joules * (40.0 / e + participation_factor(6, 6) * e)
        for e in range(1, 30)
    }
    assert found == {min(costs, key=costs.__getitem__)}
