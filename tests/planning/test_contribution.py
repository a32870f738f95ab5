"""W_c, G_c, theta_c, S_c and N_c against other people's code, 50-digit arithmetic and loops."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import wasserstein_distance

from camu.planning.contribution import (
    SMALLEST_DISTANCE,
    aggregation_weights,
    contribution,
    extra_updates,
    gate,
    group_counts,
    label_distance,
    log_contribution,
)

ANY_COUNTS = st.tuples(st.integers(1, 6), st.integers(1, 12)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 10**12))
)
LOG_THETAS = arrays(np.float64, st.integers(1, 8), elements=st.floats(0.0, 30.0))


def filled(counts: np.ndarray) -> np.ndarray:
    """The same with a sample of label 0 in every empty row: a cluster holds data."""
    out = counts.copy()
    out[out.sum(axis=1) == 0, 0] = 1
    return out


@given(ANY_COUNTS.map(filled))
def test_the_distance_is_scipys(counts: np.ndarray) -> None:
    everyone = counts.sum(axis=0)
    labels = np.arange(counts.shape[1])
    for row, found in zip(counts, label_distance(counts, everyone), strict=True):
        expected = wasserstein_distance(labels, labels, row, everyone)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_distance_by_hand() -> None:
    # All at label 0 against an even spread over 0, 1, 2: a third moves one step, a third two.
    counts, everyone = np.array([[9, 0, 0], [0, 9, 0], [3, 3, 3]]), np.array([5, 5, 5])
    assert label_distance(counts, everyone) == pytest.approx([1.0, 2 / 3, 0.0])
    assert label_distance(counts, everyone, "tv") == pytest.approx([2 / 3, 2 / 3, 0.0])
    assert label_distance(np.array([[2, 1, 1]]), np.array([1, 2, 1]), "tv") == pytest.approx([0.25])


@given(ANY_COUNTS.map(filled), st.randoms(use_true_random=False))
def test_total_variation_does_not_care_how_labels_are_numbered(
    counts: np.ndarray, random: Any
) -> None:
    order = list(range(counts.shape[1]))
    random.shuffle(order)
    everyone = counts.sum(axis=0)
    found = label_distance(counts, everyone, "tv")
    for row, value in zip(counts.tolist(), found, strict=True):
        shares = [
            a / sum(row) - b / int(everyone.sum()) for a, b in zip(row, everyone, strict=True)
        ]
        assert value == pytest.approx(math.fsum(abs(x) for x in shares) / 2, abs=1e-12)
    moved = label_distance(counts[:, order], everyone[order], "tv")
    assert moved == pytest.approx(found, abs=1e-12)
    assert ((found >= 0) & (found <= 1 + 1e-12)).all()


def test_groups_add_up_their_devices() -> None:
    counts = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    assert group_counts(counts, [(3, 0), (1,), (2,)]).tolist() == [[8, 10], [3, 4], [5, 6]]


ORDINARY = st.lists(
    st.tuples(st.integers(1, 100_000), st.floats(0.05, 9.0)), min_size=1, max_size=8
)


@given(ORDINARY, st.sampled_from([0.0, 0.25, 0.5]))
def test_weights_and_contribution_in_fifty_digits(
    clusters: list[tuple[int, float]], w_min: float
) -> None:
    samples = np.array([size for size, _ in clusters])
    distance = np.array([w for _, w in clusters])
    log_theta = log_contribution(samples, distance, w_min)
    with mpmath.workdps(50):
        theta = [n * mpmath.exp(1 / max(mpmath.mpf(w), mpmath.mpf(w_min))) for n, w in clusters]
        weights = [one / mpmath.fsum(theta) for one in theta]
    assert contribution(log_theta) == pytest.approx([float(one) for one in theta], rel=1e-13)
    assert aggregation_weights(log_theta) == pytest.approx(
        [float(one) for one in weights], rel=1e-12
    )


@given(
    ANY_COUNTS.map(filled),
    st.sampled_from(["wasserstein", "tv"]),
    st.sampled_from([0.0, 1e-12, 0.5, 1e6]),
)
def test_finite_for_every_histogram(counts: np.ndarray, kind: str, w_min: float) -> None:
    distance = label_distance(counts, counts.sum(axis=0), kind)
    log_theta = log_contribution(counts.sum(axis=1), distance, w_min)
    theta, weights = contribution(log_theta), aggregation_weights(log_theta)
    for values in (distance, log_theta, theta, weights):
        assert np.isfinite(values).all()
    assert (theta > 0).all()
    assert ((weights >= 0) & (weights <= 1)).all()
    assert math.fsum(weights) == pytest.approx(1.0, abs=1e-12)


def test_clusters_that_look_like_everyone_share_the_weight_by_size() -> None:
    """W = 0 and w_min = 0, where e^(1/W) has no value: finite, and only sizes decide."""
    log_theta = log_contribution(np.array([300, 100]), np.zeros(2), 0.0)
    assert log_theta == pytest.approx(1 / SMALLEST_DISTANCE + np.log([300, 100]), rel=1e-15)
    # 1e6 + log(300) keeps about nine digits of the logarithm.
    assert aggregation_weights(log_theta) == pytest.approx([0.75, 0.25], rel=1e-9)
    assert contribution(log_theta).tolist() == pytest.approx([np.finfo(float).max] * 2)
    # Beside a cluster that does not, they take everything.
    far = log_contribution(np.array([1, 10**12]), np.array([0.0, 0.5]), 0.0)
    assert aggregation_weights(far).tolist() == [1.0, 0.0]


def test_one_cluster_has_all_the_weight() -> None:
    assert aggregation_weights(log_contribution([7], np.zeros(1), 0.5)).tolist() == [1.0]


@given(LOG_THETAS, st.floats(1e-3, 1e13))
def test_the_gate_is_its_definition(log_theta: np.ndarray, threshold: float) -> None:
    theta = [math.exp(value) for value in log_theta]
    assume(all(abs(one / threshold - 1) > 1e-9 for one in theta))
    assert gate(log_theta, threshold, 0.9).tolist() == [one >= threshold for one in theta]


def test_a_cluster_at_the_threshold_passes() -> None:
    log_theta = np.log(np.array([99.0, 100.0, 101.0]))
    assert gate(log_theta, 100.0, 0.5).tolist() == [False, True, True]


@given(LOG_THETAS)
def test_the_ends_of_the_threshold(log_theta: np.ndarray) -> None:
    assert gate(log_theta, 0.0, 1.0).all()
    assert not gate(log_theta, math.inf, 0.0).any()


@given(LOG_THETAS, st.floats(0.0, 1.0))
def test_the_gate_at_a_quantile(log_theta: np.ndarray, quantile: float) -> None:
    ordered = sorted(log_theta.tolist())
    limit = ordered[min(math.floor(quantile * (len(ordered) - 1)), len(ordered) - 1)]
    # np.quantile rounds the position; a quantile that lies on a contribution may fall either side.
    position = quantile * (len(ordered) - 1)
    assume(position == round(position) or abs(position - round(position)) > 1e-9)
    found = gate(log_theta, None, quantile)
    assert found.tolist() == [value >= limit for value in log_theta]
    assert found.any()


def test_quantiles_by_hand() -> None:
    log_theta = np.array([3.0, 1.0, 4.0, 2.0, 5.0])
    assert gate(log_theta, None, 0.0).sum() == 5
    assert gate(log_theta, None, 0.5).tolist() == [True, False, True, False, True]
    assert gate(log_theta, None, 1.0).tolist() == [False, False, False, False, True]


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=8),
    st.integers(0, 12),
    st.floats(1e-6, 1e6),
)
def test_extra_updates_by_counting(ticks: list[int], most: int, unit: float) -> None:
    """Times are whole multiples of a unit, so that a loop can count exactly what fits."""
    expected = []
    for time in ticks:
        extra = 0
        while extra < most and (extra + 2) * time <= max(ticks):
            extra += 1
        expected.append(extra)
    found = extra_updates(np.array(ticks) * unit, most)
    assert found.tolist() == expected
    assert found.dtype == np.int64
