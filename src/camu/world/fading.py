"""Random factors of links: block fading of the uplinks per round, and one number per link."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.config import RadioConfig
from camu.seeding import derive

_State = npt.NDArray[np.complex128]


class BlockFading:
    """The fading of `devices` uplinks; a function of (seed, round) alone.

    The fresh part w[t] comes from the stream of round t. With correlation the state of round t is
    the recursion from round 0; the last state is kept, so that rounds asked in order cost one step
    each, and a round asked on its own, as after a resume, repeats the same steps to the same bits.
    """

    def __init__(self, radio: RadioConfig, devices: int, seed: int) -> None:
        self._kind = radio.fading
        self._correlation = radio.fading_correlation
        self._shape = (devices, radio.antennas)
        self._seed = seed
        self._line = _line_share(radio.rician_k_db) if radio.fading == "rician" else 0.0
        self._last: tuple[int, _State] | None = None

    def factors(self, round_: int) -> Float64:
        """The factor on each uplink's mean gain in this round (K,)."""
        if self._kind == "none":
            _check_round(round_)
            return np.ones(self._shape[0])
        channel = self.amplitudes(round_)
        power = channel.real**2 + channel.imag**2
        return np.asarray(power.mean(axis=1), dtype=np.float64)

    def amplitudes(self, round_: int) -> _State:
        """The complex factor on each antenna (K, N_a), with the line of sight as the real axis."""
        _check_round(round_)
        if self._kind == "none":
            return np.ones(self._shape, dtype=np.complex128)
        state = self._state(round_)
        return math.sqrt(self._line) + math.sqrt(1.0 - self._line) * state

    def _state(self, round_: int) -> _State:
        if self._correlation == 0.0:
            return self._fresh(round_)
        last = self._last
        if last is None or last[0] > round_:
            last = (0, self._fresh(0))
        start, state = last
        innovation = math.sqrt(1.0 - self._correlation**2)
        for step in range(start + 1, round_ + 1):
            state = self._correlation * state + innovation * self._fresh(step)
        self._last = (round_, state)
        return state

    def _fresh(self, round_: int) -> _State:
        """Complex standard normal numbers, E|w|^2 = 1, from this round's own stream."""
        parts = derive(self._seed, "fading", round_).numpy().standard_normal((2, *self._shape))
        return np.asarray((parts[0] + 1j * parts[1]) * math.sqrt(0.5), dtype=np.complex128)


def _check_round(round_: int) -> None:
    if round_ < 0:
        raise ValueError(f"round = {round_}: rounds count from 0")


def _line_share(rician_k_db: float) -> float:
    """K / (K + 1), the share of the power on the line of sight."""
    from scipy.special import expit  # deferred: it takes 0.2 s, and only Rician fading needs it

    # expit is K / (K + 1) without overflow, whatever the decibels.
    return float(expit(rician_k_db * math.log(10.0) / 10.0))


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
    from scipy.special import ndtri  # deferred: only shadowing needs it

    return np.asarray(ndtri(link_uniform(seed, purpose, first, second)), dtype=np.float64)


def _mix(bits: _Bits) -> _Bits:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), in place."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
