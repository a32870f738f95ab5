"""Array types of the world, and the one way to make an array that nobody can change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# numpy runs exp and log several times faster than log10 and power.
_PER_DECIBEL = math.log(10.0) / 10.0


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
    return np.asarray(np.log(linear) / _PER_DECIBEL, dtype=np.float64)


def from_decibels(decibel: npt.ArrayLike) -> FloatArray:
    """The ratio that a number of decibels stands for."""
    return np.asarray(np.exp(np.multiply(decibel, _PER_DECIBEL)), dtype=np.float64)
