"""Array types of the world, and the one way to make an array that nobody can change."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def read_only_floats(values: npt.ArrayLike) -> FloatArray:
    """A read-only float64 copy."""
    return _locked(np.array(values, dtype=np.float64))


def read_only_ints(values: npt.ArrayLike) -> IntArray:
    """A read-only int64 copy."""
    return _locked(np.array(values, dtype=np.int64))


def _locked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array


def decibels(linear: npt.ArrayLike) -> FloatArray:
    """10 log10 of a positive ratio."""
    return np.asarray(10.0 * np.log10(linear), dtype=np.float64)


def from_decibels(decibel: npt.ArrayLike) -> FloatArray:
    """The ratio that a number of decibels stands for."""
    return np.asarray(np.power(10.0, np.asarray(decibel) / 10.0), dtype=np.float64)
