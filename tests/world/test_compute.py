"""Time and energy of local updates against the formulas, device by device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.config import ReadingsConfig, TrainingConfig
from camu.data.batches import batch_samples
from camu.world import (
    Devices,
    update_joules,
    update_seconds,
)


@pytest.fixture
def devices() -> Devices:
    return Devices(
        ids=("a", "b", "c"),
        positions=np.zeros((3, 3)),
        regions=("", "", ""),
        label_counts=[[50, 50], [10, 0], [1, 1]],  # type: ignore[arg-type]
        cpu_hz=np.array([1e9, 2e9, 0.5e9]),
        cycles_per_sample=np.array([2e6, 1e6, 4e6]),
        capacitance=np.array([1e-28, 2e-28, 1e-28]),
        power_watts=np.full(3, 0.5),
        max_power_watts=np.ones(3),
        battery_joules=np.full(3, np.nan),
    )


def test_batches() -> None:
    assert batch_samples(0.2, [1500, 100, 3, 1, 0]).tolist() == [300, 20, 1, 1, 0]
    assert batch_samples(1.0, [7, 1]).tolist() == [7, 1]
    assert batch_samples(32, [1500, 32, 5, 0]).tolist() == [32, 32, 5, 0]


@given(batch=st.floats(1e-9, 1) | st.integers(1, 10**9), samples=st.integers(1, 10**9))
def test_a_batch_is_some_of_the_data(batch: float, samples: int) -> None:
    assert 1 <= int(batch_samples(batch, samples)) <= samples


def test_a_step_processes_one_batch(devices: Devices) -> None:
    training = TrainingConfig(batch_fraction=0.2)
    seconds = update_seconds(devices, training)
    assert seconds == pytest.approx([2e6 * 20 / 1e9, 1e6 * 2 / 2e9, 4e6 * 1 / 0.5e9])
    joules = update_joules(devices, ReadingsConfig(), training, 21_880)
    assert joules == pytest.approx([1e-28 * 4e7 * 1e18, 2e-28 * 2e6 * 4e18, 1e-28 * 4e6 * 0.25e18])


def test_an_epoch_processes_everything(devices: Devices) -> None:
    training = TrainingConfig(local_update="epoch")
    assert update_seconds(devices, training) == pytest.approx([0.2, 0.005, 0.016])
    joules = update_joules(devices, ReadingsConfig(), training, 21_880)
    assert joules == pytest.approx([0.02, 2e-28 * 1e7 * 4e18, 1e-28 * 8e6 * 0.25e18])


def test_the_printed_energy(devices: Devices) -> None:
    readings = ReadingsConfig(compute_model="literal")
    joules = update_joules(devices, readings, TrainingConfig(), 1000)
    assert joules == pytest.approx([2e9 / 1e9 / 2, 1e9 / 2e9 / 2, 4e9 / 0.5e9 / 2])


def test_devices_are_read_only_and_selectable(devices: Devices) -> None:
    with pytest.raises(ValueError, match="read-only"):
        devices.cpu_hz[0] = 1
    part = devices.select([2, 0])
    assert part.ids == ("c", "a")
    assert part.samples.tolist() == [2, 100]
    assert part.cpu_hz.tolist() == [0.5e9, 1e9]
    with pytest.raises(ValueError, match="rows"):
        Devices(**{**devices.__dict__, "cpu_hz": np.ones(2)})
