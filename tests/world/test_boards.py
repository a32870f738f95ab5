"""Boards: what a device has from its profile, what its file says instead, and wrong profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import camu
from camu.config import Config, load_config
from camu.errors import InputError
from camu.learning.flops import training_flops
from camu.planning.costs import Costs
from camu.world import World, build_world
from camu.world.boards import STATIC_SHARE, built_in, find_board

AUTO = {"fleet.cycles_per_sample": "auto"}
NUMBERS = ("cpu_hz", "flops_per_second", "idle_watts", "busy_watts", "sleep_watts")


def world_of(folder: Path, rows: str, **changes: object) -> World:
    path = folder / "fleet.csv"
    path.write_text(rows)
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return build_world(load_config(overrides={"fleet.file": str(path), **AUTO, **dotted}))


def test_every_number_of_a_board_says_where_it_is_from() -> None:
    for name, board in built_in().items():
        assert board.source is not None
        assert tuple(board.source) == NUMBERS, name
        for text in board.source.values():
            assert text.split(":")[0] in ("data sheet", "measured", "estimate"), (name, text)
        assert board.idle_watts is not None
        assert board.busy_watts is not None
        assert board.sleep_watts is not None
        assert board.sleep_watts < board.idle_watts < board.busy_watts
        assert 0.05 < board.flops_per_cycle < 1000


def test_a_device_has_what_its_board_has(tmp_path: Path) -> None:
    """By hand: 2.228e5 FLOPs at 8.3 GFLOP/s, and 3.7 W more than idle while it computes."""
    rows = "id,x,y,samples,board\na,0,0,50,pi-4\nb,1,0,50,\n"
    world = world_of(tmp_path, rows)
    flops, devices = training_flops(world.config), world.devices
    assert devices.board == ("pi-4", "")
    assert devices.cpu_hz[0] == 1.8e9
    seconds = camu.world.update_seconds(devices, world.config.training)
    assert seconds[0] == pytest.approx(10 * flops / 8.3e9)
    training, readings = world.config.training, world.config.readings
    joules = camu.world.update_joules(devices, readings, training, 1)
    assert joules[0] == pytest.approx((6.4 - 2.7) * seconds[0])
    assert devices.idle_watts.tolist() == [2.7, world.config.fleet.idle_watts]
    assert devices.static_watts == pytest.approx([0.4 * 3.7, world.config.fleet.static_watts])
    assert devices.cycles_per_sample[1] == flops / world.config.fleet.flops_per_cycle
    assert devices.capacitance[1] == world.config.fleet.capacitance


def test_columns_go_over_the_board_and_the_board_over_the_fleet(tmp_path: Path) -> None:
    rows = (
        "id,x,y,samples,board,cpu_hz,idle_watts,static_watts\n"
        "a,0,0,9,,,,\nb,1,0,9,esp32-s3,1e8,0.5,0\n"
    )
    devices = world_of(tmp_path, rows, fleet__board="pi-5", fleet__idle_watts=9.0).devices
    assert devices.board == ("pi-5", "esp32-s3")
    assert devices.cpu_hz.tolist() == [2.4e9, 1e8]
    assert devices.idle_watts.tolist() == [3.0, 0.5]
    assert devices.static_watts.tolist() == [STATIC_SHARE * 8.0, 0.0]


def test_fleet_board_is_that_of_devices_in_regions() -> None:
    devices = build_world(load_config(preset="devices")).devices
    assert devices.board == ("pi-4",) * 20
    assert set(devices.idle_watts) == {2.7}


def test_without_boards_all_is_as_the_configuration_says() -> None:
    world = build_world(load_config())
    fleet = world.config.fleet
    assert world.devices.board == ("",) * 20
    assert set(world.devices.idle_watts) == {fleet.idle_watts}
    assert set(world.devices.static_watts) == {fleet.static_watts}
    assert set(world.devices.cycles_per_sample) == {2e6}


def test_idle_power_of_unequal_devices_adds_up() -> None:
    """Of a fleet with one number the sums are those of a product, to the last bit."""
    sizes = np.array([3, 1, 4])
    empty = np.zeros(3)
    names = ("compute_seconds", "gather_seconds", "answer_seconds", "compute_joules")
    more = ("gather_joules", "uplink_seconds", "uplink_joules", "uplink_snr")
    rest = ("member_compute_joules", "member_gather_joules", "member_compute_seconds")
    known = dict.fromkeys((*names, *more, *rest, "member_slowest"), empty)
    bits = {"uplink_bits": sizes, "gather_bits": sizes, "downlink_bits": 0}
    costs = Costs(sizes=sizes, **known, **bits, idle_watts=np.full(8, 0.07))
    assert costs.all_idle_watts == 0.07 * 8.0
    assert costs._mean_idle_watts().tolist() == [0.07] * 3
    watts = np.array([1.0, 2.0, 6.0, 0.5, 0.0, 0.0, 0.0, 2.0])
    costs = Costs(sizes=sizes, **known, **bits, idle_watts=watts)
    assert costs.all_idle_watts == pytest.approx(watts.sum())
    assert costs._mean_idle_watts() == pytest.approx([3.0, 0.5, 0.5])


def config_of(board: str) -> Config:
    return load_config(overrides={"fleet.board": board})


def test_a_wrong_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^fleet.board: pi4: no such board; did you mean `pi-4`"):
        build_world(config_of("pi4"))
    rows = "id,x,y,samples,board\na,0,0,50,pi-4\nb,1,0,50,pi-6\n"
    with pytest.raises(InputError, match=r"fleet.csv, line 3, column board: pi-6: no such board"):
        world_of(tmp_path, rows)


GOOD = "cpu_hz = 2e9\nflops_per_second = 4e9\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu_hz = 2e9\n", "flops_per_second is missing; write a number from 1 to 1e[+]18"),
        ("cpu_hz = true\nflops_per_second = 4e9\n", "cpu_hz = True; write a number"),
        (GOOD + "idle_watts = 1\n", "give both idle_watts and busy_watts, or neither"),
        (GOOD + "idle_watts = 2\nbusy_watts = 1\n", "busy_watts = 1 includes idle power"),
        (GOOD + "idle_watts = nan\nbusy_watts = 1\n", "idle_watts = nan; write a number from 0"),
        ("cpu_hz = ", "is not valid TOML"),
    ],
)
def test_a_wrong_profile_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^fleet.board: {path}: {said}"):
        find_board(str(path), "fleet.board")


def test_a_profile_may_leave_watts_to_the_fleet(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    world = build_world(config_of(str(path)))
    fleet = world.config.fleet
    assert set(world.devices.idle_watts) == {fleet.idle_watts}
    assert set(world.devices.capacitance) == {fleet.capacitance}
    assert set(world.devices.cycles_per_sample) == {training_flops(world.config) / 2}
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        build_world(config_of(str(tmp_path / "nowhere.toml")))


def test_problems_without_words_for_idle_power_say_so() -> None:
    config = load_config(preset="devices", overrides={"allocation.max_total_power_watts": 5.0})
    with pytest.raises(InputError, match="circuit or idle power"):
        camu.plan(camu.make_scheme(config, "camu-joint"), build_world(config))
