"""The best number of nats per symbol: what a price of bandwidth, or a limit of power, asks for.

A device that sends a bits in t seconds over b hertz carries x = a ln 2 / (t b) nats per symbol. It
needs the power n b (e^x - 1), where n is the noise of a hertz divided by the gain of its link, and
so the energy n t b (e^x - 1). That energy is convex in t b, and jointly convex in t and b.
"""

from __future__ import annotations

import numpy as np

from camu.arrays import Float64

# x in powers of sqrt(2 price): below a small price the steps lose digits.
_SERIES = (769 / 17280, -43 / 540, 11 / 72, -1 / 3, 1.0, 0.0)
_SMALL_PRICE = 3e-5
_LARGEST_PRICE = 1e300  # e^x must stay finite
_STEPS = 4  # from the first guesses; one less would do


def priced_nats(price: Float64) -> Float64:
    """The x with 1 + (x - 1) e^x = price, for prices from 0: x = 1 + W((price - 1) / e).

    Halley's steps on arrays: scipy's lambertw is complex, and takes ten times as long.
    """
    price = np.minimum(price, _LARGEST_PRICE)
    root = np.sqrt(2.0 * price)
    log = np.log1p(np.maximum(price - 1.0, 0.0) / np.e)
    high = 1.0 + log * (1.0 - np.log1p(log) / (2.0 + log))
    small = price < _SMALL_PRICE
    x = np.where(price < 10.0, np.where(small, 1.0, root / (1.0 + root / 3.0)), high)
    for _ in range(_STEPS):
        step = (x - 1.0 + (1.0 - price) * np.exp(-x)) / x
        x = x - step / (1.0 - 0.5 * step * (1.0 + 1.0 / x))
    if small.any():
        x = np.where(small, np.polyval(_SERIES, np.where(small, root, 0.0)), x)
    return x


def limited_nats(share: Float64) -> Float64:
    """The x with (e^x - 1) / x = 1 / share, for shares below 1; 0 for others.

    `share` is the least power at which so many bits arrive in the time, over any band, as a share
    of the power that the device has. Newton's steps on the logarithm, which is convex in x.
    """
    usable = share < 1.0
    log = -np.log(np.where(usable, share, 0.5))
    x = log + np.log1p(log)
    for _ in range(_STEPS):
        part = -np.expm1(-x)
        x = x - (x + np.log(part / x) - log) / (1.0 / part - 1.0 / x)
    return np.asarray(np.where(usable, x, 0.0), dtype=np.float64)
