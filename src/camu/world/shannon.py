"""Shannon rates, and the time and energy to send bits at a given power; all arrays broadcast.

Every function takes the received SNR apart into power, gain and noise, and stays exact for the
tiniest SNR: log1p keeps what 1 + x would lose.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64


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
