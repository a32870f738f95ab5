"""Rounds at an interval: when they begin, and what devices draw while they rest, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.config import Config
from camu.deploy.deployment import for_real_links
from camu.errors import InputError
from camu.planning.battery_days import battery_days
from camu.schemes import make_scheme, plans
from camu.simulation import Callback, History, Record, Run, simulate
from camu.simulation.dry_run import battery_life, dry_run, first_round, round_cost
from camu.world import World, build_world
from helpers.configs import small

IDLE, ASLEEP, EVERY = 0.25, 0.01, 100.0
DAY = 86_400.0


def config_of(scheme: str, **changes: Any) -> Config:
    base = {"scheme__name": scheme, "training__model": "logistic", "run__rounds": 3}
    power = {"fleet__idle_watts": IDLE, "fleet__sleep_watts": ASLEEP}
    return small(**{**base, **power, "run__every_seconds": EVERY, **changes})


def played(config: Config, *callbacks: Callback) -> History:
    return simulate(build_world(config), make_scheme(config), list(callbacks)).history


@pytest.mark.parametrize("scheme", ["fedavg", "camu", "camu-balanced"])
def test_devices_sleep_from_the_end_of_a_round_to_the_next_multiple(scheme: str) -> None:
    config = config_of(scheme)
    world = build_world(config)
    seconds = make_scheme(config).plan(world).round_seconds
    history = played(config)
    assert history.devices is not None
    began = [record.virtual_seconds - seconds for record in history.records[1:]]
    assert began == pytest.approx([0.0, EVERY, 2 * EVERY], abs=1e-9)
    joules = 3 * IDLE * seconds + 2 * ASLEEP * (EVERY - seconds)
    assert history.devices.idle_joules == pytest.approx([joules] * 20, rel=1e-9)
    assert history.final.joules["idle"] == pytest.approx(20 * joules, rel=1e-9)
    awake = played(config_of(scheme, fleet__sleep_watts=None))
    joules = IDLE * (2 * EVERY + seconds)  # all the time
    assert awake.final.joules["idle"] == pytest.approx(20 * joules, rel=1e-9)
    assert awake.weights_sha256 == history.weights_sha256


def test_a_round_that_is_longer_than_the_interval_begins_at_the_next_multiple() -> None:
    config = config_of("fedavg", run__every_seconds=None)
    world = build_world(config)
    seconds = make_scheme(config).plan(world).round_seconds
    every = seconds / 1.7
    history = played(config_of("fedavg", run__every_seconds=every))
    ends = [record.virtual_seconds for record in history.records[1:]]
    assert ends == pytest.approx([seconds, 2 * every + seconds, 4 * every + seconds], rel=1e-9)


def test_absent_devices_rest_while_others_work() -> None:
    config = config_of("fedavg", faults__dropout_probability=0.5, run__rounds=6)
    history = played(config)
    ends = [record.virtual_seconds for record in history.records]
    seconds = np.diff(ends) - [0.0, *(np.arange(1, 6) * EVERY - ends[1:-1])]
    there = np.array([20 - record.faults["absent"] for record in history.records[1:]])
    busy = float((seconds * there).sum())
    rest = 20 * ends[-1] - busy
    assert history.final.joules["idle"] == pytest.approx(IDLE * busy + ASLEEP * rest, rel=1e-9)


class Late(Callback):
    """When the units that are on their way at the end have started."""

    def on_round(self, run: Run, record: Record) -> None:
        self.started = [one.started_seconds for one in run.in_flight.values()]


@pytest.mark.parametrize("every", [0.05, EVERY])
def test_an_asynchronous_unit_is_awake_until_the_server_has_its_update(every: float) -> None:
    """Its idle time and that of resting are all time, but for units that are on their way."""
    watch = Late()
    config = config_of("fedasync", run__every_seconds=every, fleet__sleep_watts=IDLE)
    history = played(config.replace({"run.rounds": 30}), watch)
    known = 20 * history.final.virtual_seconds
    known -= sum(history.final.virtual_seconds - began for began in watch.started)
    assert history.final.joules["idle"] == pytest.approx(IDLE * known, rel=1e-9)
    ends = [record.virtual_seconds for record in history.records]
    assert (np.diff(ends) >= 0).all()


def test_the_forecast_of_a_round_lasts_from_one_start_to_the_next() -> None:
    config = config_of("camu")
    world, scheme = build_world(config), make_scheme(config)
    plan = plans.plan(scheme, world)
    cost = round_cost(world, scheme, plan)
    assert cost.seconds == pytest.approx(EVERY)
    asleep = 20 * ASLEEP * (EVERY - plan.round_seconds)
    assert cost.joules == pytest.approx(plan.round_joules + asleep, rel=1e-9)
    joules, seconds = first_round(world, scheme, plan)
    assert (joules.sum(), seconds) == pytest.approx((cost.joules, EVERY), rel=1e-9)
    forecast = dry_run(world, scheme)
    assert forecast.final.total_joules == pytest.approx(played(config).final.total_joules)


def test_who_is_not_there_waits_for_the_next_multiple(tmp_path: Path) -> None:
    trace = tmp_path / "there.csv"
    rows = [
        f"{start},{end},{device}" for device in range(20) for start, end in ((5, 9), (150, 450))
    ]
    trace.write_text("start,end,device\n" + "\n".join(rows) + "\n")
    history = played(config_of("fedavg", faults__availability_trace=str(trace), run__rounds=2))
    starts = [int(record.virtual_seconds // EVERY * EVERY) for record in history.records[1:]]
    assert starts == [200, 300]


def test_a_run_that_was_stopped_goes_on_to_the_same_joules(tmp_path: Path) -> None:
    from camu.simulation.directory import RunDirectory, run_in_directory

    class Stop(Callback):
        def on_round(self, run: Run, record: Record) -> None:
            if run.round == 2:
                run.stop("enough")

    config = config_of("fedasync", run__rounds=5, fleet__battery_joules=40.0)
    whole = run_in_directory(config, RunDirectory(tmp_path / "whole"))
    run_in_directory(config, RunDirectory(tmp_path / "half"), callbacks=[Stop()])
    again = run_in_directory(config, RunDirectory(tmp_path / "half"), resume=True)
    assert again.final == whole.final
    assert whole.devices is not None
    assert again.devices is not None
    assert again.devices.left_joules.tolist() == whole.devices.left_joules.tolist()


FLEET = """id,x,y,samples,board,battery_joules,sleep_watts
gateway,-40,0,100,pi-4,360000,
camera,-40,5,100,pi-zero-2w,180000,
sensor,-45,0,100,esp32-s3,36000,2.6e-5
"""


def board_world(path: Path, **changes: Any) -> World:
    path.write_text(FLEET)
    keys = {
        "fleet.file": str(path),
        "run.every_seconds": 3600.0,
        "scheme.name": "fedavg",
        "training.model": "logistic",
    }
    return build_world(camu.load_config(preset="demo", overrides={**keys, **changes}))


def test_days_of_a_pi_4_a_pi_zero_2_and_a_sleeping_sensor_are_arithmetic(tmp_path: Path) -> None:
    """Batteries of 100, 50 and 10 Wh, a round per hour; watts as `camu fleet boards` has them."""
    world = board_world(tmp_path / "fleet.csv")
    scheme = camu.schemes.FedAvg()
    plan = camu.plan(scheme, world)
    found = battery_life(world, scheme, plan)
    days = battery_days(world, found)
    hours = np.array([100, 50, 10]) / np.array([2.7, 0.6, 2.6e-5])
    assert days.days_without_learning == pytest.approx(hours / 24, rel=1e-12)
    assert days.days_without_learning[:2] == pytest.approx([1.543, 3.472], abs=1e-3)

    # What computing adds: the FLOPs of a batch by those per second, at busy less idle watts.
    steps = np.array([unit.local_updates for unit in plan.units])
    flops = 4 * 64 * 10 * 20 * steps  # a fifth of 100 samples; outputs and gradients of weights
    seconds = flops / np.array([8.3e9, 2.0e9, 0.05e9])
    compute = seconds * np.array([6.4 - 2.7, 2.1 - 0.6, 0.3 - 0.105])
    sends = np.array([unit.uplink_joules for unit in plan.units])
    round_ = plan.round_seconds  # everyone is awake as long as the slowest needs
    idle, rest = np.array([2.7, 0.6, 0.105]), np.array([2.7, 0.6, 2.6e-5])
    hourly = compute + sends + idle * round_ + rest * (3600 - round_)
    expected = np.array([360000, 180000, 36000]) / hourly / 24
    assert found.round_joules == pytest.approx(hourly, rel=1e-9)
    assert days.days_with_learning[:2] == pytest.approx(expected[:2], abs=1 / 24)
    # Once the others are empty, the sensor waits for nobody: at most so much less per round.
    alone = 36000 / (hourly[2] - 0.105 * round_) / 24
    assert expected[2] < days.days_with_learning[2] < alone
    assert days.learning_share == pytest.approx(1 - rest * 3600 / hourly, rel=1e-3, abs=1e-6)


def test_a_forecast_of_days_is_what_a_run_to_the_end_finds(tmp_path: Path) -> None:
    changes = {"run.every_seconds": 7000.0, "run.rounds": 400, "run.eval_every": 400}
    world = board_world(tmp_path / "fleet.csv", **changes)
    devices = world.devices
    world = world.with_devices(
        battery_joules=np.array([5e4, 9e4, np.nan]), sleep_watts=np.array([0.5, 0.2, np.nan])
    )
    scheme = camu.schemes.FedAvg()
    found = battery_life(world, scheme, camu.plan(scheme, world))
    history = simulate(world, scheme).history
    assert history.devices is not None
    assert found.empty_round.tolist() == history.devices.empty_round.tolist()
    assert found.empty_round[2] == -1
    watts = found.round_joules / found.round_seconds
    assert found.empty_seconds[:2] == pytest.approx(np.array([5e4, 9e4]) / watts[:2], abs=7000)
    assert devices.idle_watts[2] == pytest.approx(watts[2], rel=0.1)


def test_night_is_a_round_a_day() -> None:
    config = camu.load_config(preset="demo", settings=["run.every_seconds=night"])
    assert config.run.every_seconds == 86_400


def test_a_deployment_refuses_an_interval_with_words() -> None:
    with pytest.raises(InputError, match=r"run.every_seconds = 100: rounds of a deployment follow"):
        for_real_links(config_of("fedavg"), simulate=True)
