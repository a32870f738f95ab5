"""Worlds: a function of configuration and seed, with warnings computed from what they hold."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from camu.config import Config, load_config
from camu.errors import InputError
from camu.planning.prices import unit_costs
from camu.world import World, build_world

DIGITS = load_config(settings=["fleet.cycles_per_sample=auto"])


def without_data(config: Config, seed: int = 0) -> World:
    """A world whose devices hold 150 samples of each label, without reading a data set."""
    return build_world(config, seed, np.full((config.fleet.devices, 10), 150))


def test_devices_stand_in_their_regions() -> None:
    world = without_data(load_config(preset="paper"))
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


def test_the_seed_decides_and_nothing_else() -> None:
    config = load_config(preset="paper")
    one, same = without_data(config, 4), without_data(config, 4)
    other = without_data(config, 5)
    assert (one.devices.positions == same.devices.positions).all()
    assert (one.links.gamma() == same.links.gamma()).all()
    assert (one.devices.positions != other.devices.positions)[:, :2].all()
    assert (one.devices.cpu_hz != other.devices.cpu_hz).all()
    quiet = config.replace({"radio.noise_dbm": -80.0})
    assert (without_data(quiet, 4).devices.cpu_hz == one.devices.cpu_hz).all()


def test_a_real_federation_fills_the_label_counts() -> None:
    world = build_world(DIGITS)
    assert world.seed == DIGITS.run.seed
    assert world.devices.count == DIGITS.fleet.devices
    assert world.devices.label_counts.shape[1] == 10
    assert (world.devices.samples > 0).all()
    assert world.federation is not None


def test_label_counts_replace_the_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build_world(DIGITS, 3)
    monkeypatch.setattr("camu.data.federate", None)  # no data set is loaded
    counted = build_world(DIGITS, 3, whole.devices.label_counts.tolist())
    assert counted.federation is None
    for field in fields(whole.devices):
        one, other = getattr(whole.devices, field.name), getattr(counted.devices, field.name)
        measured = (
            "battery_joules",
            "sample_seconds",
            "sample_joules",
            "label_epsilon",
            "rate_bps",
            "sleep_watts",
        )
        unknown = field.name in measured  # may be nan
        assert np.array_equal(one, other, equal_nan=unknown), field.name
    assert (whole.links.gamma() == counted.links.gamma()).all()
    with pytest.raises(ValueError, match="label_counts has 2 rows for"):
        build_world(DIGITS, 3, np.ones((2, 10)))


def test_the_seed_of_a_world_is_that_of_its_configuration() -> None:
    world = without_data(DIGITS, 7)
    assert world.seed == world.config.run.seed == world.links.seed == 7
    assert without_data(DIGITS, DIGITS.run.seed).config is DIGITS


def test_devices_have_one_place() -> None:
    """Links once kept a copy of the devices' powers, which was stale after a change."""
    world = without_data(DIGITS)
    louder = world.with_devices(power_watts=2 * world.devices.power_watts)
    assert louder.links.devices is louder.devices
    assert louder.links.uplink_snr() == pytest.approx(2 * world.links.uplink_snr())
    assert (louder.devices.positions == world.devices.positions).all()


def test_the_printed_noise_is_called_by_its_name() -> None:
    (warning,) = without_data(load_config(preset="literal")).warnings()
    snr_db = re.search(r"about (-\d+) dB", warning)
    assert snr_db is not None
    assert -75 <= int(snr_db[1]) <= -66
    assert "weeks" in warning
    deviation = re.search(r"raw weight has a standard deviation of about (\d+)", warning)
    assert deviation is not None
    assert 2000 <= int(deviation[1]) <= 6000
    assert "radio.noise_dbm unset" in warning


def test_warnings_follow_the_world() -> None:
    far = DIGITS.replace({"fleet.base_station": (-5000.0, 0.0, 10.0), "radio.uplink": "digital"})
    (warning,) = without_data(far).warnings()
    assert "nearer base station" in warning
    assert "deviation" not in warning
    outage = DIGITS.replace({"radio.outage_snr_db": 26.0})
    (warning,) = without_data(outage).warnings()
    assert warning.startswith("10 of 20 devices")


def test_an_analogue_upload_takes_as_long_at_any_snr() -> None:
    """Two parameters per symbol, a symbol per second and hertz: 10 940 symbols at 1 MHz."""
    far = DIGITS.replace({"fleet.base_station": (-5000.0, 0.0, 10.0), "radio.uplink": "analog"})
    world = without_data(far)
    (warning,) = world.warnings(21_880)
    assert "21880 parameters takes about 0.011 seconds per device" in warning
    assert "deviation" in warning
    costs = unit_costs(world, [(0,)], [0], [0.5], [1], 21_880)
    assert costs.uplink_seconds == pytest.approx([0.01094], rel=1e-12)
    near = DIGITS.replace({"radio.uplink": "analog", "fleet.base_station": (-10.0, 0.0, 1.0)})
    assert without_data(near).warnings() == []


def test_a_large_world_needs_no_matrix() -> None:
    region = {"name": "town", "devices": 50_000, "x": [0.0, 5e3], "y": [0.0, 5e3]}
    config = DIGITS.replace(
        {
            "fleet.regions": [region],
            "radio.path_loss": "umi",
            "radio.shadowing_db": 4.0,
            "radio.fading": "rician",
        },
    )
    links = without_data(config).links
    assert links.device_snr_db(np.arange(20), np.arange(50_000)).shape == (20, 50_000)
    assert links.fading(3).shape == (50_000,)


def test_the_docs_quote_the_warning_as_it_is() -> None:
    (warning,) = without_data(load_config(preset="literal")).warnings()
    page = Path(__file__).parents[2] / "docs" / "world.md"
    assert warning in " ".join(page.read_text("utf-8").split())


def test_a_world_makes_a_value_once_and_a_changed_world_makes_it_again() -> None:
    world, made = build_world(load_config(preset="demo")), []
    for _ in range(2):
        assert world.cached("key", lambda: made.append(1) or len(made)) == 1
    slower = world.with_devices(cpu_hz=world.devices.cpu_hz / 2)
    assert slower.cached("key", lambda: made.append(1) or len(made)) == 2


def test_devices_are_not_moved_without_their_links() -> None:
    world = build_world(load_config(preset="demo"))
    with pytest.raises(InputError, match=r"fleet\.positions"):
        world.with_devices(positions=world.devices.positions + 100.0)
