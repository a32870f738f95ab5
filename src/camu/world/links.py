"""The radio links of a fleet: gains, SNR, fading, Shannon rates, and the cost of sending.

Gains of uplinks are kept; gains between devices are computed for the block that is asked for, so
that the K x K matrix never has to exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import (
    Float64,
    Int64,
    decibels,
    from_decibels,
    read_only_floats,
    read_only_ints,
)
from camu.config import RadioConfig
from camu.errors import CamuError
from camu.world.devices import Devices
from camu.world.fading import BlockFading, link_normal, link_uniform
from camu.world.path_loss import PathLoss, path_loss_model
from camu.world.uplinks import best_uplinks, limited

LARGEST_MATRIX_DEVICES = 20_000
_CACHED_LINKS = 1 << 16

_NOISE_DBM = {"matters": -90.0, "harsh": -80.0, "literal": -10.0}  # literal: 1e-4 W
_THERMAL_DBM_PER_HZ = -174.0


def noise_watts(radio: RadioConfig) -> float:
    """Noise power over the whole band (sigma_n0^2)."""
    if radio.noise_dbm is not None:
        dbm = radio.noise_dbm
    elif radio.noise == "thermal":
        band_db = float(decibels(radio.bandwidth_hz))
        dbm = _THERMAL_DBM_PER_HZ + band_db + radio.noise_figure_db
    else:
        dbm = _NOISE_DBM[radio.noise]
    return float(from_decibels(dbm - 30.0))


class Share(NamedTuple):
    """What one of several simultaneous uplinks has of the band."""

    bandwidth_hz: float
    noise_watts: float


@dataclass(frozen=True, eq=False)
class Links:
    """All links of K devices and the base station; block fading apart, they do not change."""

    radio: RadioConfig
    seed: int
    devices: Devices
    uplink_gain: Float64  # (K,) mean ||h_k||^2 after maximum-ratio combining
    measured_snr_db: Float64 | None = None  # (K, K) between devices
    stations: Float64 | None = None  # (S, 3) positions of the base stations, metres
    serving: Int64 | None = None  # (K,) the station with the best mean gain, by its row

    @property
    def count(self) -> int:
        """K, the number of devices."""
        return len(self.uplink_gain)

    def select(self, indices: npt.ArrayLike) -> Links:
        """The links of the devices with these indices, in this order."""
        rows = np.asarray(indices, dtype=np.int64)
        snr = self.measured_snr_db
        return replace(
            self,
            devices=self.devices.select(rows),
            uplink_gain=read_only_floats(self.uplink_gain[rows]),
            measured_snr_db=None if snr is None else read_only_floats(snr[np.ix_(rows, rows)]),
            serving=None if self.serving is None else read_only_ints(self.serving[rows]),
        )

    @property
    def positions(self) -> Float64:
        """(K, 3) metres, nan where unknown."""
        return self.devices.positions

    @property
    def power_watts(self) -> Float64:
        """(K,) of the devices where no optimiser sets it."""
        return self.devices.power_watts

    @property
    def bandwidth_hz(self) -> float:
        """The whole band."""
        return self.radio.bandwidth_hz

    @property
    def antennas(self) -> int:
        """N_a, the receive antennas of the base station."""
        return self.radio.antennas

    @cached_property
    def noise_watts(self) -> float:
        """Noise power sigma_n0^2 over the whole band."""
        return noise_watts(self.radio)

    @cached_property
    def _path_loss(self) -> PathLoss:
        return path_loss_model(self.radio)

    @cached_property
    def _fading(self) -> BlockFading:
        return BlockFading(self.radio, self.count, self.seed)

    @cached_property
    def blind(self) -> bool:
        """Whether some links between devices are not known: no SNR measured, and no position.

        Such a link counts as good as the weaker of the two devices' uplinks: the base station
        could pass on what they send.
        """
        return self.measured_snr_db is None and bool(np.isnan(self.positions[:, 0]).any())

    def device_gain(self, rows: npt.ArrayLike, cols: npt.ArrayLike) -> Float64:
        """Mean gain |h_jk|^2 between devices, a block (len(rows), len(cols)); symmetric.

        Entries of a device with itself mean nothing: they hold the value at the smallest distance.
        """
        return _by_rows(self._gains, rows, cols)

    def device_snr_db(self, rows: npt.ArrayLike, cols: npt.ArrayLike) -> Float64:
        """SNR gamma_jk between devices in dB, a block (len(rows), len(cols)); symmetric.

        Where two powers differ, a link counts with the mean in dB of its two directions, which is
        the SNR at the geometric mean of the powers: the paper's Gamma is a symmetric matrix.
        """
        return _by_rows(self._snrs_db, rows, cols)

    def pair_gain(self, first: Int64, second: Int64) -> Float64:
        """Mean gain of the link from each device of `first` to the same place of `second` (n,)."""
        return _in_parts(self._gains, first, second)

    def pair_snr_db(self, first: Int64, second: Int64) -> Float64:
        """SNR of the link from each device of `first` to the same place of `second` in dB (n,)."""
        return _in_parts(self._snrs_db, first, second)

    def _gains(self, first: Int64, second: Int64) -> Float64:
        """Mean gains between devices; the arrays of indices broadcast against each other."""
        if self.measured_snr_db is not None:
            powers = np.sqrt(self.power_watts[first] * self.power_watts[second])
            snr = from_decibels(self.measured_snr_db[first, second])
            return np.asarray(snr * self.noise_watts / powers, dtype=np.float64)
        if self.blind:
            return self._partly_known(first, second)
        return self._path_gains(self.positions[first], self.positions[second], first, second)

    def _partly_known(self, first: Int64, second: Int64) -> Float64:
        """Gains by path loss where both devices have a position, else by the weaker uplink."""
        weaker = np.minimum(self.uplink_gain[first], self.uplink_gain[second])
        here, there = self.positions[first], self.positions[second]
        unknown = np.isnan(here[..., 0] + there[..., 0])
        if unknown.all():
            return np.asarray(weaker, dtype=np.float64)
        gain = self._path_gains(np.nan_to_num(here), np.nan_to_num(there), first, second)
        return np.where(unknown, weaker, gain)

    def _path_gains(self, here: Float64, there: Float64, first: Int64, second: Int64) -> Float64:
        across = here[..., 0] - there[..., 0]
        along = here[..., 1] - there[..., 1]
        gain = self._path_loss.gain(
            np.sqrt(across**2 + along**2),
            np.maximum(here[..., 2], there[..., 2]),
            np.minimum(here[..., 2], there[..., 2]),
            lambda: link_uniform(self.seed, "sight", first, second),
        )
        antenna_db = 2.0 * self.radio.device_gain_dbi
        if self.radio.shadowing_db > 0.0:
            shadow = link_normal(self.seed, "shadowing", first, second)
            return limited(gain, antenna_db + self.radio.shadowing_db * shadow)
        return limited(gain, antenna_db)

    def _snrs_db(self, first: Int64, second: Int64) -> Float64:
        if self.measured_snr_db is not None:
            return np.asarray(self.measured_snr_db[first, second], dtype=np.float64)
        half = 0.5 * decibels(self.power_watts[first])
        powers_db = half + 0.5 * decibels(self.power_watts[second])
        return decibels(self._gains(first, second)) + (powers_db - decibels(self.noise_watts))

    def uplink_snr(self, power_watts: npt.ArrayLike | None = None) -> Float64:
        """SNR gamma_k at the base station (K,), linear, over the whole band and without fading."""
        power = self.power_watts if power_watts is None else np.asarray(power_watts)
        return np.asarray(power * self.uplink_gain / self.noise_watts, dtype=np.float64)

    def gamma(self) -> Float64:
        """The SNR matrix Gamma of section III-A, linear; the diagonal is to the base station."""
        if self.count > LARGEST_MATRIX_DEVICES:
            raise CamuError(
                f"the SNR matrix of {self.count} devices would need "
                f"{8e-9 * self.count**2:.0f} GB; above {LARGEST_MATRIX_DEVICES} devices ask for "
                "blocks with device_snr_db(rows, cols)"
            )
        everyone = np.arange(self.count)
        matrix = from_decibels(self.device_snr_db(everyone, everyone))
        np.fill_diagonal(matrix, self.uplink_snr())
        return matrix

    def fading(self, round_: int) -> Float64:
        """Factor on each uplink's mean gain in this round (K,); rounds count from 0."""
        return self._fading.factors(round_)

    def fading_rounds(self, first: int, last: int) -> Float64:
        """The factors of the rounds first ... last - 1, a row per round (R, K)."""
        rows = [self.fading(round_) for round_ in range(first, last)]
        return np.array(rows, dtype=np.float64).reshape(len(rows), self.count)

    def share(self, uplinks: int = 1) -> Share:
        """Bandwidth and noise of each of `uplinks` uplinks that use the band in the same round.

        TDMA: the whole band in turn. OFDMA: an equal share at once; the noise is white, so a share
        of the band holds that share of the noise.
        """
        parts = uplinks if self.radio.access == "ofdma" else 1
        return Share(self.bandwidth_hz / parts, self.noise_watts / parts)

    def rate_bps(
        self,
        power_watts: npt.ArrayLike,
        gain: npt.ArrayLike,
        bandwidth_hz: npt.ArrayLike | None = None,
    ) -> Float64:
        """Shannon rate; the bandwidth defaults to the whole band, the noise is that within it."""
        band, noise = self._band(bandwidth_hz)
        return rate_bps(power_watts, gain, band, noise)

    def transmit_seconds(
        self,
        bits: npt.ArrayLike,
        power_watts: npt.ArrayLike,
        gain: npt.ArrayLike,
        bandwidth_hz: npt.ArrayLike | None = None,
    ) -> Float64:
        """Time to send these bits at the Shannon rate."""
        band, noise = self._band(bandwidth_hz)
        return transmit_seconds(bits, power_watts, gain, band, noise)

    def transmit_joules(
        self,
        bits: npt.ArrayLike,
        power_watts: npt.ArrayLike,
        gain: npt.ArrayLike,
        bandwidth_hz: npt.ArrayLike | None = None,
    ) -> Float64:
        """Energy to send these bits at the Shannon rate."""
        band, noise = self._band(bandwidth_hz)
        return transmit_joules(bits, power_watts, gain, band, noise)

    def _band(self, bandwidth_hz: npt.ArrayLike | None) -> tuple[Float64, Float64]:
        whole = self.bandwidth_hz
        band = np.asarray(whole if bandwidth_hz is None else bandwidth_hz, dtype=np.float64)
        return band, np.asarray(self.noise_watts * (band / whole), dtype=np.float64)


