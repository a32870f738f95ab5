"""Batteries in a run: the ledger adds up, empty devices stay out, and the forecast is right."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import Config
from camu.planning.batteries import jain
from camu.schemes import make_scheme, plans
from camu.simulation import Callback, History, Record, Run, simulate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.dry_run import battery_life
from camu.simulation.ledger import DeviceEnergy
from camu.world import build_world
from helpers.configs import small


def drained(**changes: Any) -> Config:
    """Batteries that last for a few dozen rounds, and a run that outlives them."""
    base = {
        "scheme__name": "camu",
        "fleet__battery_joules": 1.0,
        "run__rounds": 400,
        "run__eval_every": 100,
        "training__model": "logistic",
        "radio__bandwidth_hz": 1e5,
    }
    return small(**{**base, **changes})


@dataclass
class Watch(Callback):
    """What each device has spent after each round."""

    spent: list[Any] = field(default_factory=list)
    empty: list[Any] = field(default_factory=list)

    def on_round(self, run: Run, record: Record) -> None:
        self.spent.append(run.device_joules)
        self.empty.append(run.batteries.empty.copy())
        total = run.ledger.devices.sum()
        assert total == pytest.approx(record.total_joules, rel=1e-9)
        assert run.ledger.devices.sum(axis=1) == pytest.approx(
            [record.joules[kind] for kind in ("compute", "transmit", "receive", "idle")], rel=1e-9
        )
        battery = run.world.devices.battery_joules
        assert (run.device_joules <= battery * (1 + 1e-12)).all()
        assert run.batteries.charge_joules == pytest.approx(battery - run.device_joules, abs=1e-9)


def played(config: Config) -> tuple[History, Watch]:
    watch = Watch()
    return simulate(build_world(config), make_scheme(config), [watch]).history, watch


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "single devices": {"scheme__name": "fedavg"},
    "downlink": {"radio__downlink": True},
    "ofdma": {"radio__access": "ofdma"},
    "idle power": {"fleet__idle_watts": 1e-3},
    "rotating": {"clustering__leader": "rotating", "clustering__rotate_every": 3},
    "fading and dropout": {"radio__fading": "rayleigh", "faults__dropout_probability": 0.2},
}


@pytest.mark.parametrize("case", CASES)
def test_an_empty_device_never_trains_again_and_the_ledger_adds_up(case: str) -> None:
    history, watch = played(drained(**CASES[case]))
    assert history.stopped == "batteries empty"
    assert history.final.empty == 20
    for before, now, empty in zip(watch.spent, watch.spent[1:], watch.empty, strict=False):
        assert (now[empty] == before[empty]).all()
    for before, now in pairwise(watch.empty):
        assert (now | ~before).all()  # nobody comes back
    assert history.devices is not None
    assert history.devices.joules.sum() == pytest.approx(history.final.total_joules, rel=1e-9)
    counts = [record.empty for record in history.records]
    assert counts == sorted(counts)
    assert 0 in counts


@pytest.mark.parametrize("case", [name for name in CASES if "fading" not in name])
def test_the_forecast_agrees_with_a_run_to_the_end(case: str) -> None:
    config = drained(**CASES[case])
    world, scheme = build_world(config), make_scheme(config)
    forecast = battery_life(world, scheme, plans.plan(scheme, world))
    history = simulate(world, scheme).history
    assert history.devices is not None
    difference = np.abs(forecast.empty_round - history.devices.empty_round)
    assert difference.max() <= 1
    assert np.ptp(history.devices.empty_round) > 3
    last = history.records[-2].virtual_seconds  # in the last round nobody starts
    assert np.nanmax(forecast.empty_seconds) == pytest.approx(last, rel=1e-9)


def test_a_forecast_of_one_device_is_division() -> None:
    config = drained(scheme__name="fedavg", fleet__battery_joules=0.77)
    world = build_world(config)
    scheme = make_scheme(config)
    plan = plans.plan(scheme, world)
    forecast = battery_life(world, scheme, plan)
    own = np.array([unit.joules for unit in plan.units])
    assert (forecast.empty_round == np.floor(0.77 / own)).all()
    assert forecast.round_joules == pytest.approx(own)
    assert forecast.share.sum() == pytest.approx(1)
    order = np.argsort(np.floor(0.77 / own), kind="stable")
    assert forecast.milestones() == {"first": order[0], "median": order[9], "last": order[19]}


def test_fairness_is_jains_index() -> None:
    assert jain(np.full(7, 3.0)) == pytest.approx(1)
    assert jain(np.array([0, 0, 5.0])) == pytest.approx(1 / 3)
    assert jain(np.array([1.0, 2.0])) == pytest.approx(9 / 10)


def test_killed_and_resumed_a_device_stays_empty(tmp_path: Path) -> None:
    config = drained(
        clustering__leader="rotating",
        clustering__rotate_every=3,
        fleet__harvest_watts=0.001,
        run__rounds=60,
        machine__checkpoint_every=1,
    )

    class Killed(Exception):
        pass

    class Kill(Callback):
        def on_round(self, run: Run, record: Record) -> None:
            if record.empty >= 3 and record.round % 7 == 0:
                raise Killed

    whole = RunDirectory(tmp_path / "whole")
    run_in_directory(config, whole)
    broken = RunDirectory(tmp_path / "broken")
    with pytest.raises(Killed):
        run_in_directory(config, broken, callbacks=[Kill()])
    run_in_directory(config, broken, resume=True)
    for name in ("rounds.jsonl", "devices.csv"):
        assert (broken.path / name).read_text() == (whole.path / name).read_text()
    assert whole.read_history().final.empty > 3


def test_devices_csv_gives_back_what_it_was_made_of(tmp_path: Path) -> None:
    config = drained(run__rounds=30, radio__downlink=True)
    directory = RunDirectory(tmp_path / "run")
    history = run_in_directory(config, directory)
    read = directory.read_devices()
    assert read is not None
    assert history.devices is not None
    for name in DeviceEnergy.__dataclass_fields__:
        assert np.array_equal(getattr(read, name), getattr(history.devices, name))
    summary = directory.read_summary()
    assert read.joules.sum() == pytest.approx(summary["joules"], rel=1e-9)
    assert summary["empty"] == (read.empty_round >= 0).sum()


def test_a_device_on_mains_power_never_ends() -> None:
    config = drained(scheme__name="fedavg", run__rounds=120)
    world = build_world(config)
    battery = np.array(world.devices.battery_joules)
    battery[4] = np.nan
    battery[5] = 0.0
    world = world.with_devices(battery_joules=battery)
    history = simulate(world, make_scheme(config)).history
    assert history.stopped == "rounds"
    assert history.final.units == 1
    assert history.devices is not None
    assert history.devices.empty_round[[4, 5]].tolist() == [-1, 0]
    assert history.devices.joules[5] == 0


def test_enough_harvesting_keeps_a_fleet_alive_and_little_brings_devices_back() -> None:
    rich = simulate_for(fleet__harvest_watts=10.0, run__rounds=60)
    assert rich.final.empty == 0
    config = drained(fleet__harvest_watts=0.002, run__rounds=150)
    history, poor = played_plain(config)
    assert max(record.empty for record in history.records) > 5
    came_back = [(before & ~now).any() for before, now in pairwise(poor)]
    assert any(came_back)
    scheme, world = make_scheme(config), build_world(config)
    forecast = battery_life(world, scheme, plans.plan(scheme, world))
    assert history.devices is not None
    assert (forecast.empty_round == history.devices.empty_round).all()


def simulate_for(**changes: Any) -> History:
    config = drained(**changes)
    return simulate(build_world(config), make_scheme(config)).history


def played_plain(config: Config) -> tuple[History, list[Any]]:
    empty: list[Any] = []

    class Look(Callback):
        def on_round(self, run: Run, record: Record) -> None:
            empty.append(run.batteries.empty.copy())

    return simulate(build_world(config), make_scheme(config), [Look()]).history, empty


def test_what_a_plan_of_a_fleet_file_prints_is_what_its_training_gives(
    camu: Any, tmp_path: Path
) -> None:
    path = tmp_path / "fleet.csv"
    rows = [
        f"s{k},{40 + 9 * (k % 4)},{8 * (k // 4)},{20 + k},{20},{2 + 0.1 * k}" for k in range(12)
    ]
    path.write_text("id,x,y,label_0,label_1,battery_joules\n" + "\n".join(rows) + "\n")
    arguments = ["--preset", "demo", "--fleet", path, "--set", "run.rounds=500"]
    arguments += ["--set", "data.with_replacement=true", "--set", "training.model=logistic"]
    arguments += ["--set", "radio.bandwidth_hz=2e4", "--set", "clustering.rotate_every=4"]
    arguments += ["--set", "clustering.leader=rotating", "--set", "run.eval_every=100"]
    planned = json.loads(camu("plan", *arguments, "--json").out)["batteries"]["empty"]
    done = camu("run", *arguments, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["stopped"] == "batteries empty"
    devices = RunDirectory(tmp_path / "run").read_devices()
    assert devices is not None
    ended = np.sort(devices.empty_round)
    for name, place in (("first", 0), ("median", 5), ("last", 11)):
        assert abs(planned[name]["rounds"] - ended[place]) <= 1
    at = devices.ids.index(planned["first"]["device"])
    assert devices.empty_round[at] == ended[0]
