"""Where devices are at a time: random waypoints, traces, and the links that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.errors import InputError
from camu.world import World, build_world, movement
from camu.world.fading import link_uniform
from camu.world.movement import Waypoints

REGIONS = [
    {"name": "I", "devices": 3, "x": [-10.0, 0.0], "y": [-5.0, 5.0]},
    {"name": "II", "devices": 2, "x": [10.0, 20.0], "y": [-5.0, 5.0], "z": [1.0, 3.0]},
]
BASE = {"fleet.regions": REGIONS, "data.noniid_devices": 5}
COUNTS = np.full((5, 10), 4)


def world_of(**changes: Any) -> World:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    config = load_config(preset="demo", overrides={**BASE, **dotted})
    return build_world(config, label_counts=COUNTS)


def traced(tmp_path: Path, text: str, **changes: Any) -> World:
    (tmp_path / "places.csv").write_text(text)
    return world_of(fleet__position_trace=str(tmp_path / "places.csv"), **changes)


def walked(start: np.ndarray, seed: int, device: int, pause: float, until: float) -> list[float]:
    """The place of a device of region I at a time, leg by leg; speeds are from 1 to 3 m/s."""
    place, now, leg = start.tolist(), 0.0, 0
    low, high = (-10.0, -5.0, 0.0), (0.0, 5.0, 0.0)
    while True:
        numbers = np.array([2**24 + 4 * leg + part for part in range(4)])
        drawn = link_uniform(seed, "waypoint", np.full(4, device), numbers).tolist()
        goal = [a + u * (b - a) for a, b, u in zip(low, high, drawn[:3], strict=True)]
        arrives = now + float(np.hypot(goal[0] - place[0], goal[1] - place[1])) / (1 + 2 * drawn[3])
        if until < arrives:
            share = (until - now) / (arrives - now)
            return [a + share * (b - a) for a, b in zip(place, goal, strict=True)]
        if until < arrives + pause:
            return goal
        place, now, leg = goal, arrives + pause, leg + 1


@pytest.mark.parametrize("pause", [0.0, 2.5])
def test_waypoints_are_those_of_a_walk_leg_by_leg(pause: float) -> None:
    world = world_of(fleet__speed_mps=(1.0, 3.0), fleet__pause_seconds=pause)
    start = world.devices.positions
    for seconds in (0.0, 0.7, 3.0, 19.0, 20.0, 500.0):
        found = world.at(seconds).devices.positions
        for device in range(3):
            expected = walked(start[device], world.seed, device, pause, seconds)
            assert found[device] == pytest.approx(expected, abs=1e-9)


def test_devices_stay_in_their_boxes_at_their_speeds() -> None:
    world = world_of(fleet__speed_mps=(2.0, 2.0))
    step = 0.01
    times = np.arange(0.0, 60.0, step)
    places = np.array([world.at(seconds).devices.positions for seconds in times])
    for axis, low, high in ((0, -10.0, 0.0), (1, -5.0, 5.0), (2, 0.0, 0.0)):
        assert (places[:, :3, axis] >= low).all()
        assert (places[:, :3, axis] <= high).all()
    assert (places[:, 3:, 2] > 1.0).all()
    assert (places[:, 3:, 2] < 3.0).all()
    metres = np.linalg.norm(np.diff(places, axis=0), axis=2)
    assert metres.max() <= 2.0 * step * (1 + 1e-9)
    corners = (metres < 2.0 * step * (1 - 1e-6)).sum(axis=0)
    assert (corners > 3).all()
    walked_m = 2.0 * step * len(metres)
    assert (metres.sum(axis=0) <= walked_m + 1e-9).all()
    assert (metres.sum(axis=0) >= walked_m - 2.0 * step * corners).all()


def test_a_place_depends_on_the_time_alone() -> None:
    asked = [5.0, 80.0, 3.0, 80.0, 0.0]
    one = world_of(fleet__speed_mps=(1.0, 3.0), fleet__pause_seconds=0.5)
    found = [one.at(seconds).devices.positions for seconds in asked]
    for seconds, places in zip(asked, found, strict=True):
        fresh = world_of(fleet__speed_mps=(1.0, 3.0), fleet__pause_seconds=0.5)
        assert fresh.at(seconds).devices.positions.tobytes() == places.tobytes()
        assert one.at(9.0).at(seconds).devices.positions.tobytes() == places.tobytes()
    assert (found[0] != found[1])[:, :2].all()


def test_a_box_without_extent_holds_its_devices_and_many_legs_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(movement, "_MOST_LEGS", 100)
    start = np.zeros((2, 3))
    low, high = np.zeros((2, 3)), np.array([[0.0, 0.0, 0.0], [1e-3, 0.0, 0.0]])
    way = Waypoints(0, start, low, high, 1.0, 1.0, 0.0)
    assert way.positions(0.01)[0].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(InputError, match=r"fleet\.speed_mps = .*waypoints; lower the speed"):
        way.positions(1.0)


def test_a_trace_is_linear_between_its_rows(tmp_path: Path) -> None:
    rows = {"1": [(10, -5, 0), (20, 5, 8), (25, 5, -8)], "3": [(0, 12, 1), (30, 13, 2)]}
    text = "seconds,device,x,y\n" + "".join(
        f"{s},{name},{x},{y}\n" for name, own in reversed(rows.items()) for s, x, y in own[::-1]
    )
    still, world = world_of().devices.positions, traced(tmp_path, text)
    assert world.movement is not None
    assert world.movement.end_seconds == 30
    for seconds in (0.0, 9.0, 10.0, 12.5, 20.0, 24.0, 29.0, 30.0, 99.0):
        expected = still.copy()
        for name, own in rows.items():
            times, *axes = zip(*own, strict=True)
            expected[int(name), :2] = [np.interp(seconds, times, axis) for axis in axes]
        found = world.at(seconds).devices.positions
        assert found == pytest.approx(expected, abs=1e-12)
    assert world.devices.positions == pytest.approx(world.at(0.0).devices.positions)


def test_a_trace_may_hold_heights(tmp_path: Path) -> None:
    text = "seconds,device,x,y,z\n0,3,0,0,0\n10,3,0,0,5\n10,4,1,1,\n"
    world = traced(tmp_path, text)
    assert world.at(4.0).devices.positions[3].tolist() == [0, 0, 2]
    assert world.at(4.0).devices.positions[4, 2] == world_of().devices.positions[4, 2]


MODELS: dict[str, dict[str, Any]] = {
    "paper": {},
    "umi": {"radio__path_loss": "umi", "radio__shadowing_db": 4.0},
}


@pytest.mark.parametrize("model", MODELS)
def test_links_are_those_of_a_fleet_that_was_placed_there(model: str) -> None:
    more = {"radio__fading": "rayleigh", "radio__fading_correlation": 0.9, **MODELS[model]}
    moving = world_of(fleet__speed_mps=(1.0, 3.0), **more)
    for seconds in (0.0, 3.0, 40.0):
        moved = moving.at(seconds)
        there = world_of(fleet__positions=moved.devices.positions.tolist(), **more)
        assert (moved.links.uplink_gain == there.links.uplink_gain).all()
        assert (moved.links.gamma() == there.links.gamma()).all()
        assert (moved.links.fading(7) == there.links.fading(7)).all()


def test_a_device_is_handed_over_in_the_middle_between_two_stations(tmp_path: Path) -> None:
    (tmp_path / "stations.csv").write_text("id,x,y,z\na,0,0,10\nb,100,0,10\n")
    world = traced(
        tmp_path,
        "seconds,device,x,y\n0,0,10,0\n80,0,90,0\n",
        fleet__base_station_file=str(tmp_path / "stations.csv"),
    )
    served = [int(world.at(seconds).links.serving[0]) for seconds in (0, 39.9, 40.1, 80)]
    assert served == [0, 0, 1, 1]
    gains = [world.at(seconds).links.uplink_gain[0] for seconds in (20.0, 60.0)]
    assert gains[0] == pytest.approx(gains[1], rel=1e-12)


def test_nothing_moves_without_a_movement() -> None:
    cycles: dict[str, Any] = {"fleet__cycles_per_sample": "auto"}
    world = world_of(**cycles)
    assert world.at(1e6) is world
    moving = world_of(fleet__speed_mps=(1.0, 2.0), fleet__pause_seconds=1e6, **cycles)
    later = moving.at(100.0)
    assert later.at(101.0) is later  # all have arrived and pause
    assert world.warnings() == []
    assert moving.warnings() == [
        "devices move (fleet.speed_mps): plans and maps show them at second 0"
    ]


BAD = {
    "header": ("second,device,x,y\n", "line 1: the header of fleet.position_trace must be"),
    "device": ("seconds,device,x,y\n0,9,1,1\n", "column device: 9; no device is called so"),
    "second": ("seconds,device,x,y\n-1,0,1,1\n", "column seconds: -1; write a finite number"),
    "nan": ("seconds,device,x,y\n0,0,nan,1\n", "column x"),
    "empty": ("seconds,device,x,y\n0,0,1,\n", "column y: the cell is empty; write the place"),
    "far": ("seconds,device,x,y\n0,0,1e9,1\n", "column x: 1e9; a coordinate lies within"),
    "twice": ("seconds,device,x,y\n5,0,1,1\n5,0,2,2\n", "line 3, column seconds: 5; the device"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_trace_is_refused_with_its_place(tmp_path: Path, case: str) -> None:
    text, words = BAD[case]
    with pytest.raises(InputError) as error:
        traced(tmp_path, text)
    assert str(tmp_path / "places.csv") in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fleet__speed_mps": (0.0, 1.0)}, "fleet.speed_mps = [0.0, 1.0]: two numbers from"),
        ({"fleet__speed_mps": (2.0, 1.0)}, "the smaller first"),
        (
            {"fleet__speed_mps": (1.0, 1.0), "fleet__position_trace": "p.csv"},
            "fleet.speed_mps and fleet.position_trace both move the devices; set one",
        ),
    ],
)
def test_impossible_movement_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=r"fleet\.speed_mps") as error:
        world_of(**changes)
    assert words in str(error.value)


@pytest.mark.parametrize("column", ["gain_db", "distance_m"])
def test_measured_links_cannot_move(tmp_path: Path, column: str) -> None:
    value = -80 if column == "gain_db" else 30
    where = "x,y," if column == "gain_db" else ""
    place = "0,0," if column == "gain_db" else ""
    fleet = tmp_path / "fleet.csv"
    fleet.write_text(f"id,{where}{column},samples\na,{place}{value},5\nb,{place}{value},5\n")
    config = load_config(preset="demo", overrides={"fleet.file": str(fleet)})
    build_world(config)
    with pytest.raises(InputError, match=r"fleet\.speed_mps: links of this fleet were measured"):
        build_world(config.replace({"fleet.speed_mps": (1.0, 2.0)}))


def test_devices_of_a_fleet_file_move_within_the_box_of_their_region(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("id,x,y,region,samples\na,0,0,p,5\nb,9,4,p,5\nc,50,0,q,5\nd,60,8,q,5\n")
    changes = {"fleet.file": str(fleet), "fleet.speed_mps": (1.0, 3.0)}
    world = build_world(load_config(preset="demo", overrides=changes))
    for seconds in range(0, 100, 7):
        places = world.at(seconds).devices.positions
        assert (places[:2] >= [0, 0, 0]).all()
        assert (places[:2] <= [9, 4, 0]).all()
        assert (places[2:] >= [50, 0, 0]).all()
        assert (places[2:] <= [60, 8, 0]).all()
