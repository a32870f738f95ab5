"""The sun by place and season: daylight hours, daily energy and what panels charge."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import camu
from camu.errors import InputError
from camu.planning.batteries import Batteries
from camu.planning.battery_days import seconds_until_empty
from camu.world import World
from camu.world.sun import DAY_SECONDS, YEAR_SECONDS, Sunshine, clear_sky, sine_of_height

PLACES = [(0.0, 80), (48.1, 172), (48.1, 355), (-33.9, 355), (60.0, 20), (69.6, 355), (69.6, 172)]


def by_hand(latitude: float, seconds: float) -> float:
    """The clear-sky power at one moment, in plain numbers."""
    tilt = -math.radians(23.44) * math.cos(2 * math.pi * (seconds / 86_400 + 10) / 365)
    angle = 2 * math.pi * (seconds % 86_400 / 86_400 - 0.5)
    north = math.radians(latitude)
    sine = math.sin(north) * math.sin(tilt) + math.cos(north) * math.cos(tilt) * math.cos(angle)
    return 1.098 * sine * math.exp(-0.057 / sine) if sine > 1e-4 else 0.0


@pytest.mark.parametrize(("latitude", "day"), PLACES)
def test_daylight_is_as_long_as_the_sunrise_equation_says(latitude: float, day: int) -> None:
    times = (day - 1) * DAY_SECONDS + np.arange(0.0, DAY_SECONDS, 10.0)
    hours = float((sine_of_height(latitude, times) > 0).mean() * 24)
    tilt = -math.radians(23.44) * math.cos(2 * math.pi * (day - 0.5 + 10) / 365)
    cosine = -math.tan(math.radians(latitude)) * math.tan(tilt)
    assert hours == pytest.approx(24 / math.pi * math.acos(max(-1.0, min(1.0, cosine))), abs=0.02)


def test_daylight_of_a_city_is_that_of_its_almanac() -> None:
    """Munich has 16.1 hours on its longest day and 8.3 on its shortest, refraction included."""
    hours = [
        float((sine_of_height(48.14, (day - 1 + np.arange(8640) / 8640) * 86_400) > 0).mean() * 24)
        for day in (172, 355)
    ]
    assert hours == pytest.approx([16.1, 8.35], abs=0.25)


@pytest.mark.parametrize(("latitude", "day"), PLACES)
def test_the_energy_of_a_day_is_the_integral_of_its_power(latitude: float, day: int) -> None:
    sun, start = Sunshine(latitude, day, 0.0), (day - 1) * DAY_SECONDS
    noon = start + DAY_SECONDS / 2
    halves = [(start, noon), (noon, start + DAY_SECONDS)]
    whole = sum(quad(lambda t: by_hand(latitude, t), *half, limit=400)[0] for half in halves)
    assert sun.mean(0.0, DAY_SECONDS) * DAY_SECONDS == pytest.approx(whole, rel=1e-3, abs=1.0)
    later = Sunshine(latitude, day, 6.0)
    assert later.mean(0.0, 600.0) == pytest.approx(sun.mean(21_600.0, 22_200.0), abs=1e-9)


@pytest.mark.parametrize(("latitude", "day"), [(0.0, 80), (30.0, 172), (48.0, 172), (-34.0, 355)])
def test_clear_days_of_summer_bring_three_quarters_of_what_reaches_the_atmosphere(
    latitude: float, day: int
) -> None:
    """The rule of the FAO's paper 56, equations 21 and 37, at sea level: another model."""
    turn = 2 * math.pi * day / 365
    tilt, north = 0.409 * math.sin(turn - 1.39), math.radians(latitude)
    sunset = math.acos(-math.tan(north) * math.tan(tilt))
    above = sunset * math.sin(north) * math.sin(tilt)
    above += math.cos(north) * math.cos(tilt) * math.sin(sunset)
    kwh = 24 * 60 / math.pi * 0.0820 * (1 + 0.033 * math.cos(turn)) * above / 3.6
    found = 24 * Sunshine(latitude, day, 0.0).mean(0.0, DAY_SECONDS)
    assert found == pytest.approx(0.75 * kwh, rel=0.07)


def test_years_follow_each_other() -> None:
    sun = Sunshine(50.0, 300, 12.0)
    assert sun.mean(5 * YEAR_SECONDS, 5 * YEAR_SECONDS + 9e4) == pytest.approx(sun.mean(0.0, 9e4))
    assert (clear_sky(np.array([-1.0, 0.0])) == 0).all()


def solar_world(tmp_path: Path, rows: str, **changes: Any) -> World:
    path = tmp_path / "fleet.csv"
    path.write_text("id,latitude,longitude,samples,board,battery_joules,solar (Wp)\n" + rows)
    keys = {"fleet.sleep_watts": "auto", "fleet.start_day": 172, **changes}
    return camu.read_fleet(path, config=camu.load_config(preset="demo", overrides=keys))


def test_a_panel_charges_by_place_and_season(tmp_path: Path) -> None:
    rows = "a,48,11,20,,1e6,10\nb,48,11.001,20,,1e6,0\nc,48,11.002,20,,100,5\n"
    world = solar_world(tmp_path, rows, **{"fleet.solar_share": 0.4})
    batteries = Batteries(world)
    batteries.charge_joules[:] = 0.0
    for seconds in (1000.0, 30_000.0, 31_234.5, DAY_SECONDS):  # where it is asked does not matter
        batteries.harvest_until(seconds)
    start = 171 * DAY_SECONDS
    whole = quad(lambda t: by_hand(48.0, t), start, start + DAY_SECONDS, limit=400)[0]
    assert batteries.charge_joules == pytest.approx([4.0 * whole, 0.0, 100.0], rel=1e-3)


