"""Worlds: a function of configuration and seed, with warnings computed from what they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import Config, load_config
from camu.world import World, build_world

DIGITS = load_config(preset="demo")


@dataclass(frozen=True)
class FakeFederation:
    label_counts: np.ndarray


def without_data(monkeypatch: pytest.MonkeyPatch, config: Config, seed: int = 0) -> World:
    """A world whose devices hold 150 samples of each label, without reading a data set."""

    def federate(data: Any, devices: int, seed: int) -> FakeFederation:
        return FakeFederation(np.full((devices, 10), 150))

    monkeypatch.setattr("camu.data.federate", federate)
    return build_world(config, seed)


def test_devices_stand_in_their_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = without_data(monkeypatch, load_config(preset="paper"))
    devices = world.devices
    assert devices.count == 30
    assert devices.regions == ("Region I",) * 15 + ("Region II",) * 15
    x, y, z = devices.positions.T
    assert ((x[:15] >= -10) & (x[:15] <= 0)).all()
    assert ((x[15:] >= 10) & (x[15:] <= 20)).all()
    assert (np.abs(y) <= 5).all()
    assert (z == 0).all()
    low, high = world.config.fleet.cpu_hz
    assert ((devices.cpu_hz >= low) & (devices.cpu_hz <= high)).all()
    assert len(set(devices.cpu_hz)) == 30
    assert world.warnings() == []


def test_the_seed_decides_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(preset="paper")
    one, same = without_data(monkeypatch, config, 4), without_data(monkeypatch, config, 4)
    other = without_data(monkeypatch, config, 5)
    assert (one.devices.positions == same.devices.positions).all()
    assert (one.links.gamma() == same.links.gamma()).all()
    assert (one.devices.positions != other.devices.positions)[:, :2].all()
    assert (one.devices.cpu_hz != other.devices.cpu_hz).all()
    quiet = config.replace({"radio.noise": "harsh"})
    assert (without_data(monkeypatch, quiet, 4).devices.cpu_hz == one.devices.cpu_hz).all()


def test_a_real_federation_fills_the_label_counts() -> None:
    world = build_world(DIGITS)
    assert world.seed == DIGITS.run.seed
    assert world.devices.count == DIGITS.fleet.devices
    assert world.devices.label_counts.shape[1] == 10
    assert (world.devices.samples > 0).all()
    assert world.federation is not None


def test_the_printed_noise_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = without_data(monkeypatch, load_config(preset="literal")).warnings()
    snr_db = re.search(r"about (-\d+) dB", warning)
    assert snr_db is not None
    assert -75 <= int(snr_db[1]) <= -66
    assert "weeks" in warning
    deviation = re.search(r"raw weight has a standard deviation of about (\d+)", warning)
    assert deviation is not None
    assert 2000 <= int(deviation[1]) <= 6000
    assert "radio.noise=thermal" in warning


def test_warnings_follow_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    far = DIGITS.replace({"fleet.base_station": (-5000.0, 0.0, 10.0), "radio.uplink": "digital"})
    (warning,) = without_data(monkeypatch, far).warnings()
    assert "nearer base station" in warning
    assert "deviation" not in warning
    outage = DIGITS.replace({"radio.outage_snr_db": 26.0})
    (warning,) = without_data(monkeypatch, outage).warnings()
    assert warning.startswith("10 of 20 devices")


def test_a_large_world_needs_no_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    region = {"name": "town", "devices": 50_000, "x": [0.0, 5e3], "y": [0.0, 5e3]}
    config = DIGITS.replace(
        {
            "fleet.regions": [region],
            "radio.path_loss": "umi",
            "radio.shadowing_db": 4.0,
            "radio.fading": "rician",
        },
    )
    links = without_data(monkeypatch, config).links
    assert links.device_snr_db(np.arange(20), np.arange(50_000)).shape == (20, 50_000)
    assert links.fading(3).shape == (50_000,)


def test_the_docs_quote_the_warning_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = without_data(monkeypatch, load_config(preset="literal")).warnings()
    page = Path(__file__).parents[2] / "docs" / "world.md"
    assert warning in " ".join(page.read_text("utf-8").split())
