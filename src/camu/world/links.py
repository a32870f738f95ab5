"""The radio links of a fleet: gains, SNR, fading, rates, and the cost of sending.

Gains of uplinks are kept; gains between devices are computed for the block that is asked for, so
that the K x K matrix never has to exist.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

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
from camu.world.antennas import Complex128, steering
from camu.world.devices import Devices
from camu.world.fading import BlockFading, PairFading, link_normal, link_uniform
from camu.world.fleet_links import FleetLinks, Mask, fleet_links
from camu.world.gains import (
    SMALLEST_GAIN,
    STATION_STRIDE,
    Share,
    in_parts,
    limited,
    noise_watts,
    uplink_gain_of,
)
from camu.world.link_types import SHANNON
from camu.world.path_loss import PathLoss, path_loss_model, reach_m
from camu.world.rates import bits_per_hz

LARGEST_MATRIX_DEVICES = 20_000
DOMINATING_UPLINK = 1000.0  # times the median upload: such an uplink is unusable


@dataclass(frozen=True, eq=False)
class Links:
    """All links of K devices and the base station; block fading apart, they do not change."""

    radio: RadioConfig
    seed: int
    devices: Devices
    uplink_gain: Float64  # (K,) mean ||h_k||^2 after maximum-ratio combining
    stations: Float64  # (S, 3) positions of the base stations, metres
    serving: Int64  # (K,) the station with the best mean gain, by its row
    measured_snr_db: Float64 | None = None  # (K, K) between devices

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
            serving=read_only_ints(self.serving[rows]),
        )

    def at(self, positions: Float64) -> Links:
        """The links of the same devices at other places (K, 3), nothing measured.

        Each device is served by the station that is best there. Shadowing and line of sight belong
        to the two ends of a link and move along; fading goes on.
        """
        devices = replace(self.devices, positions=positions)
        moved = build_links(self.radio, devices, self.stations, self.seed)
        # They know the rounds before, which take time.
        vars(moved).update(_fading=self._fading, _pair_fading=self._pair_fading)
        return moved

    @cached_property
    def cells(self) -> Int64:
        """The cell in which each device sends (K,): that of its station, or 0 if all are one."""
        return np.zeros_like(self.serving) if self.radio.cells == "one" else self.serving

    def gain_at(self, station: int, devices: Int64) -> Float64:
        """Mean gains of these devices at any of the stations, by the model, all antennas."""
        place, number = self.stations[station], int(station)
        gain = uplink_gain_of(self.radio, self.devices.positions, place, self.seed, None, number)
        return gain[devices]

    @cached_property
    def noise_watts(self) -> float:
        """Noise power sigma_n0^2 over the whole band."""
        return noise_watts(self.radio)

    @cached_property
    def types(self) -> FleetLinks | None:
        """The link types of the devices; None if all are `shannon`."""
        return fleet_links(self.devices, self.radio)

    @cached_property
    def own_noise_watts(self) -> Float64 | float:
        """Noise power within the band of each device's link type (K,), or of the one band."""
        if self.types is None:
            return self.noise_watts
        return self.noise_watts * (self.types.bandwidth_hz / self.radio.bandwidth_hz)

    @cached_property
    def _path_loss(self) -> PathLoss:
        return path_loss_model(self.radio)

    @cached_property
    def _fading(self) -> BlockFading:
        return BlockFading(self.radio, self.count, self.seed)

    @cached_property
    def _pair_fading(self) -> PairFading:
        return PairFading(self.radio, self.seed)

    @cached_property
    def blind(self) -> bool:
        """Whether some links between devices are not known: no SNR measured, and no position.

        Such a link counts as good as the weaker of the two devices' uplinks: the base station
        could pass on what they send.
        """
        return self.measured_snr_db is None and bool(np.isnan(self.devices.positions[:, 0]).any())

    @cached_property
    def uplinks_alone(self) -> bool:
        """Whether devices are compared by uplinks, since few links between them are known."""
        return self.blind and float(np.isnan(self.devices.positions[:, 0]).mean()) > 0.5

    def device_snr_db(self, rows: npt.ArrayLike, cols: npt.ArrayLike) -> Float64:
        """SNR gamma_jk between devices in dB, a block (len(rows), len(cols)); symmetric.

        Where two powers differ, a link counts with the mean in dB of its two directions, which is
        the SNR at the geometric mean of the powers: the paper's Gamma is a symmetric matrix.
        """
        first, second = np.atleast_1d(rows).astype(np.int64), np.atleast_1d(cols).astype(np.int64)
        return self.pair_snr_db(first[:, None], second)

    def pair_gain(self, first: Int64, second: Int64, round_: int | None = None) -> Float64:
        """Gain |h_jk|^2 of the links between devices, the mean or that of a round, as arrays.

        That of a device with itself means nothing: it is the value at the smallest distance.
        """
        mean = in_parts(self._gains, first, second)
        if round_ is None or not self.radio.d2d_fading:
            return mean
        return mean * self._pair_fading.factors(round_, first, second)

    def reach_m(self, gain: float) -> float:
        """The largest distance on the ground at which a link between devices can have this gain.

        It is infinite where no distance bounds it: under shadowing, with measured links, unknown
        places or a path loss of one's own.
        """
        unbounded = self.measured_snr_db is not None or self.blind or gain <= SMALLEST_GAIN
        if unbounded or self.radio.shadowing_db > 0.0:
            return math.inf
        antennas = float(from_decibels(2.0 * self.radio.device_gain_dbi))
        return reach_m(self.radio, gain / antennas, self.devices.positions[:, 2])

    def pair_snr_db(self, first: Int64, second: Int64) -> Float64:
        """SNR of the links between devices in dB; the arrays of indices broadcast."""
        return in_parts(self._snrs_db, first, second)

    def hear(self, first: Int64, second: Int64, least_db: float) -> Mask:
        """Whether devices hear each other, over links of at least this SNR; indices broadcast.

        Devices hear only those of their own link type, and each type but `shannon` has a lowest
        SNR of its own. That of a device with itself means nothing.
        """
        snr_db = self.pair_snr_db(first, second)
        if self.types is None:
            return np.asarray(snr_db >= least_db)
        return self.types.hear(first, second, snr_db, least_db)

    def _gains(self, first: Int64, second: Int64) -> Float64:
        if self.measured_snr_db is not None:
            powers = np.sqrt(self.devices.power_watts[first] * self.devices.power_watts[second])
            snr = from_decibels(self.measured_snr_db[first, second])
            noise: Float64 | float = self.noise_watts
            if self.types is not None:
                noise = from_decibels(self._pair_noise_db(first, second))
            return np.asarray(snr * noise / powers, dtype=np.float64)
        here, there = self.devices.positions[first], self.devices.positions[second]
        if not self.blind:
            return self._path_gains(here, there, first, second)
        weaker = np.minimum(self.uplink_gain[first], self.uplink_gain[second])
        gain = self._path_gains(np.nan_to_num(here), np.nan_to_num(there), first, second)
        return np.where(np.isnan(here[..., 0] + there[..., 0]), weaker, gain)

    def _path_gains(self, here: Float64, there: Float64, first: Int64, second: Int64) -> Float64:
        across = here[..., 0] - there[..., 0]
        along = here[..., 1] - there[..., 1]
        gain = self._path_loss(
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
        half = 0.5 * decibels(self.devices.power_watts[first])
        powers_db = half + 0.5 * decibels(self.devices.power_watts[second])
        noise_db = self._pair_noise_db(first, second)
        return decibels(self._gains(first, second)) + (powers_db - noise_db)

    def _pair_noise_db(self, first: Int64, second: Int64) -> Float64:
        """Noise of links between devices; of two link types, in the middle."""
        if self.types is None:
            return decibels(self.noise_watts)
        own_db = decibels(self.own_noise_watts)
        return np.asarray(0.5 * (own_db[first] + own_db[second]))

    def uplink_snr(self, power_watts: npt.ArrayLike | None = None) -> Float64:
        """SNR gamma_k at the base station (K,), linear, over the whole band and without fading.

        The band is that of the device's link type.
        """
        power = self.devices.power_watts if power_watts is None else np.asarray(power_watts)
        return np.asarray(power * self.uplink_gain / self.own_noise_watts, dtype=np.float64)

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

    def channels(self, round_: int) -> Complex128:
        """The complex channels h_k (K, N_a); their squares add up to `uplink_gain * fading`."""
        return np.asarray(self._directions * self._fading.amplitudes(round_))

    def known_channels(self, round_: int) -> Complex128:
        """The same as the base station estimates them; see `radio.pilot_symbols`."""
        if self.radio.knows_channels:
            return self.channels(round_)
        known, _ = self._fading.estimated(round_, self.uplink_snr() / self.radio.antennas)
        return np.asarray(self._directions * known)

    @cached_property
    def _directions(self) -> Complex128:
        """The channels without fading (K, N_a)."""
        offset = self.devices.positions - self.stations[self.serving]
        station = np.arange(self.count) + self.serving * STATION_STRIDE
        size = np.sqrt(self.uplink_gain / self.radio.antennas)[:, None]
        return size * steering(self.seed, offset, self.radio.antennas, station)

    def rated_fading(self, round_: int) -> Float64:
        """Factor on each uplink's mean gain for which its rate in this round is chosen (K,).

        With known channels it is the fading itself. Otherwise it is what the base station expects
        of it after pilots at each device's own power, less `radio.rate_margin_db`.
        """
        if self.radio.knows_channels:
            return self.fading(round_)
        expected = self._fading.expected_factors(round_, self.uplink_snr() / self.radio.antennas)
        return expected * from_decibels(-self.radio.rate_margin_db)

    def share(self, uplinks: Any = 1) -> Share:
        """Bandwidth and noise of each of `uplinks` uplinks that use the band in the same round.

        With an array of such numbers, arrays.

        TDMA: the whole band in turn. OFDMA: an equal share at once; the noise is white, so a share
        of the band holds that share of the noise.
        """
        parts = uplinks if self.radio.access == "ofdma" else 1
        return Share(self.radio.bandwidth_hz / parts, self.noise_watts / parts)

    def rate_bps(
        self,
        power_watts: npt.ArrayLike,
        gain: npt.ArrayLike,
        bandwidth_hz: npt.ArrayLike | None = None,
    ) -> Float64:
        """The rate at which bits are sent; the band is the whole one unless it is given.

        `shannon`: B log2(1 + SNR / gap), at most B radio.max_bits_per_hz. `table`: B times the
        efficiency of the best entry of the CQI table whose threshold the SNR reaches.
        """
        band, noise = self._band(bandwidth_hz)
        snr = np.multiply(power_watts, gain) / noise
        return np.asarray(band * bits_per_hz(snr, self.radio), dtype=np.float64)

    def transmit_seconds(
        self,
        bits: npt.ArrayLike,
        power_watts: npt.ArrayLike,
        gain: npt.ArrayLike,
        bandwidth_hz: npt.ArrayLike | None = None,
    ) -> Float64:
        """Time to send these bits; infinite at zero power."""
        with np.errstate(divide="ignore"):
            seconds = np.divide(bits, self.rate_bps(power_watts, gain, bandwidth_hz))
        return np.asarray(seconds, dtype=np.float64)

    def supply_watts(self, power_watts: npt.ArrayLike) -> Float64:
        """What a device draws while it sends at this power: its circuits, and its amplifier."""
        drawn = np.divide(power_watts, self.radio.amplifier_efficiency) + self.radio.circuit_watts
        return np.asarray(drawn, dtype=np.float64)

    def _band(self, bandwidth_hz: npt.ArrayLike | None) -> tuple[Float64, Float64]:
        """A band and the noise within it."""
        whole = self.radio.bandwidth_hz
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
    uplink = np.full(devices.count, np.nan)
    serving = np.zeros(devices.count, np.int64)
    for number, station in enumerate(stations):
        gain = uplink_gain_of(radio, devices.positions, station, seed, distances_m, number)
        better = ~(gain <= uplink)  # also where nothing is known yet
        uplink = np.where(better, gain, uplink)
        serving[better] = number
    if gains is not None:
        uplink = np.where(np.isnan(gains), uplink, gains)
    return Links(
        radio=radio,
        seed=seed,
        devices=devices,
        uplink_gain=read_only_floats(uplink),
        stations=read_only_floats(stations),
        serving=read_only_ints(serving),
        measured_snr_db=None if snr_db is None else read_only_floats(snr_db),
    )


def unusable_uplinks(links: Links) -> npt.NDArray[np.bool_]:
    """Devices whose upload takes more than 1000 times as long as the median one (K,).

    With another link type than `shannon` it is those that are below its lowest SNR.
    """
    rate = links.rate_bps(links.devices.power_watts, links.uplink_gain)
    if links.types is None:
        return np.asarray(DOMINATING_UPLINK * rate < np.median(rate), dtype=np.bool_)
    lost = decibels(links.uplink_snr()) < links.types.lowest_snr_db
    for _, own in (one for one in links.types.devices() if one[0] == SHANNON):
        lost[own] = DOMINATING_UPLINK * rate[own] < np.median(rate[own])
    return lost


def out_of_reach(links: Links, min_link_snr_db: float) -> npt.NDArray[np.bool_]:
    """Devices that no other device could lead, with an unusable uplink (K,).

    A device can be led by one whose own uplink will do, over a link of at least this SNR.
    """
    lost = unusable_uplinks(links)
    able = np.flatnonzero(~lost)
    for device in np.flatnonzero(lost).tolist():
        lost[device] = not links.hear(np.array([device]), able, min_link_snr_db).any()
    return lost
