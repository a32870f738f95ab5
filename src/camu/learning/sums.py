"""Sums over updates: in compiled code where there is any, with numpy's bits in any case."""

from __future__ import annotations

from array import array
from functools import cache

import numpy as np

from camu.arrays import Float32, Float64
from camu.learning import native


class WeightedSum:
    """A sum of arrays, each times a factor, in double precision and in the order of `add`.

    The last arrays are held until there are `HELD` of them: a pass over the sum takes as long as
    one over an array. So they must not change.
    """

    HELD = 8

    def __init__(self, size: int) -> None:
        self._total = np.zeros(size)
        self._factors: list[float] = []
        self._rows: list[Float32] = []

    def add(self, factor: float, row: Float32) -> None:
        """Add one more array."""
        if row.shape != self._total.shape:
            raise ValueError(f"an array of shape {row.shape} is added to {self._total.shape}")
        self._factors.append(factor)
        self._rows.append(np.ascontiguousarray(row, dtype=np.float32))
        if len(self._rows) == self.HELD:
            self._flush()

    @property
    def total(self) -> Float64:
        """The sum so far."""
        self._flush()
        return self._total

    def _flush(self) -> None:
        loaded = native.library()
        if loaded is None:
            for factor, row in zip(self._factors, self._rows, strict=True):
                self._total += np.multiply(row, factor, dtype=np.float64)
        elif self._rows:
            factors = array("d", self._factors)
            rows = array("Q", [row.ctypes.data for row in self._rows])
            loaded.camu_add_rows(
                *(self._total.ctypes.data, factors.buffer_info()[0], rows.buffer_info()[0]),
                *(len(rows), len(self._total)),
            )
        self._factors.clear()
        self._rows.clear()


def sum_of_squares(numbers: Float32) -> float:
    """In double precision."""
    found = np.ascontiguousarray(numbers, dtype=np.float32)
    return _compiled_squares(found) if _squares_are_numpys() else numpy_squares(found)


@cache
def _squares_are_numpys() -> bool:
    # A version of numpy may add in another order than the one that the code was written after.
    if native.library() is None:
        return False
    generator = np.random.Generator(np.random.PCG64(7))
    some = [generator.standard_normal(size, dtype=np.float32) for size in (5, 100, 999, 21_840)]
    return all(_compiled_squares(own) == numpy_squares(own) for own in some)


def numpy_squares(numbers: Float32) -> float:
    """Their sum as numpy adds them."""
    return float(np.square(numbers, dtype=np.float64).sum())


def _compiled_squares(numbers: Float32) -> float:
    loaded = native.library()
    assert loaded is not None
    return float(loaded.camu_sum_of_squares(numbers.ctypes.data, numbers.size))
