"""One random number per link, as a function of (seed, purpose, the two ends).

Shadowing and line of sight belong to a pair of devices. A counter-based hash gives the number of
any pair without drawing the others, so that a block of the K x K matrix costs only that block and
50 000 devices need no 20 GB matrix. The order of the two ends does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from camu.arrays import Float64
from camu.seeding import derive

_Bits = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1


def link_uniform(
    seed: int, purpose: str, first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> Float64:
    """A number in (0, 1) for each pair of ends; the arrays of indices broadcast."""
    first, second = np.atleast_1d(first), np.atleast_1d(second)
    low = np.minimum(first, second).astype(np.uint64)
    high = np.maximum(first, second).astype(np.uint64)
    entropy = derive(seed, purpose).entropy
    bits = (low << np.uint64(32)) | high
    # Two keyed rounds: 128 bits of the derived entropy, and no visible structure in the counter.
    bits = _mix(bits + np.uint64(entropy & _MASK))
    bits = _mix(bits ^ np.uint64((entropy >> 64) & _MASK))
    # 52 bits and a half: exact in float64, so that neither 0 nor 1 can occur.
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def link_normal(
    seed: int, purpose: str, first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> Float64:
    """A standard normal number for each pair of ends."""
    return np.asarray(ndtri(link_uniform(seed, purpose, first, second)), dtype=np.float64)


def _mix(bits: _Bits) -> _Bits:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), in place."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
