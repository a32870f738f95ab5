"""The best number of nats per symbol: what a price of bandwidth, or a limit of power, asks for.

A device that sends a bits in t seconds over b hertz carries x = a ln 2 / (t b) nats per symbol. It
needs the power n b (e^x - 1), where n is the noise of a hertz divided by the gain of its link, and
so the energy n t b (e^x - 1). That energy is convex in t b, and jointly convex in t and b.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from camu.arrays import Float64

# W near its branch point, in powers of sqrt(2 price): there lambertw itself loses digits.
_SERIES = (769 / 17280, -43 / 540, 11 / 72, -1 / 3, 1.0, 0.0)
_SMALL_PRICE = 3e-5
_NEAR_LIMIT = 1e-3


def priced_nats(price: Float64) -> Float64:
    """The x with 1 + (x - 1) e^x = price, for prices from 0: x = 1 + W((price - 1) / e)."""
    wide = 1.0 + _lambert((price - 1.0) / math.e, 0)
    small = price < _SMALL_PRICE
    if small.any():
        root = np.sqrt(2.0 * np.where(small, price, 0.0))
        wide = np.where(small, np.polyval(_SERIES, root), wide)
    return wide


def limited_nats(share: Float64) -> Float64:
    """The x with (e^x - 1) / x = 1 / share, for shares below 1; 0 for others.

    `share` is the least power at which so many bits arrive in the time, over any band, as a share
    of the power that the device has. Then x = -share - W_-1(-share e^-share).
    """
    usable = share < 1.0
    rho = np.where(usable, share, 0.5)
    above = 1.0 / rho - 1.0
    far = -rho - _lambert(-rho * np.exp(-rho), -1)
    x = np.where(above < _NEAR_LIMIT, 2.0 * above - 4.0 / 3.0 * above**2, far)
    # One Newton step on log((e^x - 1) / x): lambertw loses digits near its branch point.
    miss = x + np.log(-np.expm1(-x)) - np.log(x) + np.log(rho)
    x = x - miss / (-1.0 / np.expm1(-x) - 1.0 / x)
    return np.asarray(np.where(usable, x, 0.0), dtype=np.float64)


def _lambert(values: Any, branch: int) -> Float64:
    """Lambert's W on a branch where it is real."""
    from scipy.special import lambertw  # loading it takes long

    return np.asarray(lambertw(values, branch).real, dtype=np.float64)
