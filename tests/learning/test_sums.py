"""Sums over updates: those of numpy, with compiled code and without it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from camu.learning import native, sums
from camu.learning.sums import WeightedSum

needs_library = pytest.mark.skipif(native.library() is None, reason="no compiled code here")


@pytest.fixture(params=[pytest.param("compiled", marks=needs_library), "numpy"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", lambda: None)
    sums._squares_are_numpys.cache_clear()
    yield
    sums._squares_are_numpys.cache_clear()


def arrays(count: int, size: int) -> list[np.ndarray]:
    generator = np.random.default_rng(count)
    return [generator.standard_normal(size, dtype=np.float32) for _ in range(count)]


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
def test_arrays_are_added_in_order_and_in_double_precision(count: int) -> None:
    rows, factors = arrays(count, 333), [0.1 + 1.7 * k for k in range(count)]
    found, expected = WeightedSum(333), [0.0] * 333
    for factor, row in zip(factors, rows, strict=True):
        found.add(factor, row)
        expected = [one + factor * float(other) for one, other in zip(expected, row, strict=True)]
    assert found.total.tolist() == expected
    found.add(2.0, np.ones(333, dtype=np.float32))  # after it was asked for
    assert found.total.tolist() == [one + 2.0 for one in expected]


@pytest.mark.usefixtures("either")
def test_arrays_need_not_lie_together_in_memory() -> None:
    found, matrix = WeightedSum(5), np.arange(50, dtype=np.float32).reshape(5, 10)
    found.add(3.0, matrix[:, 2])
    assert found.total.tolist() == [6, 36, 66, 96, 126]
    assert sums.sum_of_squares(matrix[:, 2]) == 4 + 144 + 484 + 1024 + 1764


def test_arrays_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\) is added to \(5,\)"):
        WeightedSum(5).add(1.0, np.zeros(4, dtype=np.float32))


@needs_library
@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(0, 2**32))
@example(21_840, 1)
@example(1_000_003, 2)
def test_squares_are_added_in_the_order_of_numpy(size: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
    assert sums._compiled_squares(numbers) == np.square(numbers, dtype=np.float64).sum()


@pytest.mark.usefixtures("either")
def test_squares_of_what_is_not_a_number() -> None:
    numbers = np.ones(500, dtype=np.float32)
    for wrong in (np.nan, np.inf, -np.inf):
        numbers[333] = wrong
        assert not math.isfinite(sums.sum_of_squares(numbers))
    assert (
        sums.sum_of_squares(np.full(9, 3e38, dtype=np.float32)) == 9 * float(np.float32(3e38)) ** 2
    )


@needs_library
@pytest.mark.usefixtures("either")
def test_where_numpy_adds_in_another_order_numpy_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "numpy_squares", lambda numbers: -1.0)
    assert sums.sum_of_squares(np.ones(3, dtype=np.float32)) == -1.0
