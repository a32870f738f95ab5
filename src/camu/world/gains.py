"""Gains of links from geometry, to a base station and between devices, and noise in a band."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, decibels, from_decibels
from camu.config import RadioConfig
from camu.world.fading import link_normal, link_uniform
from camu.world.path_loss import path_loss_model

STATION_STRIDE = 1 << 24  # between the numbers of two base stations in draws
_CACHED_LINKS = 1 << 16
_THERMAL_DBM_PER_HZ = -174.0

# Limits of the gain of one antenna pair: nothing is amplified on its way, and decibels and
# transmission times stay finite however far a device is.
LARGEST_GAIN = 1.0
SMALLEST_GAIN = 1e-30


def noise_watts(radio: RadioConfig) -> float:
    """Noise power over the whole band (sigma_n0^2)."""
    if radio.noise_dbm is not None:
        dbm = radio.noise_dbm
    else:
        band_db = float(decibels(radio.bandwidth_hz))
        dbm = _THERMAL_DBM_PER_HZ + band_db + radio.noise_figure_db
    return float(from_decibels(dbm - 30.0))


class Share(NamedTuple):
    """What one of several simultaneous uplinks has of the band."""

    bandwidth_hz: float
    noise_watts: float


def uplink_gain_of(
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
    station = everyone + number * STATION_STRIDE
    gain = path_loss_model(radio)(
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


def in_parts(links: Callable[[Int64, Int64], Float64], first: Int64, second: Int64) -> Float64:
    """A number per pair of devices, computed for a part of the first axis at a time.

    The intermediate arrays then stay in the processor's cache, and many links need little more
    memory than their result.
    """
    shape = np.broadcast_shapes(first.shape, second.shape)
    result = np.empty(shape)
    step = max(1, _CACHED_LINKS // max(1, math.prod(shape[1:])))
    for start in range(0, shape[0], step):
        part = slice(start, start + step)
        # An array that lacks the first axis, or has one entry there, applies to every part.
        ends = (e[part] if e.ndim == len(shape) and len(e) > 1 else e for e in (first, second))
        result[part] = links(*ends)
    return result
