"""The labels that a plan trains on, against sums by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from camu.planning.bias import label_bias
from camu.schemes import Camu, CamuNova, ComputeRounds, FedAvg
from camu.world import World

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
