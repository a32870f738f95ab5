"""Random factors of links: block fading per round, what is known of it, and one number per link."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.config import RadioConfig
from camu.seeding import Stream, derive

_State = npt.NDArray[np.complex128]
_Bits = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1


class BlockFading:
    """The fading of `devices` uplinks; a function of (seed, round) alone.

    The fresh part w[t] comes from the stream of round t. With correlation the state of round t is
    the recursion from round 0; the last state is kept, so that rounds asked in order cost one step
    each, and a round asked on its own, as after a resume, repeats the same steps to the same bits.
    """

    def __init__(self, radio: RadioConfig, devices: int, seed: int) -> None:
        self._radio = radio
        self._correlation = radio.fading_correlation
        self._shape = (devices, radio.antennas)
        self._seed = seed
        self._line = _line_share(radio)
        self._last: tuple[int, _State] | None = None

    def factors(self, round_: int) -> Float64:
        """The factor on each uplink's mean gain in this round (K,)."""
        if self._radio.fading == "none" and round_ >= 0:
            return np.ones(self._shape[0])
        return np.asarray(_power(self.amplitudes(round_)).mean(axis=1))

    def amplitudes(self, round_: int) -> _State:
        """The complex factor on each antenna (K, N_a), with the line of sight as the real axis."""
        if round_ < 0:
            raise ValueError(f"round = {round_}: rounds count from 0")
        if self._radio.fading == "none":
            return np.ones(self._shape, dtype=np.complex128)
        return _channel(self._state(round_), self._line)

    def expected_factors(self, round_: int, snr: Float64) -> Float64:
        """The mean of each factor given what is known of the fading in this round (K,)."""
        known, error = self.estimated(round_, snr)
        return np.asarray((_power(known) + error).mean(axis=1))

    def estimated(self, round_: int, snr: Float64) -> tuple[_State, Float64]:
        """What is known of each antenna's factor (K, N_a), and the variance of its error (K, 1).

        The scattered part of an antenna's channel, g of unit power, is seen as a number u of unit
        power whose correlation with g is q. Then g given u is normal with mean q u and variance
        1 - q^2. `radio.csi_correlation` r is that of the channel when it was estimated with the
        channel of now. Pilots at this mean SNR of an antenna (K,), x times the power of g in all,
        leave the MMSE estimate a share of x / (1 + x) of it: so q^2 = r^2 x / (1 + x).
        """
        if self._radio.knows_channels:
            return self.amplitudes(round_), np.zeros((self._shape[0], 1))
        scattered = 1.0 - self._line
        known = np.full(self._shape[0], self._radio.csi_correlation)
        if self._radio.pilot_symbols is not None:
            power = self._radio.pilot_symbols * scattered * snr
            known *= np.sqrt(power / (1.0 + power))
        known = known[:, None]
        unknown = np.sqrt(1.0 - known**2)
        error = self._normal(derive(self._seed, "csi", round_))
        seen = known * self._state(round_) + unknown * error
        return _channel(known * seen, self._line), scattered * unknown**2

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
        return self._normal(derive(self._seed, "fading", round_))

    def _normal(self, stream: Stream) -> _State:
        parts = stream.numpy().standard_normal((2, *self._shape))
        return _complex(parts[0], parts[1])


class PairFading:
    """The fading of links between devices; a function of (seed, round, the two ends) alone.

    With correlation, the links that were asked for so far move on together from round to round.
    Where one of them is new, all repeat the recursion from round 0, to the same bits.
    """

    def __init__(self, radio: RadioConfig, seed: int) -> None:
        self._correlation = radio.fading_correlation
        self._seed = seed
        self._line = _line_share(radio)
        self._round = 0
        self._links = np.empty(0, dtype=np.uint64)
        self._states = np.empty(0, dtype=np.complex128)

    def factors(self, round_: int, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Float64:
        """The factor on the mean gain of each of these links in this round."""
        return _power(_channel(self._state(round_, _link_bits(first, second)), self._line))

    def _state(self, round_: int, links: _Bits) -> _State:
        if self._correlation == 0.0:
            return self._fresh(round_, links)
        known = np.union1d(self._links, links)
        if round_ < self._round or len(known) > len(self._links):
            self._links, self._round, self._states = known, 0, self._fresh(0, known)
        innovation = math.sqrt(1.0 - self._correlation**2)
        for step in range(self._round + 1, round_ + 1):
            fresh = self._fresh(step, self._links)
            self._states = self._correlation * self._states + innovation * fresh
        self._round = round_
        return np.asarray(self._states[np.searchsorted(self._links, links)])

    def _fresh(self, round_: int, links: _Bits) -> _State:
        from scipy.special import ndtri  # deferred: only fading and shadowing need it

        parts = (derive(self._seed, "d2d-fading", round_, part) for part in (0, 1))
        return _complex(*(ndtri(_uniform(stream, links)) for stream in parts))


def _complex(real: Float64, imaginary: Float64) -> _State:
    """Complex numbers with E|w|^2 = 1 of standard normal parts."""
    return np.asarray((real + 1j * imaginary) * math.sqrt(0.5), dtype=np.complex128)


def _channel(state: _State, line: float) -> _State:
    """A channel with this share of its mean power on the line of sight."""
    return np.asarray(math.sqrt(line) + math.sqrt(1.0 - line) * state, dtype=np.complex128)


def _power(channel: _State) -> Float64:
    """|h|^2."""
    return np.asarray(channel.real**2 + channel.imag**2, dtype=np.float64)


def _line_share(radio: RadioConfig) -> float:
    """K / (K + 1), the share of the power on the line of sight."""
    if radio.fading != "rician":
        return 0.0
    from scipy.special import expit  # deferred: it takes 0.2 s, and only Rician fading needs it

    # expit is K / (K + 1) without overflow, whatever the decibels.
    return float(expit(radio.rician_k_db * math.log(10.0) / 10.0))


def link_uniform(
    seed: int, purpose: str, first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> Float64:
    """A number in (0, 1) for each pair of ends; the arrays of indices broadcast."""
    return _uniform(derive(seed, purpose), _link_bits(first, second))


def _link_bits(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> _Bits:
    """One number for each pair of ends, whichever is named first."""
    first, second = np.atleast_1d(first), np.atleast_1d(second)
    low = np.minimum(first, second).astype(np.uint64)
    high = np.maximum(first, second).astype(np.uint64)
    return np.asarray((low << np.uint64(32)) | high)


def _uniform(stream: Stream, links: _Bits) -> Float64:
    """A number in (0, 1) for each link."""
    # Two keyed rounds: 128 bits of the derived entropy, and no visible structure in the counter.
    bits = _mix(links + np.uint64(stream.entropy & _MASK))
    bits = _mix(bits ^ np.uint64((stream.entropy >> 64) & _MASK))
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
