"""Array types, read-only arrays, decibels, a sum of squares and a queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]
Labels = npt.NDArray[np.integer[Any]]


def read_only_floats(values: npt.ArrayLike) -> Float64:
    """A read-only float64 copy."""
    return _locked(np.array(values, dtype=np.float64))


def read_only_ints(values: npt.ArrayLike) -> Int64:
    """A read-only int64 copy."""
    return _locked(np.array(values, dtype=np.int64))


def _locked(array: AnyArray) -> AnyArray:
    array.setflags(write=False)
    return array


def decibels(linear: npt.ArrayLike) -> Float64:
    """10 log10 of a positive ratio."""
    return np.asarray(10.0 * np.log10(linear), dtype=np.float64)


def from_decibels(decibel: npt.ArrayLike) -> Float64:
    """The linear ratio of a number of decibels."""
    return np.asarray(np.power(10.0, np.asarray(decibel) / 10.0), dtype=np.float64)


def sum_of_squares(numbers: Float32) -> float:
    """The sum of squares, computed in double precision."""
    return float(np.square(numbers, dtype=np.float64).sum())


def send_in_turn(ready_seconds: Float64, air_seconds: Float64) -> Float64:
    """When each transmission ends if they share one channel and queue in the order of readiness.

    Those ready at the same time go in the order of their index.
    """
    order = np.argsort(ready_seconds, kind="stable")
    ends, free = [], 0.0
    for ready, air in zip(ready_seconds[order].tolist(), air_seconds[order].tolist(), strict=True):
        free = max(free, ready) + air
        ends.append(free)
    result = np.empty(len(ends))
    result[order] = ends
    return result
