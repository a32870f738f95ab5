"""Sums over updates: those of numpy, with compiled code and without it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from camu.arrays import sum_of_squares
from camu.learning import native
from camu.learning.weights import WeightedSum

needs_library = pytest.mark.skipif(native.library() is None, reason="no compiled code here")


@pytest.fixture(params=[pytest.param("compiled", marks=needs_library), "numpy"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", lambda: None)


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
    assert sum_of_squares(matrix[:, 2]) == 4 + 144 + 484 + 1024 + 1764


def test_arrays_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\) is added to \(5,\)"):
        WeightedSum(5).add(1.0, np.zeros(4, dtype=np.float32))


def test_squares_of_what_is_not_a_number() -> None:
    numbers = np.ones(500, dtype=np.float32)
    for wrong in (np.nan, np.inf, -np.inf):
        numbers[333] = wrong
        assert not math.isfinite(sum_of_squares(numbers))
    assert sum_of_squares(np.full(9, 3e38, dtype=np.float32)) == 9 * float(np.float32(3e38)) ** 2
