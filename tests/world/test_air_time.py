"""Formulas of link technologies against published numbers, ns-3 and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.world import air_time

# Data rate 0 to 5 in Europe: spreading factor, largest application payload, milliseconds of a full
# frame, bit/s at a duty cycle of 1 %.
EU868 = (
    (12, 51, 2793.5, 1.5),
    (11, 51, 1560.6, 2.6),
    (10, 51, 698.4, 5.8),
    (9, 115, 676.9, 13.6),
    (8, 222, 655.9, 27.1),
    (7, 222, 368.9, 48.1),
)


@pytest.mark.parametrize(("factor", "payload", "milliseconds", "rate"), EU868)
def test_time_on_air_of_full_lora_frames(
    factor: int, payload: int, milliseconds: float, rate: float
) -> None:
    seconds = float(air_time.lora_seconds(payload + 13, factor))
    assert round(1e3 * seconds, 1) == milliseconds
    assert round(8 * payload / seconds * 0.01, 1) == rate


def test_time_on_air_of_other_lora_frames() -> None:
    # Data rate 6 is spreading factor 7 at 250 kHz; 13 bytes are a frame without payload.
    assert round(1e3 * float(air_time.lora_seconds(235, 7, 250e3)), 1) == 184.4
    assert round(1e3 * float(air_time.lora_seconds(13, 12)), 1) == 1155.1
    assert round(1e3 * float(air_time.lora_seconds(13, 7)), 1) == 46.3


@given(st.integers(7, 12), st.integers(0, 254), st.booleans(), st.booleans())
def test_lora_time_is_counted_in_blocks_of_five_symbols(
    factor: int, size: int, implicit: bool, crc: bool
) -> None:
    """An independent count: whole numbers, block by block."""
    symbol_us = 2**factor * 8  # at 125 kHz
    left, blocks = 8 * size - 4 * factor + 28 + 16 * crc - 20 * implicit, 0
    while left > 0:
        left -= 4 * (factor - 2 * (factor >= 11))
        blocks += 1
    quarters = 4 * (8 + 8 + 5 * blocks) + 17
    seconds = air_time.lora_seconds(size, factor, implicit_header=implicit, crc=crc)
    assert float(seconds) == pytest.approx(quarters * symbol_us / 4e6, rel=1e-12)


# ns-3 3.37, LrWpanErrorModel::GetChunkSuccessRate(snr, 8 * 127): make validate-links
LRWPAN_ERRORS = {-1.0: 0.689, 0.0: 0.151, 1.0: 0.0130, 2.0: 5.2e-4}


@pytest.mark.parametrize(("snr_db", "error"), LRWPAN_ERRORS.items())
def test_frame_errors_of_802_15_4(snr_db: float, error: float) -> None:
    found = float(air_time.lrwpan_frame_error(10 ** (snr_db / 10), 127))
    assert found == pytest.approx(error, rel=4e-3)


def test_bit_errors_of_802_15_4_are_those_of_16_orthogonal_signals() -> None:
    """With exact fractions of the alternating sum, where floats could lose digits."""
    from fractions import Fraction

    for snr in (0.1, 0.5, 1.0):
        total = Fraction(0)
        for k in range(2, 17):
            term = math.exp(20 * snr * (1 / k - 1))
            total += (-1) ** k * math.comb(16, k) * Fraction(term)
        expected = float(total * Fraction(8, 15) / 16)
        assert float(air_time.lrwpan_bit_error(snr)) == pytest.approx(expected, rel=1e-9)


def test_backoff_of_802_15_4() -> None:
    assert air_time.lrwpan_backoff_seconds(1.0) == pytest.approx(1.248e-3)
    # Never clear: all five backoffs, 1.12, 2.4 and three times 4.96 ms, and five times listening.
    assert air_time.lrwpan_backoff_seconds(0.0) == pytest.approx(18.4e-3 + 5 * 128e-6)


# Microseconds, rounded down; ns-3 3.37, WifiPhy::CalculateTxDuration.
HT_US = (1932, 984, 668, 512, 352, 276, 248, 228)
HE_US = (1485, 764, 533, 411, 288, 234, 207, 193, 166, 152, 152, 139)
HE_MBPS = (8.6, 17.2, 25.8, 34.4, 51.6, 68.8, 77.4, 86.0, 103.2, 114.7, 129.0, 143.4)


def test_time_on_air_of_wifi_frames() -> None:
    ht = air_time.wifi_frame_seconds(1536, range(8), ax=False) * 1e6
    he = air_time.wifi_frame_seconds(1536, range(12), ax=True) * 1e6
    assert np.round(ht, 6).tolist() == list(HT_US)
    assert np.floor(he + 1e-6).tolist() == list(HE_US)
    ht_mbps = (6.5, 13, 19.5, 26, 39, 52, 58.5, 65)
    assert np.round(air_time.wifi_rate_bps(ax=False) / 1e6, 9).tolist() == list(ht_mbps)
    assert np.round(air_time.wifi_rate_bps(ax=True) / 1e6, 1).tolist() == list(HE_MBPS)


# Stations: p, tau, Mbit/s of 12,000 bits per frame at 65 and at 6.5 Mbit/s.
BIANCHI = {
    2: (0.1046, 0.1046, 33.4, 5.55),
    5: (0.2715, 0.0761, 32.0, 5.03),
    10: (0.3844, 0.0525, 30.1, 4.62),
    20: (0.4809, 0.0339, 28.1, 4.23),
}


@pytest.mark.parametrize(("stations", "expected"), BIANCHI.items())
def test_bianchis_numbers(stations: int, expected: tuple[float, ...]) -> None:
    found = air_time.bianchi(stations)
    frames = air_time.wifi_frame_seconds(1536, [7, 0], ax=False)
    fast, slow = 12e-3 / air_time.wifi_success_seconds(frames, stations)
    assert round(found.collision, 4) == expected[0]
    assert round(found.attempt, 4) == expected[1]
    assert (round(fast, 1), round(slow, 2)) == expected[2:]


def test_one_wifi_station_waits_for_half_a_window() -> None:
    frames = air_time.wifi_frame_seconds(1536, [7, 0], ax=False)
    alone = frames + (16 + 28 + 34 + 7.5 * 9) * 1e-6
    assert air_time.wifi_success_seconds(frames, 1) == pytest.approx(alone, rel=1e-12)
    assert np.round(12e-3 / alone, 2).tolist() == [32.13, 5.78]


@pytest.mark.parametrize("stations", [2, 5, 20])
def test_bianchis_fixed_point_is_that_of_slots_played_out(stations: int) -> None:
    """Stations that count down and double their windows, drawn slot by slot."""
    draw = np.random.default_rng(stations)
    stage = np.zeros(stations, dtype=np.int64)
    counter = draw.integers(0, 16, stations)
    sent = collided = 0
    for _ in range(60_000):
        counter -= 1
        now = np.flatnonzero(counter < 0)
        if not now.size:
            continue
        sent += now.size
        collided += now.size if now.size > 1 else 0
        stage[now] = np.minimum(stage[now] + 1, 6) if now.size > 1 else 0
        counter[now] = draw.integers(0, 16 * 2 ** stage[now])
    assert collided / sent == pytest.approx(air_time.bianchi(stations).collision, rel=0.06)


SHANNON_DB = (
    *(-9.53, -7.53, -5.25, -2.86, -0.78, 1.00, 2.51, 4.42),
    *(6.34, 7.51, 9.54, 11.45, 13.42, 15.27, 16.63),
)


@pytest.mark.parametrize("snr_db", [air_time.LTE_SNR_DB, air_time.NR_SNR_DB])
def test_table_of_cqi_rises_and_stays_below_shannon(snr_db: tuple[float, ...]) -> None:
    limit_db = 10 * np.log10(2**air_time.CQI_EFFICIENCY - 1)
    assert limit_db == pytest.approx(np.array(SHANNON_DB), abs=6e-3)
    assert (np.diff(snr_db) > 0).all()
    assert (np.diff(air_time.CQI_EFFICIENCY) > 0).all()
    assert (np.array(snr_db) > limit_db).all()
    assert np.round(air_time.CQI_EFFICIENCY[[0, 8, 14]], 4).tolist() == [0.1523, 2.4062, 5.5547]


def test_wifi_rates_are_below_shannon() -> None:
    capacity = 20e6 * np.log2(1 + 10 ** (air_time.WIFI_SNR_DB / 10))
    assert (air_time.wifi_rate_bps(ax=True) < capacity).all()
    assert (air_time.wifi_rate_bps(ax=False) < capacity[:8]).all()
    assert (np.diff(air_time.WIFI_SNR_DB) > 0).all()
