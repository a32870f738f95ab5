"""Path loss: the linear gain of a link from its geometry, by four models or the user's own.

A model knows distances and heights only. Antenna gains, shadowing and the limits of a gain are
added by `camu.world.links`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, from_decibels
from camu.config import RadioConfig
from camu.errors import InputError
from camu.plugins import import_method, user_code

LIGHT_M_PER_S = 299_792_458.0
SMALLEST_DISTANCE_M = 1.0  # nearer ends count as this far apart: no model holds in the near field
DEVICE_HEIGHT_M = 1.5  # lowest height of an antenna in 3GPP TR 38.901
_FARTHEST_M = 1e9  # a reach beyond this bounds nothing
_GROUND_HEIGHT_M = 1.0  # effective environment height h_E; exact for devices below 13 m

# Draws one uniform number per link. A function, so that models without line of sight never pay.
Sight = Callable[[], Float64]


# The linear power gain of links, from the distance on the ground, the heights of the upper end (the
# base station, or the higher of two devices) and of the lower end, and the draws of line of sight.
PathLoss = Callable[[Float64, Float64, Float64, Sight], Float64]


def path_loss_model(radio: RadioConfig) -> PathLoss:
    """The model that the configuration names; its arrays broadcast against each other."""
    name = radio.path_loss
    if name in _BUILT_IN:
        return partial(_BUILT_IN[name], radio)
    return partial(_own, name, import_method(name, "radio.path_loss", "gain", radio))


def reach_m(radio: RadioConfig, gain: float, heights_m: Float64) -> float:
    """The distance on the ground beyond which no link between these heights has this gain.

    Gains of the built-in models fall with the distance. No link is better than one in sight at the
    same distance between two ends that are higher than the highest by as much as the lowest is
    lower: then the breakpoint distance of `umi` and `uma` is larger than any. (With a height h and
    the gap H to the lowest, 4 f/c (h + H - 1)^2 must exceed both 4 f/c (h - 1)^2 and H together, in
    squares, which it does from 62 MHz on.) It is infinite for a model of the user's own.
    """
    if radio.path_loss not in _BUILT_IN or radio.carrier_hz < 1e8:
        return math.inf
    model, heights = path_loss_model(radio), np.maximum(heights_m, DEVICE_HEIGHT_M)
    top = np.atleast_1d(2.0 * heights.max() - heights.min())

    def enough(ground_m: float) -> bool:
        return float(model(np.array([ground_m]), top, top, lambda: np.zeros(1))[0]) >= gain

    low, high = 0.0, SMALLEST_DISTANCE_M
    while enough(high):
        if high > _FARTHEST_M:
            return math.inf
        low, high = high, 2.0 * high
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return high


def _own(
    name: str,
    function: Callable[[Float64, Float64, Float64, Sight], npt.ArrayLike],
    ground_m: Float64,
    upper_m: Float64,
    lower_m: Float64,
    sight: Sight,
) -> Float64:
    """The user's function, or the method `gain` of the user's class; its gains are checked."""
    what = f"radio.path_loss = {name}"
    with user_code(what, function, "(ground_m, upper_m, lower_m, sight)"):
        gain = np.asarray(function(ground_m, upper_m, lower_m, sight), dtype=np.float64)
    known = np.isfinite(ground_m + upper_m + lower_m)  # a device may have no position
    if gain.shape != known.shape:
        raise InputError(
            f"{what}: the gains have shape {gain.shape}; return one per link, {known.shape}"
        )
    if not (np.isfinite(gain) & (gain >= 0.0))[known].all():
        raise InputError(f"{what}: a gain is nan, infinite or negative; return linear gains")
    return gain


def _paper(
    radio: RadioConfig, ground_m: Float64, upper_m: Float64, lower_m: Float64, sight: Sight
) -> Float64:
    """(c / (4 pi f d))^P, the distance term of the path-loss formula of section V-A."""
    ratio = _wave_ratio(radio.carrier_hz, _distance(ground_m, upper_m - lower_m))
    return np.asarray(ratio**radio.exponent, dtype=np.float64)


def _log_distance(
    radio: RadioConfig, ground_m: Float64, upper_m: Float64, lower_m: Float64, sight: Sight
) -> Float64:
    """Friis' free-space gain at the reference distance of 1 m times d^-P; d is at least 1 m."""
    distance = _distance(ground_m, upper_m - lower_m)
    free_space = _wave_ratio(radio.carrier_hz, np.array(1.0)) ** 2
    return np.asarray(free_space * distance**-radio.exponent, dtype=np.float64)


