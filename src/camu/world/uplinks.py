"""Mean gains from devices to their best base station, within the limits of a gain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, from_decibels
from camu.config import RadioConfig
from camu.world.fading import link_normal, link_uniform
from camu.world.path_loss import path_loss_model

# Limits of the gain of one antenna pair: nothing is amplified on its way, and decibels and
# transmission times stay finite however far a device is.
LARGEST_GAIN = 1.0
SMALLEST_GAIN = 1e-30

MOST_STATIONS = 200
_STATION_STRIDE = 1 << 24  # between the numbers of two base stations in draws


def best_uplinks(
    radio: RadioConfig,
    positions: Float64,
    stations: Float64,
    seed: int,
    distances_m: Float64 | None,
) -> tuple[Float64, Int64]:
    """The mean gain of each device to its best base station (K,), and the row of that station."""
    best, serving = np.full(len(positions), np.nan), np.zeros(len(positions), np.int64)
    for number, station in enumerate(stations):
        gain = _uplink_gain(radio, positions, station, seed, distances_m, number)
        better = ~(gain <= best)  # also where nothing is known yet
        best = np.where(better, gain, best)
        serving[better] = number
    return best, serving


def _uplink_gain(
    radio: RadioConfig,
    positions: Float64,
    base_station: Float64,
    seed: int,
    distances_m: Float64 | None,
    number: int,
) -> Float64:
    """N_a times the mean gain of one antenna (K,); nan where the place is not known.

    `number` is that of the base station: each has its own sight and shadowing.
    """
    offset = positions - base_station
    ground = np.hypot(offset[:, 0], offset[:, 1])
    mast = np.full(len(positions), base_station[2])
    height = positions[:, 2]
    if distances_m is not None:  # the device is on the ground, if the distance allows it
        known = ~np.isnan(distances_m)
        drop = np.minimum(np.abs(mast), distances_m)
        ground = np.where(known, np.sqrt(distances_m**2 - drop**2), ground)
        height = np.where(known, mast - np.sign(mast) * drop, height)
    everyone = np.arange(len(positions))
    station = everyone + number * _STATION_STRIDE
    gain = path_loss_model(radio).gain(
        ground,
        np.maximum(mast, height),
        np.minimum(mast, height),
        lambda: link_uniform(seed, "sight-uplink", everyone, station),
    )
    shadow_db = np.zeros(len(positions))
    if radio.shadowing_db > 0.0:
        normal = link_normal(seed, "shadowing-uplink", everyone, station)
        shadow_db = radio.shadowing_db * normal
    return radio.antennas * limited(gain, radio.bs_gain_dbi + radio.device_gain_dbi + shadow_db)


def limited(gain: Float64, extra_db: npt.ArrayLike) -> Float64:
    """The gain times a factor in decibels, within the limits of a gain."""
    return np.clip(gain * from_decibels(extra_db), SMALLEST_GAIN, LARGEST_GAIN)
