"""How many bits per second and hertz a link carries at a signal-to-noise ratio."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, from_decibels
from camu.config import RadioConfig
from camu.world import air_time

# Bits per second and hertz of 3GPP TS 38.214, table 5.2.2.1-2 (CQI 1 to 15), and the SNR in dB from
# which on a block fails in at most one of ten cases: those of the link type `nr`.
CQI_BITS_PER_HZ = air_time.CQI_EFFICIENCY
CQI_SNR_DB = np.array(air_time.NR_SNR_DB)


def bits_per_hz(snr: npt.ArrayLike, radio: RadioConfig) -> Float64:
    """The rate per hertz at a linear SNR, as `radio.rate` says."""
    if radio.rate == "table":
        return _table(np.asarray(snr, dtype=np.float64))
    gap = float(from_decibels(radio.snr_gap_db))
    rate = np.log1p(np.divide(snr, gap)) / math.log(2.0)
    return np.asarray(np.minimum(rate, radio.max_bits_per_hz), dtype=np.float64)


def _table(snr: Float64) -> Float64:
    """The best entry that the SNR allows; below the first one, its blocks are repeated."""
    thresholds = from_decibels(CQI_SNR_DB)
    entry = np.searchsorted(thresholds, snr, side="right") - 1
    repeated = CQI_BITS_PER_HZ[0] * snr / thresholds[0]
    return np.where(entry < 0, repeated, CQI_BITS_PER_HZ[np.maximum(entry, 0)])


def useful_snr(radio: RadioConfig) -> tuple[float, float]:
    """The gap as a factor, and the largest SNR behind it that still raises the rate; or infinity.

    For the table they are those of its last entry.
    """
    if radio.rate == "table":
        most = 2.0 ** float(CQI_BITS_PER_HZ[-1]) - 1.0
        return float(from_decibels(CQI_SNR_DB[-1])) / most, most * (1 + 1e-9)  # not just below it
    return float(from_decibels(radio.snr_gap_db)), 2.0**radio.max_bits_per_hz - 1.0


def analog_seconds(parameters: int, bandwidth_hz: Float64 | float) -> Float64:
    """How long so many numbers take on an analogue uplink: a complex symbol carries two."""
    return np.asarray(math.ceil(parameters / 2) / bandwidth_hz)
