"""Several cells: own queues and bands, interference against a sum by hand, and hand-over."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.config import load_config
from camu.errors import InputError
from camu.planning.cells import interference
from camu.planning.queues import arrivals, latest_ready
from camu.planning.replanning import replanning_costs
from camu.schemes import FedAvg
from camu.simulation import simulate
from camu.world import World, build_world

# Two devices near the first base station, three near the second, one near the third.
PLACES = [[0, 5, 0], [9, 0, 0], [190, 3, 0], [210, 0, 0], [201, 9, 0], [90, 120, 0]]
STATIONS = [(0.0, 0.0, 10.0), (200.0, 0.0, 10.0), (100.0, 150.0, 10.0)]
CELLS = [0, 0, 1, 1, 1, 2]
NOISE = 10 ** ((-174 + 60 + 7 - 30) / 10)


def world_of(tmp_path: Path, **changes: Any) -> World:
    path = tmp_path / "stations.csv"
    rows = "".join(f"{k},{x},{y},{z}\n" for k, (x, y, z) in enumerate(STATIONS))
    path.write_text("id,x,y,z\n" + rows)
    base: dict[str, Any] = {
        "fleet.regions": [{"name": "I", "devices": 6, "x": [0, 300], "y": [0, 300]}],
        "fleet.positions": PLACES,
        "fleet.base_station_file": str(path),
        "data.noniid_devices": 6,
        "data.samples_per_device": 20,
        "training.model": "logistic",
        "run.rounds": 2,
        "run.eval_every": 2,
        "machine.workers": 1,
        "radio.snr_gap_db": 0.0,
        "radio.max_bits_per_hz": math.inf,
    }
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return build_world(load_config(preset="demo", overrides={**base, **dotted}))


def gain_by_hand(device: int, station: int) -> float:
    """The paper's path loss at one antenna: (c / 4 pi f d)^3.76, and 5 dBi at the mast."""
    distance = math.dist(PLACES[device], STATIONS[station])
    wave = 299_792_458.0 / (4 * math.pi * 915e6 * distance)
    return float(wave**3.76 * 10**0.5)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_interference_is_a_sum_over_other_cells(tmp_path: Path, access: str) -> None:
    world = world_of(tmp_path, radio__cells="interfering", radio__access=access)
    assert world.links.cells.tolist() == CELLS
    power = [0.5, 1.0, 0.2, 0.7, 0.5, 2.0]
    expected = []
    for mine in CELLS:
        watts = 0.0
        for other in {0, 1, 2} - {mine}:
            heard = [
                power[device] * gain_by_hand(device, mine)
                for device in range(6)
                if CELLS[device] == other
            ]
            watts += sum(heard) / (len(heard) if access == "tdma" else 1)
        expected.append(watts / NOISE)
    assert min(expected) > 0.01
    assert interference(world, range(6), power) == pytest.approx(expected, rel=1e-9)
    # A leader that does not send disturbs nobody.
    assert interference(world, [0, 1], power[:2]).tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["one", "apart"])
def test_without_a_common_band_there_is_none(tmp_path: Path, kind: str) -> None:
    world = world_of(tmp_path, radio__cells=kind)
    assert interference(world, range(6), [0.5] * 6).tolist() == [0] * 6


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("kind", ["one", "apart", "interfering"])
def test_uplinks_take_the_time_of_their_band_and_noise(
    tmp_path: Path, kind: str, access: str
) -> None:
    world = world_of(tmp_path, radio__cells=kind, radio__access=access)
    plan = camu.plan(FedAvg(), world)
    bits = 32 * plan.parameters
    extra = interference(world, range(6), [0.5] * 6)
    for device, unit in enumerate(plan.units):
        mates = 6 if kind == "one" else CELLS.count(CELLS[device])
        parts = mates if access == "ofdma" else 1
        snr = 0.5 * 15 * gain_by_hand(device, CELLS[device]) / NOISE / (1 + extra[device])
        seconds = bits / (1e6 / parts * math.log2(1 + parts * snr))
        assert unit.uplink_seconds == pytest.approx(seconds, rel=1e-9)
        assert unit.cell == (0 if kind == "one" else CELLS[device])
    again = camu.Plan.from_dict(plan.to_dict(world))
    assert again == plan
    history = simulate(world, FedAvg()).history
    assert history.final.virtual_seconds == pytest.approx(2 * plan.round_seconds, rel=1e-9)
    assert history.final.total_joules == pytest.approx(2 * plan.round_joules, rel=1e-9)


