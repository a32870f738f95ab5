"""Formulas of link technologies: time on air, contention, bit errors and rate tables.

Sources: LoRa time on air from Semtech's drivers; IEEE 802.15.4 at 2.4 GHz and Wi-Fi timing and
error rates as in ns-3 3.37; contention of Wi-Fi from Bianchi, IEEE JSAC 18(3), 2000; the table of
LTE and NR from 3GPP TS 36.213 (7.2.3-1) and TS 38.214 (5.2.2.1-2). `docs/links.md` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64

# LoRaWAN: bytes around an application payload, and the coding rate 4/5.
LORAWAN_OVERHEAD_BYTES = 13
_LORA_CODING = 1
_LORA_PREAMBLE_SYMBOLS = 8 + 4.25
_LORA_LONG_SYMBOL_SECONDS = 16e-3  # from here on the low-data-rate mode is required

# IEEE 802.15.4, 2.4 GHz: a symbol takes 16 us, a byte two symbols.
LRWPAN_BYTE_SECONDS = 32e-6
LRWPAN_PHY_BYTES = 6
LRWPAN_MAC_BYTES = 11  # with short addresses
LRWPAN_FRAME_BYTES = 127
_LRWPAN_SLOT_SECONDS = 320e-6
_LRWPAN_CCA_SECONDS = 128e-6
LRWPAN_TURNAROUND_SECONDS = 192e-6
LRWPAN_ACK_SECONDS = 352e-6
LRWPAN_GAP_SECONDS = 640e-6  # LIFS
_LRWPAN_BACKOFF_SECONDS = tuple((2**be - 1) / 2 * _LRWPAN_SLOT_SECONDS for be in (3, 4, 5, 5, 5))
# Stations, seconds per delivered full frame, frames sent for each: ns-3 3.37, 60 s each, near their
# receiver, which hears the stronger of two frames (make validate-links).
_LRWPAN_CROWDS = (
    (1, 6.880e-3, 1.0),
    (2, 6.682e-3, 1.133),
    (3, 6.624e-3, 1.245),
    (5, 6.665e-3, 1.441),
    (10, 7.347e-3, 1.985),
    (15, 8.196e-3, 2.626),
    (20, 9.239e-3, 3.365),
    (30, 11.886e-3, 5.427),
    (50, 21.755e-3, 14.209),
)

# Wi-Fi at 5 GHz.
WIFI_SIFS_SECONDS = 16e-6
WIFI_DIFS_SECONDS = 34e-6
WIFI_SLOT_SECONDS = 9e-6
WIFI_ACK_SECONDS = 28e-6  # at 24 Mbit/s
_WIFI_WINDOW = 16
_WIFI_STAGES = 6

# CQI 1 to 15: bits per symbol times code rate, and the SNR at which 10 % of the blocks fail. NR:
# LDPC, blocks of 2000 bits, from CQI 4 on from the tables of Sionna 2.2 (on a grid of 1.8 dB, so
# each is known to about 0.9 dB; CQI 4 is likely too low, 0.4 dB above Shannon's limit), below it
# the turbo code's. LTE: turbo code, white noise, Vienna simulator, from memory.
_CODE_RATES = (78, 120, 193, 308, 449, 602, 378, 490, 616, 466, 567, 666, 772, 873, 948)
CQI_EFFICIENCY: Float64 = np.repeat((2, 4, 6), (6, 3, 6)) * np.array(_CODE_RATES) / 1024.0
LTE_SNR_DB = (
    *(-6.93, -5.15, -3.18, -1.25, 0.76, 2.70, 4.70),
    *(6.53, 8.58, 10.37, 12.30, 14.18, 15.89, 17.82, 19.83),
)
NR_SNR_DB = (
    *(-6.93, -5.15, -3.18, -2.45, 0.53, 2.43, 4.27),
    *(6.08, 7.93, 9.74, 11.57, 13.37, 15.09, 17.02, 18.97),
)

# Wi-Fi, 20 MHz, one stream, 0.8 us guard interval, by MCS: Mbit/s, and the SNR at which 10 % of
# frames of 1458 bytes fail (ns-3 3.37; MCS 10 and 11 by its fallback model, 3 to 4 dB too high).
WIFI_SNR_DB: Float64 = np.array(
    [0.93, 3.95, 6.44, 9.71, 12.81, 17.05, 18.38, 19.64, 23.71, 25.15, 32.41, 34.32]
)
_HT_BITS = (26, 52, 78, 104, 156, 208, 234, 260)  # data bits of a symbol of 4 us
_HE_BITS = (117, 234, 351, 468, 702, 936, 1053, 1170, 1404, 1560, 1755, 1950)  # of 13.6 us
_WIFI_SERVICE_BITS = 16 + 6


def lora_seconds(
    payload_bytes: npt.ArrayLike,
    spreading_factor: int,
    bandwidth_hz: float = 125e3,
    *,
    implicit_header: bool = False,
    crc: bool = True,
) -> Float64:
    """Time on air of a LoRa frame of so many bytes above the radio, at coding rate 4/5."""
    symbol = 2.0**spreading_factor / bandwidth_hz
    slow = 2 * (symbol >= _LORA_LONG_SYMBOL_SECONDS)
    bits = 8 * np.asarray(payload_bytes, dtype=np.float64) - 4 * spreading_factor + 28
    bits = bits + 16 * crc - 20 * implicit_header
    blocks = np.maximum(np.ceil(bits / (4 * (spreading_factor - slow))), 0)
    symbols = _LORA_PREAMBLE_SYMBOLS + 8 + blocks * (_LORA_CODING + 4)
    return np.asarray(symbols * symbol, dtype=np.float64)


def lrwpan_bit_error(snr: npt.ArrayLike) -> Float64:
    """Bit error rate of IEEE 802.15.4 at 2.4 GHz at a linear SNR."""
    terms = np.arange(2, 17)
    signs = np.array([(-1.0) ** k * comb(16, k) for k in terms])
    powers = np.exp(20.0 * np.asarray(snr, dtype=np.float64)[..., None] * (1.0 / terms - 1.0))
    errors = (8.0 / 15.0) / 16.0 * (powers * signs).sum(axis=-1)
    return np.asarray(np.clip(errors, 0.0, 0.5), dtype=np.float64)


def lrwpan_frame_error(snr: npt.ArrayLike, frame_bytes: npt.ArrayLike) -> Float64:
    """Probability that a frame of so many bytes has a wrong bit at a linear SNR."""
    bits = 8.0 * np.asarray(frame_bytes, dtype=np.float64)
    return np.asarray(-np.expm1(bits * np.log1p(-lrwpan_bit_error(snr))), dtype=np.float64)


def lrwpan_backoff_seconds(clear: float) -> float:
    """Mean time of backoff and listening before a frame, if the channel is clear so often."""
    return float(
        sum(
            (1.0 - clear) ** i * (backoff + _LRWPAN_CCA_SECONDS)
            for i, backoff in enumerate(_LRWPAN_BACKOFF_SECONDS)
        )
    )


class Contention(NamedTuple):
    """What saturated stations on one channel find."""

    seconds: float  # from one delivered full frame to the next, whoever sends it
    tries: float  # frames sent for each that is delivered


def lrwpan_contention(stations: int) -> Contention:
    """Unslotted CSMA-CA of IEEE 802.15.4 with so many stations that always have a full frame.

    Alone it is the sum of the parts; between and beyond the counts that were simulated with ns-3
    3.37, it is a straight line. Fixed points like Bianchi's are off by up to 90 %, because a
    station's next try depends on whose frame it has heard.
    """
    counts, seconds, tries = zip(*_LRWPAN_CROWDS, strict=True)
    last, before = _LRWPAN_CROWDS[-1], _LRWPAN_CROWDS[-2]
    beyond = max(0, stations - last[0]) / (last[0] - before[0])
    return Contention(
        float(np.interp(stations, counts, seconds)) + beyond * (last[1] - before[1]),
        float(np.interp(stations, counts, tries)) + beyond * (last[2] - before[2]),
    )


def wifi_rate_bps(ax: bool) -> Float64:
    """The rates of Wi-Fi 4 or 6 (`ax`), 20 MHz and one stream, by MCS."""
    return np.array(_HE_BITS) / 13.6e-6 if ax else np.array(_HT_BITS) / 4e-6


def wifi_frame_seconds(mpdu_bytes: npt.ArrayLike, mcs: npt.ArrayLike, ax: bool) -> Float64:
    """Time on air of a Wi-Fi frame with its preamble; a symbol is sent whole."""
    per_symbol = np.array(_HE_BITS if ax else _HT_BITS)[np.asarray(mcs, dtype=np.int64)]
    preamble, symbol = (44e-6, 13.6e-6) if ax else (36e-6, 4e-6)
    bits = _WIFI_SERVICE_BITS + 8 * np.asarray(mpdu_bytes, dtype=np.float64)
    return np.asarray(preamble + symbol * np.ceil(bits / per_symbol), dtype=np.float64)


class Bianchi(NamedTuple):
    """Saturated stations under CSMA-CA of Wi-Fi."""

    collision: float  # p: probability that a frame collides
    attempt: float  # tau: probability that a station sends in a slot


@lru_cache(maxsize=1024)
def bianchi(stations: int) -> Bianchi:
    """Bianchi's fixed point for so many stations, with a window of 16 that doubles six times."""

    def attempt(p: float) -> float:
        doubled = sum((2.0 * p) ** i for i in range(_WIFI_STAGES))
        return 2.0 / (1.0 + _WIFI_WINDOW + p * _WIFI_WINDOW * doubled)

    p = _root(lambda p: p - 1.0 + (1.0 - attempt(p)) ** (stations - 1))
    return Bianchi(p, attempt(p))


def wifi_success_seconds(frame_seconds: npt.ArrayLike, stations: int) -> Float64:
    """Mean time from one delivered frame of saturated stations to the next, whoever sends it."""
    tau = bianchi(stations).attempt
    some = 1.0 - (1.0 - tau) ** stations
    one = stations * tau * (1.0 - tau) ** (stations - 1)
    frame = np.asarray(frame_seconds, dtype=np.float64)
    delivered = frame + WIFI_SIFS_SECONDS + WIFI_ACK_SECONDS + WIFI_DIFS_SECONDS
    collided = frame + WIFI_DIFS_SECONDS
    slots = (1.0 - some) * WIFI_SLOT_SECONDS + one * delivered + (some - one) * collided
    return np.asarray(slots / one, dtype=np.float64)


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function of a probability is zero, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rising(middle) < 0.0 else (low, middle)
    return 0.5 * (low + high) if high > 1e-15 else 0.0
