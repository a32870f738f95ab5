"""A training's ledger of devices: what each spent, who is absent, and whose battery is empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from camu.live.training import Ledger
from camu.schemes import Camu
from camu.simulation.result import simulate
from camu.world import World


def test_the_ledger_agrees_with_the_history(tmp_path: Path, tiny: Callable[..., World]) -> None:
    world = tiny(faults__dropout_probability=0.4, run__rounds=4)
    history = simulate(world, Camu(), [Ledger(tmp_path / "devices.json")]).history
    document = json.loads((tmp_path / "devices.json").read_text())
    assert document["round"] == 4
    assert len(document["absent"]) == history.final.faults["absent"] > 0
    assert sum(document["joules"]) == pytest.approx(history.final.total_joules, rel=1e-5)
    assert document["empty"] == []


def test_devices_that_the_round_waited_for_are_not_absent(
    tmp_path: Path, tiny: Callable[..., World]
) -> None:
    """No device is available at first, so the run waits; then all train."""
    trace = tmp_path / "trace.csv"
    rows = [f"1000,1e9,{name}" for name in tiny().devices.ids]
    trace.write_text("\n".join(["start,end,device", *rows]))
    world = tiny(faults__availability_trace=str(trace), run__rounds=1)
    history = simulate(world, Camu(), [Ledger(tmp_path / "devices.json")]).history
    assert history.final.faults["absent"] == 0
    assert json.loads((tmp_path / "devices.json").read_text())["absent"] == []


def test_a_device_that_has_spent_its_battery_is_empty(
    tmp_path: Path, tiny: Callable[..., World]
) -> None:
    battery = np.array([np.nan, 1e9, 1e-9, np.nan, 1e9, np.nan])
    world = tiny().with_devices(battery_joules=battery)
    simulate(world, Camu(), [Ledger(tmp_path / "devices.json")])
    assert json.loads((tmp_path / "devices.json").read_text())["empty"] == [2]
