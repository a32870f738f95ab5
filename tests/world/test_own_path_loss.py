"""The user's own path loss, by name: found, checked, used; the docs' example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.errors import InputError, UserCodeError
from camu.world import World, build_world
from helpers.small_fleets import device_gain

PAGE = Path(__file__).parents[2] / "docs" / "own-parts.md"


def world_of(
    directory: Path, code: str, name: str = "gain", changes: dict[str, Any] | None = None
) -> World:
    (directory / "mine.py").write_text(code)
    own = {"radio.path_loss": f"{directory}/mine.py:{name}"}
    config = load_config(preset="demo").replace({**own, **(changes or {})})
    return build_world(config, label_counts=np.ones((config.fleet.devices, 10)))


def test_the_documented_example(tmp_path: Path) -> None:
    found = re.search(r"```python\n(# indoor\.py:.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    bare = {"radio.device_gain_dbi": 0.0, "radio.bs_gain_dbi": 0.0}
    world = world_of(tmp_path, found[1], changes=bare)
    everyone = np.arange(world.devices.count)
    gain = device_gain(world.links, everyone, everyone)
    assert (gain == gain.T).all()
    offset = world.devices.positions[:, None] - world.devices.positions[None]
    loss_db = 40 + 35 * np.log10(np.maximum(np.sqrt((offset**2).sum(-1)), 1))
    extra_db = -10 * np.log10(gain) - loss_db
    walls = np.abs(extra_db[np.triu_indices(len(gain), 1)])
    assert set(walls.round(6)) == {0.0, 10.0}
    away = world.devices.positions - world.base_stations[0]
    uplink_db = -10 * np.log10(world.links.uplink_gain / world.config.radio.antennas)
    free_db = 40 + 35 * np.log10(np.sqrt((away**2).sum(-1)))
    assert set(np.abs(uplink_db - free_db).round(6)) <= {0.0, 10.0}


def test_a_class_gets_the_configuration(tmp_path: Path) -> None:
    code = """
class Flat:
    def __init__(self, radio):
        self.carrier_hz = radio.carrier_hz
    def gain(self, ground_m, upper_m, lower_m, sight):
        return 0 * ground_m + 1 / self.carrier_hz
"""
    world = world_of(tmp_path, code, "Flat")
    radio = world.config.radio
    factor = radio.antennas * 10 ** ((radio.bs_gain_dbi + radio.device_gain_dbi) / 10)
    assert world.links.uplink_gain == pytest.approx(factor / radio.carrier_hz)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("1e-6", r"the gains have shape \(\); return one per link"),
        ("-1e-6 + 0 * ground_m", "a gain is nan, infinite or negative"),
        ("ground_m * float('inf')", "a gain is nan, infinite or negative"),
    ],
)
def test_wrong_gains_are_named(tmp_path: Path, returned: str, words: str) -> None:
    code = f"def gain(ground_m, upper_m, lower_m, sight):\n    return {returned}\n"
    with pytest.raises(InputError, match=f"radio.path_loss = .*mine.py:gain: {words}"):
        world_of(tmp_path, code)


def test_errors_and_things_that_are_no_path_loss(tmp_path: Path) -> None:
    code = "def gain(ground_m, upper_m, lower_m, sight):\n    return ground_m[10**9]\n"
    with pytest.raises(UserCodeError, match=r"mine\.py, line 2, in gain: IndexError"):
        world_of(tmp_path, code)
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="neither a function nor a class with a method gain"):
        world_of(tmp_path / "other", "gain = 3\n")
