"""The sun of a clear day by place and season, as a share of what a panel gives at its peak."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from camu.arrays import Float64

DAY_SECONDS = 86_400.0
YEAR_SECONDS = 365 * DAY_SECONDS
_TILT = np.radians(23.44)  # of the axis of the earth
_SOLSTICE = 10.0  # days from the winter solstice of the north to the new year
_STEP_SECONDS = 300.0  # of the sums over a year; in between they are interpolated


def sine_of_height(latitude: float, seconds: Float64 | float) -> Float64:
    """The sine of the sun's height above the horizon, by seconds of local solar time of a year.

    The declination is that of a circular orbit, at most 1.5 degrees off.
    """
    days = np.asarray(seconds, dtype=np.float64) / DAY_SECONDS
    declination = -_TILT * np.cos(2 * np.pi * (days + _SOLSTICE) / 365)
    hour_angle = 2 * np.pi * (days - 0.5)
    north = np.radians(latitude)
    noon = np.cos(north) * np.cos(declination) * np.cos(hour_angle)
    return np.asarray(np.sin(north) * np.sin(declination) + noon)


def clear_sky(sine: Float64) -> Float64:
    """Power on level ground by that of 1000 W/m2, at which panels have their peak watts.

    This is the model of Haurwitz (1945): 1098 W/m2 sin(h) exp(-0.057 / sin(h)).
    """
    up = np.maximum(sine, 1e-6)
    return np.asarray(np.where(sine > 0, 1.098 * up * np.exp(-0.057 / up), 0.0))


class Sunshine:
    """What the sun gives from virtual second 0 on, which is this hour of this day of the year."""

    def __init__(self, latitude: float, day: float, hour: float) -> None:
        self._start = (day - 1) * DAY_SECONDS + hour * 3600
        self._times, self._sums = _year(latitude)

    def mean(self, begin: float, end: float) -> float:
        """The mean share of peak power between two virtual seconds."""
        return float((self._until(end) - self._until(begin)) / (end - begin))

    def means(self, edges: Float64) -> Float64:
        """The mean shares between any two of these virtual seconds."""
        return np.diff(self._until(edges)) / np.diff(edges)

    def _until(self, seconds: float | Float64) -> Float64:
        """Seconds of peak power from the start of the first year on."""
        years, rest = np.divmod(self._start + seconds, YEAR_SECONDS)
        return np.asarray(years * self._sums[-1] + np.interp(rest, self._times, self._sums))


@lru_cache(maxsize=8)
def _year(latitude: float) -> tuple[Float64, Float64]:
    """Times of a year, and seconds of peak power until then."""
    times = np.arange(0.0, YEAR_SECONDS + 1.0, _STEP_SECONDS)
    power = clear_sky(sine_of_height(latitude, times))
    steps = _STEP_SECONDS * (power[1:] + power[:-1]) / 2
    return times, np.concatenate(([0.0], np.cumsum(steps)))
