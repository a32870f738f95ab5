"""Harvested energy: a trace against a sum by hand, and traces that are wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from camu.errors import InputError
from camu.planning.batteries import Batteries
from camu.planning.harvest import Harvest
from camu.world import World
from helpers.small_fleets import make_world


def world_with(path: Path, battery: float = 100.0, watts: float = 0.0) -> World:
    setting = f"fleet.harvest_trace='{path}'"
    world = make_world([[0, 0], [5, 0], [9, 0]], [[10], [10], [10]], [setting])
    full = np.full(3, battery)
    return world.with_devices(battery_joules=full, harvest_watts=np.full(3, watts))


def test_a_trace_is_a_sum_of_watts_times_seconds(tmp_path: Path) -> None:
    path = tmp_path / "sun.csv"
    path.write_text("seconds,device,watts\n10,*,2\n20,d1,0\n\n30,d1,4\n30.5,*,1\n")
    batteries = Batteries(world_with(path, 1000.0, 0.5))
    batteries.charge_joules[:] = 0.0
    for seconds in (3.0, 12.0, 25.0, 29.0, 41.0):  # where it is asked does not matter
        batteries.harvest_until(seconds)
    everyone = 0.5 * 10 + 2 * 20.5 + 1 * 10.5
    assert batteries.charge_joules[[0, 2]] == pytest.approx([everyone] * 2)
    assert batteries.charge_joules[1] == pytest.approx(5 + 2 * 10 + 0 + 4 * 0.5 + 10.5)
    batteries.harvest_until(1e6)
    assert (batteries.charge_joules == 1000).all()  # full


def test_a_checkpoint_finds_its_place_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "sun.csv"
    path.write_text("seconds,device,watts\n10,*,2\n20,*,0\n30,d1,4\n")
    whole, world = Batteries(world_with(path)), world_with(path)
    whole.charge_joules[:] = 1.0
    whole.harvest_until(15.0)
    again = Batteries(world)
    again.restore(whole.state())
    for each in (whole, again):
        each.harvest_until(33.0)
    assert (whole.charge_joules == again.charge_joules).all()
    assert whole.charge_joules.tolist() == [21.0, 33.0, 21.0]


WRONG = {
    "": "header",
    "seconds,watts\n1,2\n": "header",
    "seconds,device,watts\n1,d0\n": "line 2: 2 cells for the 3 columns",
    "seconds,device,watts\n1,d9,2\n": "line 2, column device: d9; no device",
    "seconds,device,watts\nnan,d0,2\n": "line 2, column seconds: 'nan'",
    "seconds,device,watts\n1,d0,2\n1,d0,-2\n": "line 3, column watts: -2;",
    "seconds,device,watts\n1,d0,1e999\n": "line 2, column watts",
    "seconds,device,watts\n1,d0,much\n": "line 2, column watts: 'much'",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_trace_is_refused_with_its_row(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sun.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=WRONG[text]) as caught:
        Harvest(world_with(path))
    assert str(path) in str(caught.value)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=200), cut=st.integers(0, 60))
def test_any_bytes_are_a_trace_or_are_refused(data: bytes, cut: int, tmp_path: Path) -> None:
    path = tmp_path / "sun.csv"
    for content in (data, b"seconds,device,watts\n0,*,1\n5,d0,2\n"[:cut] + data):
        path.write_bytes(content)
        charge = np.zeros(3)
        with suppress(InputError):
            Harvest(world_with(path)).fill(charge, np.full(3, 9.0), 0.0, 100.0)
        assert ((charge >= 0) & (charge <= 9)).all()