def build_links(
    radio: RadioConfig,
    devices: Devices,
    base_station: Float64,
    seed: int,
    *,
    gains: Float64 | None = None,
    distances_m: Float64 | None = None,
    snr_db: Float64 | None = None,
) -> Links:
    """The links of these devices to one base station (3,), or to the best of several (S, 3).

    Measured `gains` (K,) replace the path loss of the uplinks where they are not nan;
    `distances_m` (K,) stand for positions where those are unknown; `snr_db` (K, K) replaces all
    path loss between devices.
    """
    stations = np.atleast_2d(base_station)
    uplink, serving = best_uplinks(radio, devices.positions, stations, seed, distances_m)
    if gains is not None:
        uplink = np.where(np.isnan(gains), uplink, gains)
    return Links(
        radio=radio,
        seed=seed,
        devices=devices,
        uplink_gain=read_only_floats(uplink),
        measured_snr_db=None if snr_db is None else read_only_floats(snr_db),
        stations=read_only_floats(stations),
        serving=read_only_ints(serving),
    )


def _by_rows(
    block: Callable[[Int64, Int64], Float64], rows: npt.ArrayLike, cols: npt.ArrayLike
) -> Float64:
    """A block of the K x K matrix, computed a few rows at a time.

    The intermediate arrays then stay in the processor's cache, and a large block needs little more
    memory than its result.
    """
    first = np.atleast_1d(np.asarray(rows, dtype=np.int64))
    second = np.atleast_1d(np.asarray(cols, dtype=np.int64))
    result = np.empty((len(first), len(second)))
    step = max(1, _CACHED_LINKS // max(1, len(second)))
    for start in range(0, len(first), step):
        result[start : start + step] = block(first[start : start + step, None], second)
    return result


def _in_parts(pairs: Callable[[Int64, Int64], Float64], first: Int64, second: Int64) -> Float64:
    """A number per pair of devices, computed a part at a time for the same reason."""
    result = np.empty(len(first))
    for start in range(0, len(first), _CACHED_LINKS):
        part = slice(start, start + _CACHED_LINKS)
        result[part] = pairs(first[part], second[part])
    return result


def rate_bps(
    power_watts: npt.ArrayLike,
    gain: npt.ArrayLike,
    bandwidth_hz: npt.ArrayLike,
    noise_watts: npt.ArrayLike,
) -> Float64:
    """B log2(1 + p gain / noise), the rate in the denominator of P1's transmission energy."""
    snr = np.multiply(power_watts, gain) / np.asarray(noise_watts, dtype=np.float64)
    return np.asarray(np.multiply(bandwidth_hz, np.log1p(snr)) / math.log(2.0), dtype=np.float64)


def transmit_seconds(
    bits: npt.ArrayLike,
    power_watts: npt.ArrayLike,
    gain: npt.ArrayLike,
    bandwidth_hz: npt.ArrayLike,
    noise_watts: npt.ArrayLike,
) -> Float64:
    """Time to send these bits at the Shannon rate; infinite at zero power."""
    rate = rate_bps(power_watts, gain, bandwidth_hz, noise_watts)
    with np.errstate(divide="ignore"):
        return np.asarray(np.asarray(bits, dtype=np.float64) / rate, dtype=np.float64)


def transmit_joules(
    bits: npt.ArrayLike,
    power_watts: npt.ArrayLike,
    gain: npt.ArrayLike,
    bandwidth_hz: npt.ArrayLike,
    noise_watts: npt.ArrayLike,
) -> Float64:
    """Energy p * bits / rate, P1's transmission energy; its limit at zero power is finite."""
    share = np.asarray(noise_watts, dtype=np.float64) / np.asarray(gain, dtype=np.float64)
    snr = np.asarray(power_watts, dtype=np.float64) / share
    # x / log(1 + x) tends to 1, so weak signals need no special formula, only no division by zero.
    growth = np.divide(snr, np.log1p(snr), out=np.ones_like(snr), where=snr > 0)
    per_bit = share * math.log(2.0) / np.asarray(bandwidth_hz, dtype=np.float64)
    return np.asarray(np.asarray(bits, dtype=np.float64) * per_bit * growth, dtype=np.float64)
