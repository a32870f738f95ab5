"""Plans of many units: pictures of bounded size, chosen from the whole fleet."""

from __future__ import annotations

import json

import numpy as np
import pytest

from camu.planning.plan import Plan
from camu.report import rows
from camu.report.figures import plan_figure
from camu.schemes import FedAvg
from camu.simulation.dry_run import round_cost
from camu.world import World
from helpers.small_fleets import random_world

DEVICES = 500


@pytest.fixture(scope="module")
def world() -> World:
    return random_world(DEVICES, 1)


@pytest.fixture(scope="module")
def plan(world: World) -> Plan:
    return FedAvg().plan(world)


@pytest.fixture(autouse=True)
def _small_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LARGEST_MAP", 80)


def test_maps_and_bars_are_chosen_from_the_whole_fleet(world: World, plan: Plan) -> None:
    tables = rows.plan_rows(plan.to_dict(world), [[0.0, 0.0, 10.0]], world.links, None)
    drawn = [int(row["device"]) for row in tables["devices"]]
    assert 60 <= len(drawn) <= 80
    assert max(drawn) > 0.9 * DEVICES
    assert len(tables["links"]) == len(drawn)
    for name in ("labels", "units", "timeline"):
        clusters = sorted({int(row["cluster"]) for row in tables[name]})
        assert len(clusters) == rows.LARGEST_BARS
        assert clusters[0] == 0
        assert clusters[-1] == DEVICES - 1
    places = {row["place"] for row in tables["labels"]}
    assert places == set(range(rows.LARGEST_BARS))


def test_bars_have_the_numbers_of_their_own_units(world: World, plan: Plan) -> None:
    tables = rows.plan_rows(plan.to_dict(world), [[0.0, 0.0, 10.0]], world.links, None)
    for row in tables["units"]:
        assert row["samples"] == plan.units[int(row["cluster"])].samples
    for row in tables["labels"]:
        assert row["samples"] == world.devices.label_counts[row["cluster"], row["label"]]


def test_the_matrix_shows_devices_that_are_on_the_map(world: World, plan: Plan) -> None:
    data = plan.to_dict(world)
    drawn = {row["device"] for row in rows.device_rows(data, None)}
    matrix = rows.snr_rows(data, world.links)
    assert {row["a"] for row in matrix} <= drawn
    assert len(matrix) == rows.LARGEST_MATRIX**2
    row = matrix[5]
    snr_db = world.links.device_snr_db([int(row["a"])], [int(row["b"])])[0, 0]
    assert row["snr"] == pytest.approx(snr_db, abs=0.051)


def test_a_figure_does_not_grow_with_the_fleet(world: World, plan: Plan) -> None:
    small = random_world(100, 1)
    sizes = [
        len(json.dumps(plan_figure(made, where, round_cost(where, FedAvg(), made))))
        for made, where in ((FedAvg().plan(small), small), (plan, world))
    ]
    assert sizes[1] < 1.5 * sizes[0]


def test_the_map_of_a_large_world_shows_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camu.world.picture.LARGEST_MAP", 50)
    world = random_world(120, 2)
    html = world._repr_html_()
    drawn = [k for k in range(120) if f"<title>{world.devices.ids[k]}: " in html]
    assert np.diff(drawn).tolist() == [3] * (len(drawn) - 1)
