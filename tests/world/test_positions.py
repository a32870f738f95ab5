"""Devices at positions that the configuration gives."""

from __future__ import annotations

import numpy as np
import pytest

from camu.config import Config
from camu.errors import InputError
from camu.world import build_world
from helpers.configs import small


def test_given_positions_replace_the_random_ones_and_change_nothing_else() -> None:
    drawn = build_world(small()).devices
    moved = drawn.positions.copy()
    moved[3] = (12.5, -1.0, 2.0)
    given = build_world(small(fleet__positions=moved.tolist())).devices
    assert np.array_equal(given.positions, moved)
    assert given.regions == drawn.regions
    assert np.array_equal(given.cpu_hz, drawn.cpu_hz)
    assert np.array_equal(given.label_counts, drawn.label_counts)


def test_positions_survive_a_file_to_the_last_bit() -> None:
    config = small(fleet__positions=build_world(small()).devices.positions.tolist())
    assert Config.from_toml(config.to_toml()) == config


def test_another_number_of_positions_than_devices_is_refused() -> None:
    with pytest.raises(InputError, match="there are 1 positions for the 20 devices of fleet"):
        small(fleet__positions=[[0.0, 0.0, 0.0]])


def test_a_position_has_three_coordinates() -> None:
    with pytest.raises(InputError, match=r"accepted: a list of positions \[x, y, z\], unit m"):
        small(fleet__positions=[[0.0, 0.0]] * 20)