def test_a_sleeping_node_with_a_panel_lasts_for_ever_and_a_pi_in_winter_does_not(
    tmp_path: Path,
) -> None:
    """A Pi 4 of 2.7 W has a panel of 20 W; in December that gives 20 x 0.5 x 1.3 h a day."""
    rows = "pi,48,11,20,pi-4,360000,20\nnode,48,11.001,20,esp32-s3,36000,1\n"
    for day, lives in ((172, True), (335, False)):
        world = solar_world(tmp_path, rows, **{"fleet.start_day": day})
        empty = seconds_until_empty(world, world.devices.idle_watts) / DAY_SECONDS
        assert np.isinf(seconds_until_empty(world, world.devices.resting_watts)[1])
        if lives:  # until the days are short
            assert 60 < empty[0] < 150
            continue
        december = 24 * Sunshine(48.0, 335, 0.0).mean(0.0, 3 * DAY_SECONDS)
        daily = 2.7 * 24 - 20 * 0.5 * december
        assert empty[0] == pytest.approx(100 / daily, abs=0.5)


def test_days_with_a_panel_are_those_of_a_sum_hour_by_hour(tmp_path: Path) -> None:
    world = solar_world(tmp_path, "a,48,11,20,,50000,8\n", **{"fleet.start_day": 260})
    watts, charge, moment = 2.2, 50_000.0, 0.0
    sun = Sunshine(48.0, 260, 0.0)
    while charge > 0:
        charge = min(50_000.0, charge + 60 * (8 * 0.5 * sun.mean(moment, moment + 60) - watts))
        moment += 60
    assert seconds_until_empty(world, np.array([watts]))[0] == pytest.approx(moment, abs=3600)


def test_panels_and_a_trace_together_are_followed_by_the_hour(tmp_path: Path) -> None:
    """Step by step in plain numbers: with a panel, without one, and on mains power."""
    trace = tmp_path / "wind.csv"
    trace.write_text("seconds,device,watts\n7200,*,1.5\n36000,b,0.25\n90000,a,0\n")
    rows = "a,48,11,20,,60000,8\nb,48,11.001,20,,90000,0\nc,48,11.002,20,,mains,8\n"
    keys = {"fleet.start_day": 260, "fleet.harvest_trace": str(trace)}
    world, watts = solar_world(tmp_path, rows, **keys), {"a": 2.2, "b": 1.0}
    sun, found = Sunshine(48.0, 260, 0.0), {}
    for name, capacity, panel in (("a", 60_000.0, 8.0), ("b", 90_000.0, 0.0)):
        charge, hour = capacity, 0
        while True:
            wind = 0.0 if hour < 2 else 1.5
            if (name, hour >= 25) == ("a", True):
                wind = 0.0
            elif (name, hour >= 10) == ("b", True):
                wind = 0.25
            drain = watts[name] - wind - panel * 0.5 * sun.mean(3600.0 * hour, 3600.0 * (hour + 1))
            if charge <= 3600 * drain:
                found[name] = 3600 * hour + charge / drain
                break
            charge, hour = min(capacity, charge - 3600 * drain), hour + 1
    seconds = seconds_until_empty(world, np.array([2.2, 1.0, 5.0]))
    assert seconds[:2] == pytest.approx([found["a"], found["b"]], rel=1e-9)
    assert seconds[2] == np.inf


def test_a_battery_that_loses_more_than_a_year_brings_ends_later(tmp_path: Path) -> None:
    """One that is never full loses the same in each year; one that is full in summer nothing."""
    world = solar_world(tmp_path, "a,48,11,20,,5e7,1\nb,48,11.1,20,,5e7,6\n")
    year = Sunshine(48.0, 172, 0.0).mean(0.0, YEAR_SECONDS)
    watts = np.array([0.5 * year + 0.3, 0.4])
    found = seconds_until_empty(world, watts) / YEAR_SECONDS
    assert found[0] == pytest.approx(5e7 / (0.3 * YEAR_SECONDS), abs=0.2)
    assert found[1] == np.inf


def test_a_panel_without_a_latitude_is_refused() -> None:
    config = camu.load_config(preset="battery", overrides={"fleet.solar_watts_peak": 5.0})
    with pytest.raises(InputError, match=r"fleet.latitude: is not set, and devices have panels"):
        camu.build_world(config)
    world = camu.build_world(config.replace({"fleet.latitude": -20.0}))
    assert world.latitude == -20.0
    assert not any("solar_watts_peak" in note for note in world.notes)


def test_keys_of_the_sun_without_a_panel_are_said() -> None:
    config = camu.load_config(preset="demo", overrides={"fleet.start_day": 100.0})
    note = "fleet.start_day = 100 has no effect without solar_watts_peak"
    assert note in camu.build_world(config).notes


def test_a_run_with_panels_is_forecast_round_by_round(tmp_path: Path) -> None:
    rows = "a,48,11,20,pi-4,30000,25\nb,48,11.001,20,pi-zero-2w,9000,2\n"
    keys = {"run.every_seconds": 7200.0, "run.rounds": 40, "run.eval_every": 40}
    world = solar_world(tmp_path, rows, **keys, **{"training.model": "logistic"})
    scheme = camu.schemes.FedAvg()
    history = camu.simulate(world, scheme).history
    from camu.simulation.dry_run import dry_run

    forecast = dry_run(world, scheme)
    assert [one.empty for one in forecast.records] == [one.empty for one in history.records]
    assert forecast.final.total_joules == pytest.approx(history.final.total_joules, rel=1e-9)
    counts = [record.empty for record in history.records]
    assert max(counts) > min(counts[counts.index(max(counts)) :])  # empty at night, back by day