def test_each_cell_has_its_own_queue(tmp_path: Path) -> None:
    """A round of all cells is as long as the longest of the rounds of each alone."""
    world = world_of(tmp_path, radio__cells="apart", fleet__dvfs=True)
    plan = camu.plan(FedAvg(), world)
    ends = []
    for cell in range(3):
        free = 0.0
        own = [unit for unit in plan.units if unit.cell == cell]
        for unit in sorted(own, key=lambda unit: unit.ready_seconds):
            free = max(free, unit.ready_seconds) + unit.uplink_seconds
        ends.append(free)
    assert plan.round_seconds == pytest.approx(max(ends), rel=1e-12)
    one = camu.plan(FedAvg(), world_of(tmp_path))
    assert one.round_seconds > plan.round_seconds
    # Slack: everyone may be ready at its latest moment without a longer round, and not later.
    ready, air = plan.column("ready_seconds"), plan.column("uplink_seconds")
    latest = latest_ready(ready, air, "tdma", plan.queues)
    assert (latest >= ready).all()
    assert arrivals(latest, air, "tdma", plan.queues).max() == pytest.approx(max(ends))
    for unit in range(6):
        late = latest.copy()
        late[unit] += 1e-6
        found = arrivals(late, air, "tdma", plan.queues)
        assert found.max() > max(ends) + 1e-7


def test_interference_can_lose_an_update(tmp_path: Path) -> None:
    """The threshold lies between the SNR without and the SINR with the other cells."""
    still = world_of(tmp_path, radio__cells="apart")
    extra = interference(world_of(tmp_path, radio__cells="interfering"), range(6), [0.5] * 6)
    snr_db = 10 * np.log10(still.links.uplink_snr())
    sinr_db = snr_db - 10 * np.log10(1 + extra)
    limit = float(0.5 * (snr_db[5] + sinr_db[5]))
    for kind, levels in (("apart", snr_db), ("interfering", sinr_db)):
        world = world_of(tmp_path, radio__cells=kind, radio__outage_snr_db=limit)
        record = simulate(world, FedAvg()).history.records[1]
        assert record.faults["outages"] == (levels < limit).sum()
    assert (sinr_db < limit).sum() > (snr_db < limit).sum()


def test_reports_go_to_all_stations_at_once(tmp_path: Path) -> None:
    world = world_of(tmp_path, radio__cells="apart")
    plan = camu.plan(FedAvg(), world)
    there = np.ones(6, dtype=bool)
    found = replanning_costs(world, plan, world.links.uplink_gain, there)
    bits = 32 * (3 + 5)
    snr = 0.5 * world.links.uplink_gain / NOISE
    air = bits / (1e6 * np.log2(1 + snr))
    queues = [sum(a for a, cell in zip(air, CELLS, strict=True) if cell == k) for k in range(3)]
    assert found.seconds == pytest.approx(max(queues), rel=1e-9)
    assert found.uplink_bits == 6 * bits


def test_a_device_changes_its_cell_on_its_way(tmp_path: Path) -> None:
    trace = tmp_path / "places.csv"
    trace.write_text("seconds,device,x,y\n0,0,0,5\n1e-6,0,200,5\n1e6,0,200,5\n")
    changes = {"fleet__position_trace": str(trace), "radio__cells": "apart"}
    world = world_of(tmp_path, **changes)
    result = simulate(world, FedAvg())
    first = result.history.records[1].virtual_seconds
    assert first == pytest.approx(camu.plan(FedAvg(), world).round_seconds, rel=1e-9)
    moved = world_of(tmp_path, fleet__positions=[[200, 5, 0], *PLACES[1:]], radio__cells="apart")
    plan = camu.plan(FedAvg(), moved)
    assert [unit.cell for unit in result.plan.units] == [1, *CELLS[1:]]
    second = result.history.records[2].virtual_seconds - first
    assert second == pytest.approx(plan.round_seconds, rel=1e-9)


def test_an_unknown_place_cannot_interfere(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("id,x,y,gain_db,samples\na,0,0,,5\nb,200,0,,5\nc,,,-80,5\n")
    world_of(tmp_path)  # writes the stations
    changes = {
        "fleet.file": str(fleet),
        "fleet.base_station_file": str(tmp_path / "stations.csv"),
        "radio.cells": "interfering",
    }
    world = build_world(load_config(preset="demo", overrides=changes))
    with pytest.raises(InputError, match=r"radio\.cells = .*device c has no position"):
        camu.plan(FedAvg(), world)


def test_a_row_of_the_plan_names_its_base_station(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    stations = tmp_path / "stations.csv"
    stations.write_text(stations.read_text().replace("\n1,", "\nmast B,"))
    rows = csv.DictReader(camu.plan(FedAvg(), world).to_csv(world).splitlines())
    assert [row["base_station"] for row in rows] == ["0", "0", "mast B", "mast B", "mast B", "2"]