def _urban_micro(
    radio: RadioConfig, ground_m: Float64, upper_m: Float64, lower_m: Float64, sight: Sight
) -> Float64:
    """3GPP TR 38.901 UMi street canyon (tables 7.4.1-1 and 7.4.2-1)."""
    upper, lower = _antenna_heights(upper_m, lower_m)
    carrier = math.log10(radio.carrier_hz / 1e9)
    slopes_db = _two_slopes_db(radio.carrier_hz, ground_m, upper, lower, 21.0, 9.5)
    distance_db = 35.3 * np.log10(_distance(ground_m, upper - lower))
    around_db = 22.4 + distance_db + 21.3 * carrier - 0.3 * (lower - DEVICE_HEIGHT_M)
    probability = _los_probability(ground_m, 36.0)
    return _drawn_gain(32.4 + 20.0 * carrier + slopes_db, around_db, probability, sight)


def _urban_macro(
    radio: RadioConfig, ground_m: Float64, upper_m: Float64, lower_m: Float64, sight: Sight
) -> Float64:
    """3GPP TR 38.901 UMa (tables 7.4.1-1 and 7.4.2-1)."""
    upper, lower = _antenna_heights(upper_m, lower_m)
    carrier = 20.0 * math.log10(radio.carrier_hz / 1e9)
    slopes_db = _two_slopes_db(radio.carrier_hz, ground_m, upper, lower, 22.0, 9.0)
    distance_db = 39.08 * np.log10(_distance(ground_m, upper - lower))
    around_db = 13.54 + distance_db + carrier - 0.6 * (lower - DEVICE_HEIGHT_M)
    # Devices on upper floors see the mast more often.
    floors = ((np.clip(lower, 13.0, 23.0) - 13.0) / 10.0) ** 1.5
    lift = 1.0 + floors * 1.25 * (ground_m / 100.0) ** 3 * np.exp(-ground_m / 150.0)
    probability = _los_probability(ground_m, 63.0) * lift
    return _drawn_gain(28.0 + carrier + slopes_db, around_db, probability, sight)


_BUILT_IN = {
    "paper": _paper,
    "log-distance": _log_distance,
    "umi": _urban_micro,
    "uma": _urban_macro,
}


def _distance(ground_m: Float64, height_m: Float64) -> Float64:
    return np.maximum(np.sqrt(ground_m**2 + height_m**2), SMALLEST_DISTANCE_M)


def _wave_ratio(carrier_hz: float, distance_m: Float64) -> Float64:
    """c / (4 pi f d), at most 1 so that no path amplifies."""
    return np.minimum(1.0, LIGHT_M_PER_S / (4.0 * math.pi * carrier_hz * distance_m))


def _antenna_heights(upper_m: Float64, lower_m: Float64) -> tuple[Float64, Float64]:
    """Both heights, at least those of a hand-held device: the formulas end there."""
    return np.maximum(upper_m, DEVICE_HEIGHT_M), np.maximum(lower_m, DEVICE_HEIGHT_M)


def _two_slopes_db(
    carrier_hz: float,
    ground_m: Float64,
    upper_m: Float64,
    lower_m: Float64,
    slope: float,
    bend: float,
) -> Float64:
    """Distance part of the LOS path loss: `slope` up to the breakpoint distance, 40 beyond."""
    height = upper_m - lower_m
    log_distance = np.log10(_distance(ground_m, height))
    effective = (upper_m - _GROUND_HEIGHT_M) * (lower_m - _GROUND_HEIGHT_M)
    breakpoint_m = 4.0 * effective * carrier_hz / LIGHT_M_PER_S
    near = slope * log_distance
    far = 40.0 * log_distance - bend * np.log10(breakpoint_m**2 + height**2)
    return np.where(ground_m <= breakpoint_m, near, far)


def _los_probability(ground_m: Float64, decay_m: float) -> Float64:
    """18/d + e^(-d/decay) (1 - 18/d), and 1 up to 18 m."""
    share = 18.0 / np.maximum(ground_m, 18.0)
    return share + np.exp(-ground_m / decay_m) * (1.0 - share)


def _drawn_gain(los_db: Float64, around_db: Float64, probability: Float64, sight: Sight) -> Float64:
    """Gain of links in sight (draw below the probability) and of the others (never better)."""
    loss_db = np.where(sight() < probability, los_db, np.maximum(los_db, around_db))
    return from_decibels(-loss_db)
