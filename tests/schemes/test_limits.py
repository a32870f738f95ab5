"""One update among many cannot move buffers or weights beyond what the others do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from camu.learning.configured import model_layout
from camu.learning.job import Trained
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.schemes import FedSgd, plans
from camu.schemes.limits import Change, Limits, RoundLimits, with_limited_weights
from camu.seeding import derive
from camu.world import build_world
from helpers.configs import small

LAYOUT = model_layout(small())  # batch norm, so it has buffers
START = Weights(np.zeros(LAYOUT.parameter_count), np.ones(LAYOUT.buffer_count), LAYOUT)


def result(seed: int, buffers: float = 0.1) -> Trained:
    stream = derive(seed, "own-update").numpy()
    parameters = stream.standard_normal(LAYOUT.parameter_count)
    change = buffers * stream.standard_normal(LAYOUT.buffer_count)
    return Trained(Weights(parameters, START.buffers + change, LAYOUT), 1.0)


def limits_of(results: list[Trained], multiple: float = 2.0) -> Limits:
    return Limits.of([Change.of(one.weights, START) for one in results], multiple)


@pytest.mark.parametrize("size", [1e3, -1e30])
@pytest.mark.parametrize("bad", [1, 5])
def test_buffers_stay_among_those_of_the_others(size: float, bad: int) -> None:
    honest = [result(seed) for seed in range(20 - bad)]
    wrong = np.full(LAYOUT.buffer_count, size)
    liars = [Trained(replace(one.weights, buffers=wrong), 1.0) for one in honest[:bad]]
    limits = limits_of([*honest, *liars])
    seen = np.stack([one.weights.buffers for one in honest])
    for one in liars:
        found = limits.apply(one, START).weights.buffers
        assert (found <= seen.max(axis=0) + 1e-6).all()
        assert (found >= seen.min(axis=0) - 1e-6).all()


def test_what_is_within_the_range_keeps_its_bits() -> None:
    same = [result(seed, 0.0) for seed in range(5)]
    limits = limits_of(same)
    assert all(limits.apply(one, START) is one for one in same)
    far = [*same, result(9, 5.0)]
    assert all(limits_of(far, 0.0).apply(one, START) is one for one in far)  # switched off
    assert all(limits_of(far[-2:]).apply(one, START) is one for one in far)  # too few


def plan(weights: list[float]) -> Plan:
    config = small(scheme__name="fedsgd", fleet__devices=len(weights), data__noniid_devices=2)
    made = plans.plan(FedSgd(), build_world(config))
    return made.with_columns(weight=weights)


def test_a_weight_is_at_most_a_multiple_of_the_median() -> None:
    claimed = np.array([1.0] * 19 + [81.0]) / 100
    found = with_limited_weights(plan(claimed.tolist()), 2.0).column("weight")
    np.testing.assert_allclose(found, np.array([1.0] * 19 + [2.0]) / 21, rtol=1e-12)
    for multiple in (0.0, 100.0):
        same = plan(claimed.tolist())
        assert with_limited_weights(same, multiple) is same


def test_the_weight_of_a_member_is_its_share_of_the_unit() -> None:
    made = plan([0.25, 0.25, 0.25, 0.25])
    first, second, *others = made.units
    pair = replace(
        first,
        members=(*first.members, *second.members),
        weight=0.5,
        member_weights=(0.9, 0.1),
    )
    found = with_limited_weights(replace(made, units=(pair, *others)), 1.0)
    # Devices weigh 0.45, 0.05, 0.25 and 0.25; the first may weigh no more than 0.25.
    np.testing.assert_allclose(found.column("weight"), np.array([0.3, 0.25, 0.25]) / 0.8)
    np.testing.assert_allclose(found.units[0].member_weights, [0.25 / 0.3, 0.05 / 0.3])


def test_updates_of_few_devices_have_the_limits_of_the_round() -> None:
    kept = RoundLimits()
    all_of_them = [Change.of(result(seed).weights, START) for seed in range(20)]
    first = kept.of(all_of_them, 2.0, 0)
    assert kept.of(all_of_them[:2], 2.0, 0) is first
    liar = replace(result(0).weights, buffers=np.full(LAYOUT.buffer_count, -1e3))
    assert first.apply(Trained(liar, 1.0), START).weights.buffers.min() > 0
    assert np.isinf(kept.of(all_of_them[:2], 2.0, 1).norm)  # another round
