"""Block fading: moments, correlation over rounds, and the same bits whatever was asked before."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from camu.config import RadioConfig
from camu.world.fading import BlockFading


def factors(radio: RadioConfig, devices: int, rounds: int, seed: int = 0) -> np.ndarray:
    fading = BlockFading(radio, devices, seed)
    return np.array([fading.factors(t) for t in range(rounds)])


def test_without_fading_the_factor_is_one() -> None:
    assert (factors(RadioConfig(), 5, 3) == 1).all()


@pytest.mark.parametrize("antennas", [1, 4, 15])
def test_rayleigh_is_a_gamma_law(antennas: int) -> None:
    values = factors(RadioConfig(fading="rayleigh", antennas=antennas), 20_000, 1)[0]
    law = stats.gamma(antennas, scale=1 / antennas)
    assert stats.kstest(values, law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("k_db", [-10.0, 0.0, 6.0, 20.0])
def test_rician_moments(k_db: float) -> None:
    radio = RadioConfig(fading="rician", rician_k_db=k_db, antennas=2)
    values = factors(radio, 100_000, 1)[0]
    k = 10 ** (k_db / 10)
    variance = (2 * k + 1) / (k + 1) ** 2 / 2  # of |h|^2, over two antennas
    assert values.mean() == pytest.approx(1, abs=5 * np.sqrt(variance / 1e5))
    assert values.var() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("k_db", [-100.0, 100.0])  # the limits of the key
def test_extreme_rician_factors_stay_finite(k_db: float) -> None:
    values = factors(RadioConfig(fading="rician", rician_k_db=k_db), 50, 2)
    assert np.isfinite(values).all()
    assert (values >= 0).all()


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_correlation_over_rounds(rho: float) -> None:
    radio = RadioConfig(fading="rayleigh", antennas=1, fading_correlation=rho)
    values = factors(radio, 20_000, 6)
    assert values.mean() == pytest.approx(1, abs=0.03)
    for lag in (1, 2, 5):
        measured = np.corrcoef(values[0], values[lag])[0, 1]
        # The power |g|^2 of a complex AR(1) process has the squared correlation.
        assert measured == pytest.approx(rho ** (2 * lag), abs=0.03)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_a_round_asked_on_its_own_has_the_same_bits(rho: float) -> None:
    radio = RadioConfig(fading="rayleigh", fading_correlation=rho)
    in_order = factors(radio, 7, 20)
    alone = BlockFading(radio, 7, 0)
    for round_ in (19, 3, 3, 11, 0):
        assert (alone.factors(round_) == in_order[round_]).all()


def test_seed_and_round_change_the_fading() -> None:
    radio = RadioConfig(fading="rayleigh")
    one, other = factors(radio, 5, 2), factors(radio, 5, 2, seed=1)
    assert (one[0] != one[1]).all()
    assert (one[0] != other[0]).all()


def test_rounds_count_from_zero() -> None:
    with pytest.raises(ValueError, match="count from 0"):
        BlockFading(RadioConfig(fading="rayleigh"), 2, 0).factors(-1)
