"""Intervals against scipy, verdicts against their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from camu.experiments.claims import judge
from camu.experiments.statistics import estimate

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=12).filter(lambda v: np.std(v) > 1e-6)


@given(VALUES)
def test_interval_is_students(values: list[float]) -> None:
    found = estimate(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.low == pytest.approx(expected.low, rel=1e-6, abs=1e-9)
    assert found.high == pytest.approx(expected.high, rel=1e-6, abs=1e-9)
    wide = estimate(values, tests=3)
    third = stats.ttest_1samp(values, 0.0).confidence_interval(1 - 0.05 / 3)
    assert wide.high == pytest.approx(third.high, rel=1e-6, abs=1e-9)


def test_one_seed_has_no_interval() -> None:
    found = estimate([3.0])
    assert (found.low, found.high, found.n) == (None, None, 1)
    assert judge("X", "d", "s", [3.0], 1, None).verdict == "open"


@pytest.mark.parametrize(
    ("values", "sign", "word"),
    [
        ([1.0, 1.1, 0.9], 1, "reproduced"),
        ([1.0, 1.1, 0.9], -1, "contradicted"),
        ([-1.0, -1.1, -0.9], -1, "reproduced"),
        ([-1.0, -1.1, -0.9], 1, "contradicted"),
        ([1.0, -1.0, 0.5], 1, "open"),
    ],
)
def test_verdicts(values: list[float], sign: int, word: str) -> None:
    assert judge("X", "d", "s", values, sign, None).verdict == word


def test_choosing_the_best_of_several_needs_more_evidence() -> None:
    values = [1.0, 2.0, 3.1]
    assert judge("X", "d", "s", values, 1, None).verdict == "open"
    values = [1.0, 1.5, 1.9]
    assert judge("X", "d", "s", values, 1, None).verdict == "reproduced"
    assert judge("X", "d", "s", values, 1, None, tests=3).verdict == "open"
