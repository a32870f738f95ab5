"""The labels that a plan trains on, against sums by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from camu.config import load_config
from camu.planning.contribution import label_bias
from camu.schemes import Camu, CamuNova, ClusterNova, ComputeRounds, FedAvg, FedNova
from camu.world import World, build_world

Tiny = Callable[..., World]


@pytest.mark.parametrize("scheme", [ComputeRounds(), Camu(), CamuNova(), FedAvg()])
def test_every_sample_counts_by_its_device_its_unit_and_the_steps(tiny: Tiny, scheme: Camu) -> None:
    world = tiny(fleet__cpu_hz=(1e8, 3e9), data__labels_per_device=1)
    plan = scheme.plan(world)
    totals = np.zeros(world.devices.label_counts.shape[1])
    plain = totals.copy()
    for unit in plan.units:
        for device, share in zip(unit.members, unit.member_weights, strict=True):
            counts = world.devices.label_counts[device]
            own = unit.weight * share * counts / counts.sum()
            plain += own
            totals += own * unit.local_updates * unit.update_scale
    everyone = world.devices.label_counts.sum(axis=0) / world.devices.samples.sum()
    found = label_bias(plan, world)
    assert found.trained == pytest.approx(totals / totals.sum())
    assert found.everyone == pytest.approx(everyone)
    assert found.distance == pytest.approx(0.5 * np.abs(totals / totals.sum() - everyone).sum())
    assert found.distance_of_weights == pytest.approx(0.5 * np.abs(plain - everyone).sum())


UNEQUAL = np.array([[40, 0, 0], [0, 10, 0], [0, 0, 90], [5, 5, 5], [20, 60, 0], [0, 7, 1]])


def unequal(**changes: Any) -> World:
    """Six devices with 8 to 90 samples, in epochs of batches of ten samples."""
    settings = {
        "fleet.regions": [{"name": "here", "devices": 6, "x": [0.0, 5.0], "y": [0.0, 5.0]}],
        "data.noniid_devices": 6,
        "training.local_update": "epoch",
        "training.batch_samples": 10,
        **changes,
    }
    return build_world(load_config(preset="demo", overrides=settings), label_counts=UNEQUAL)


@pytest.mark.parametrize("local_update", ["step", "epoch"])
def test_normalised_updates_have_the_bias_of_their_weights(local_update: str) -> None:
    world = unequal(**{"training.local_update": local_update})
    assert label_bias(FedNova().plan(world), world).distance == pytest.approx(0, abs=1e-12)
    for scheme in (ClusterNova(), CamuNova()):
        found = label_bias(scheme.plan(world), world)
        assert found.distance == pytest.approx(found.distance_of_weights, abs=1e-12)


def test_an_epoch_on_more_data_takes_more_steps() -> None:
    world = unequal()
    found = label_bias(FedAvg().plan(world), world)
    steps = np.array([4, 1, 9, 2, 8, 1])  # batches of ten
    labels = UNEQUAL / UNEQUAL.sum(axis=1, keepdims=True)
    moved = UNEQUAL.sum(axis=1) * steps
    assert found.trained == pytest.approx(moved @ labels / moved.sum())
    assert found.distance > 0.1


def test_equal_steps_and_weights_by_samples_have_no_bias(tiny: Tiny) -> None:
    world = tiny(data__labels_per_device=1)
    found = label_bias(FedAvg().plan(world), world)
    assert found.distance == pytest.approx(0, abs=1e-12)
    assert found.size_rank is None  # all devices hold the same number of samples


def test_rank_correlation_is_scipys(tiny: Tiny) -> None:
    world = tiny()
    plan = Camu().plan(world)
    units = [
        dataclasses.replace(unit, samples=int(n), contribution=float(theta))
        for unit, n, theta in zip(plan.units, (5, 9, 9, 2, 7, 1), (1, 4, 2, 2, 6, 3), strict=False)
    ]
    expected = stats.spearmanr([u.contribution for u in units], [u.samples for u in units])
    found = label_bias(dataclasses.replace(plan, units=tuple(units)), world).size_rank
    assert found == pytest.approx(expected.statistic)
    assert len(units) > 2
