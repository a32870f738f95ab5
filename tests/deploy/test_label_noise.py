"""Noise on label counts: the right distribution, the same for the same data, unknown to others."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from camu.deploy.node_data import noisy_counts

SECRET = b"a secret of the node"
DRAWS = 20_000


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_noise_is_discrete_laplace(epsilon: float) -> None:
    counts = [10_000] * 50  # far from 0, where counts are cut off
    noise = (
        np.array([noisy_counts(counts, epsilon, SECRET, str(k)) for k in range(400)]).ravel()
        - 10_000
    )
    # Against scipy's own distribution: P(k) proportional to exp(-epsilon |k|).
    reach = int(12 / epsilon)
    inner = np.arange(-reach, reach + 1)
    expected = stats.dlaplace.pmf(inner, epsilon) * len(noise)
    common = expected > 10
    seen = np.array([(noise == k).sum() for k in inner])
    found = stats.chisquare(
        [*seen[common], len(noise) - seen[common].sum()],
        [*expected[common], len(noise) - expected[common].sum()],
    )
    assert found.pvalue > 1e-3


def test_the_same_data_give_the_same_report_and_other_data_other_noise() -> None:
    counts = [50, 0, 7, 3]
    one = noisy_counts(counts, 1.0, SECRET, "pump")
    assert one == noisy_counts(counts, 1.0, SECRET, "pump")
    others = {
        noisy_counts(counts, 1.0, b"other", "pump"),
        noisy_counts(counts, 1.0, SECRET, "fan"),
        noisy_counts(counts, 0.5, SECRET, "pump"),
        noisy_counts([50, 0, 7, 4], 1.0, SECRET, "pump"),
    }
    assert one not in others
    assert len(others) == 4


def test_counts_stay_counts_of_a_device_that_has_samples() -> None:
    for k in range(200):
        noisy = noisy_counts([1, 0, 0], 0.1, SECRET, str(k))
        assert min(noisy) >= 0
        assert sum(noisy) >= 1


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_one_sample_changes_no_reports_probability_by_more_than_epsilon(epsilon: float) -> None:
    def reports(counts: list[int]) -> Counter[tuple[int, ...]]:
        secrets = (number.to_bytes(4, "big") for number in range(DRAWS))
        return Counter(noisy_counts(counts, epsilon, secret, "pump") for secret in secrets)

    # With few samples it happens often that all noisy counts are 0 or less.
    two, one = reports([1, 1]), reports([0, 1])
    common = [report for report, seen in (two + one).items() if seen > DRAWS / 20]
    assert {(1, 0), (0, 1)} <= set(common)
    ratios = [max(two[report] / one[report], one[report] / two[report]) for report in common]
    assert max(ratios) < math.exp(epsilon) * 1.15


def test_asking_for_more_classes_gives_no_second_noise() -> None:
    counts = [29, 30, 0, 1]
    one = noisy_counts(counts, 1.0, SECRET, "pump")
    for more in range(1, 20):
        assert noisy_counts([*counts, *[0] * more], 1.0, SECRET, "pump")[:4] == one
