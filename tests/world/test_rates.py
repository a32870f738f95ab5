"""Rates at an SNR: Shannon with a gap and a limit, and the CQI table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from camu.config import RadioConfig
from camu.world.link_types import LINK_TYPES, Cellular
from camu.world.rates import CQI_BITS_PER_HZ, CQI_SNR_DB, bits_per_hz, useful_snr

SNR_DB = np.linspace(-40.0, 60.0, 201)
SNR = 10 ** (SNR_DB / 10)


def test_without_gap_and_limit_the_rate_is_shannon_s() -> None:
    found = bits_per_hz(SNR, RadioConfig(snr_gap_db=0.0, max_bits_per_hz=math.inf))
    assert found == pytest.approx([math.log2(1 + snr) for snr in SNR], rel=1e-12)


def test_a_gap_moves_the_curve_and_a_limit_cuts_it() -> None:
    radio = RadioConfig(snr_gap_db=3.0, max_bits_per_hz=7.4)
    shifted = [math.log2(1 + 10 ** ((db - 3.0) / 10)) for db in SNR_DB]
    assert bits_per_hz(SNR, radio) == pytest.approx([min(rate, 7.4) for rate in shifted])


def test_the_table_is_a_staircase_below_shannon() -> None:
    radio = RadioConfig(rate="table")
    rates = bits_per_hz(SNR, radio)
    assert (np.diff(rates) >= 0).all()
    assert (rates < np.log2(1 + SNR)).all()
    at = 10 ** (CQI_SNR_DB / 10)
    assert bits_per_hz(at * (1 + 1e-9), radio) == pytest.approx(CQI_BITS_PER_HZ)
    assert bits_per_hz(at[1:] * (1 - 1e-9), radio) == pytest.approx(CQI_BITS_PER_HZ[:-1])
    assert bits_per_hz(1e6, radio) == 6 * 948 / 1024  # CQI 15 is the last


def test_the_table_is_that_of_the_link_type_nr() -> None:
    nr = LINK_TYPES["nr"]
    assert isinstance(nr, Cellular)
    carried = nr.rate_bps(CQI_SNR_DB) / nr.rate_bps(CQI_SNR_DB[-1])
    own = bits_per_hz(10 ** (CQI_SNR_DB / 10) * (1 + 1e-9), RadioConfig(rate="table"))
    assert own / own[-1] == pytest.approx(carried, rel=1e-12)
    assert CQI_SNR_DB[3] == -2.45


def test_below_the_table_blocks_are_repeated() -> None:
    radio = RadioConfig(rate="table")
    first = 10 ** (CQI_SNR_DB[0] / 10)
    assert bits_per_hz(first / 4, radio) == pytest.approx(CQI_BITS_PER_HZ[0] / 4)
    assert bits_per_hz(first * (1 - 1e-12), radio) == pytest.approx(CQI_BITS_PER_HZ[0])


@pytest.mark.parametrize(
    "radio",
    [RadioConfig(rate="table"), RadioConfig(), RadioConfig(snr_gap_db=4.0, max_bits_per_hz=2.0)],
)
def test_more_than_the_useful_snr_raises_no_rate(radio: RadioConfig) -> None:
    gap, most = useful_snr(radio)
    highest = float(bits_per_hz(1e12, radio))
    assert float(bits_per_hz(gap * most, radio)) == pytest.approx(highest, rel=1e-12)
    assert float(bits_per_hz(gap * most * 0.99, radio)) < highest
    assert np.log2(1 + most) == pytest.approx(highest, rel=1e-8)
