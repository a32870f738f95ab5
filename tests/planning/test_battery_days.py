"""Days of batteries with and without learning, against arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import camu
from camu.planning.batteries import Lifetime
from camu.planning.battery_days import battery_days, seconds_until_empty
from camu.simulation.dry_run import battery_life
from camu.world import World
from helpers.small_fleets import make_world

DAY = 86_400.0


def resting_world(capacity: list[float], *settings: str) -> World:
    count = len(capacity)
    world = make_world([[9.0 * k, 0.0] for k in range(count)], [[10]] * count, settings)
    return world.with_devices(battery_joules=np.array(capacity))


def forecast(world: World, watts: list[float]) -> Lifetime:
    """Of rounds of 10 s at this mean power, within which no battery is empty."""
    count = world.devices.count
    joules, nothing = 10.0 * np.array(watts), np.full(count, np.nan)
    has = np.isfinite(world.devices.battery_joules)
    return Lifetime(5, np.full(count, -1), nothing, has, joules, 10.0)


def test_days_are_the_energy_by_the_mean_power() -> None:
    world = resting_world([DAY, 3 * DAY, np.nan])
    world = world.with_devices(idle_watts=np.full(3, 0.5), sleep_watts=np.array([0.1, np.nan, 0.1]))
    days = battery_days(world, forecast(world, [0.4, 1.0, 0.2]))
    assert days.days_with_learning.tolist() == pytest.approx([2.5, 3.0, np.nan], nan_ok=True)
    assert days.days_without_learning.tolist() == pytest.approx([10.0, 6.0, np.nan], nan_ok=True)
    assert days.learning_share.tolist() == pytest.approx([0.75, 0.5, 0.5])


def test_of_the_round_that_a_battery_cannot_pay_whole_it_lasts_for_a_part() -> None:
    world = resting_world([DAY]).with_devices(idle_watts=np.full(1, 0.5))
    rounds = 0.8 * DAY  # at 1 W a battery of a day ends a quarter into the second round
    found = Lifetime(
        5, np.array([2]), np.array([rounds]), np.array([True]), np.array([rounds]), rounds
    )
    assert battery_days(world, found).days_with_learning.tolist() == pytest.approx([1.0])


def test_harvest_lengthens_both_until_a_battery_lasts_for_ever() -> None:
    world = resting_world([DAY, DAY]).with_devices(
        idle_watts=np.full(2, 0.5), harvest_watts=np.array([0.25, 0.5])
    )
    days = battery_days(world, forecast(world, [1.25, 0.75]))
    assert days.days_with_learning.tolist() == pytest.approx([1.0, 4.0])
    assert days.days_without_learning.tolist() == pytest.approx([4.0, np.inf])


def test_a_trace_of_harvest_is_followed_to_the_moment_of_the_last_joule(tmp_path: Path) -> None:
    path = tmp_path / "sun.csv"
    path.write_text("seconds,device,watts\n0,*,3\n40,*,0\n100,*,1\n130,*,0\n")
    world = resting_world([100.0, 200.0], f"fleet.harvest_trace='{path}'")
    # d0 is full until 40, loses 60 until 100, gains nothing until 130, and lasts for 40 more.
    assert seconds_until_empty(world, np.array([1.0, 5.0])).tolist() == [170.0, 64.0]


def test_a_device_that_costs_nothing_is_never_empty() -> None:
    world = resting_world([1.0]).with_devices(idle_watts=np.zeros(1))
    days = battery_days(world, forecast(world, [0.0]))
    assert days.days_with_learning[0] == np.inf
    assert days.learning_share[0] == 0.0


def test_without_harvest_the_days_are_those_of_the_forecast() -> None:
    config = camu.load_config(preset="battery")
    world, scheme = camu.build_world(config), camu.schemes.Camu()
    found = battery_life(world, scheme, camu.plan(scheme, world))
    days = battery_days(world, found)
    within = days.days_with_learning - found.empty_seconds / DAY
    assert (within >= 0).all()
    assert within.max() * DAY <= found.round_seconds + 1e-6
    assert (days.days_with_learning < days.days_without_learning).all()
    watts = config.fleet.idle_watts
    assert days.days_without_learning == pytest.approx(9.0 / watts / DAY)
    mean = found.round_joules / found.round_seconds
    assert days.learning_share == pytest.approx(1 - watts / mean)


def test_a_board_sleeps_only_where_it_is_told_to(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text(
        "id,x,y,samples,board,Schlafleistung (mW)\na,0,0,9,pi-4,\nb,5,0,9,pi-4,50\nc,9,0,9,,\n"
    )
    found = {
        told: camu.read_fleet(
            path, config=camu.load_config(preset="demo", overrides={"fleet.sleep_watts": told})
        ).devices
        for told in (None, "auto", 0.01)
    }
    nan = float("nan")
    assert found[None].sleep_watts.tolist() == pytest.approx([nan, 0.05, nan], nan_ok=True)
    assert found["auto"].sleep_watts.tolist() == pytest.approx([1.2, 0.05, nan], nan_ok=True)
    assert found[0.01].sleep_watts.tolist() == pytest.approx([1.2, 0.05, 0.01])
    assert found[None].resting_watts.tolist() == pytest.approx([2.7, 0.05, 0.07])
