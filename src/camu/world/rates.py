"""How many bits per second and hertz a link carries at a signal-to-noise ratio."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, from_decibels
from camu.config import RadioConfig

# Bits per second and hertz of 3GPP TS 38.214, table 5.2.2.1-2 (CQI 1 to 15), and the SNR in dB from
# which on a block of 2000 bits fails in at most one of ten cases: from CQI 4 on NR's LDPC codes as
# tabulated in Sionna 2.2 (on a grid of 1.8 dB, so each is known to about 0.9 dB), below that LTE's
# turbo codes, which are within 0.5 dB of it where both are known.
CQI_BITS_PER_HZ = np.array(
    (
        *(0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141),
        *(2.4063, 2.7305, 3.3223, 3.9023, 4.5234, 5.1152, 5.5547),
    )
)
CQI_SNR_DB = np.array(
    (
        *(-6.93, -5.15, -3.18, -1.25, 0.53, 2.43, 4.27, 6.08),
        *(7.93, 9.74, 11.57, 13.37, 15.09, 17.02, 18.97),
    )
)


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
