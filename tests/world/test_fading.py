"""Block fading: laws, correlation over rounds, what is known of it, the same bits however asked."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from camu.config import RadioConfig
from camu.world.fading import BlockFading, PairFading


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


def known_and_true(radio: RadioConfig, snr: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """What is expected of the fading of 20 000 uplinks, and what it is."""
    fading = BlockFading(radio, 20_000, 0)
    return fading.expected_factors(2, np.full(20_000, snr)), fading.factors(2)


def test_without_error_and_delay_the_fading_is_known() -> None:
    for fading in ("none", "rayleigh", "rician"):
        known, true = known_and_true(RadioConfig(fading=fading))
        assert (known == true).all()


def test_many_pilots_come_close_to_it() -> None:
    known, true = known_and_true(RadioConfig(fading="rician", pilot_symbols=10**9), snr=1e6)
    assert known == pytest.approx(true, rel=1e-5)


@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
def test_of_a_channel_that_is_forgotten_the_mean_is_known(kind: str) -> None:
    known, true = known_and_true(RadioConfig(fading=kind, csi_correlation=0.0))
    assert known == pytest.approx(1, rel=1e-12)
    assert true.std() > 0.1


@pytest.mark.parametrize("antennas", [1, 3])
@pytest.mark.parametrize(
    ("line", "changes"),
    [
        (0.0, {"csi_correlation": 0.8}),
        (0.0, {"pilot_symbols": 5}),
        (0.5, {"pilot_symbols": 5, "csi_correlation": 0.6, "fading_correlation": 0.9}),
    ],
)
def test_the_fading_given_what_is_known_has_marcums_law(
    antennas: int, line: float, changes: dict[str, float]
) -> None:
    """|h|^2 given an estimate m with an error of variance v is v/2 times a noncentral chi^2."""
    kind = "rician" if line else "rayleigh"
    radio = RadioConfig.model_validate(
        {"fading": kind, "rician_k_db": 0.0, "antennas": antennas, **changes}
    )
    snr, scattered = 0.7, 1 - line
    prior = scattered * changes.get("csi_correlation", 1.0) ** 2  # power that can be learnt
    pilots = changes.get("pilot_symbols")
    learnt = prior if pilots is None else prior * (1 - 1 / (1 + pilots * scattered * snr))
    error = scattered - learnt
    known, true = known_and_true(radio, snr)
    centre = 2 * antennas * (known - error) / error
    law = stats.ncx2(2 * antennas, centre)
    assert stats.kstest(law.cdf(2 * antennas * true / error), "uniform").pvalue > 1e-3
    spread = np.sqrt((line + learnt + error) / len(known))
    assert (known - error).mean() == pytest.approx(line + learnt, abs=5 * spread)


ENDS = np.triu_indices(150, 1)


def pair_factors(rounds: int, seed: int = 0, **changes: object) -> np.ndarray:
    fading = PairFading(RadioConfig.model_validate({"fading": "rayleigh", **changes}), seed)
    return np.array([fading.factors(t, *ENDS) for t in range(rounds)])


def test_links_between_devices_have_one_antenna() -> None:
    found = pair_factors(2, antennas=15)
    for values in found:
        assert stats.kstest(values, "expon").pvalue > 1e-3
    assert abs(np.corrcoef(found)[0, 1]) < 0.04
    rician = pair_factors(1, fading="rician", rician_k_db=0.0)[0]
    assert rician.mean() == pytest.approx(1, abs=0.04)
    assert rician.var() == pytest.approx(3 / 4, rel=0.08)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_links_between_devices_are_correlated_over_rounds(rho: float) -> None:
    found = pair_factors(4, fading_correlation=rho)
    for values in found:
        assert stats.kstest(values, "expon").pvalue > 1e-3
    for lag in (1, 3):
        assert np.corrcoef(found[0], found[lag])[0, 1] == pytest.approx(rho ** (2 * lag), abs=0.05)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_a_link_fades_the_same_whichever_links_and_rounds_are_asked(rho: float) -> None:
    whole = pair_factors(9, fading_correlation=rho)
    fading = PairFading(RadioConfig(fading="rayleigh", fading_correlation=rho), 0)
    generator = np.random.default_rng(1)
    for round_ in (3, 4, 4, 8, 0, 5):
        some = generator.choice(len(ENDS[0]), 1 + 7 * round_, replace=False)
        here, there = ENDS[0][some], ENDS[1][some]
        assert (fading.factors(round_, there, here) == whole[round_, some]).all()
    assert (pair_factors(1, seed=1)[0] != whole[0]).all()
    none = np.empty(0, np.int64)
    assert fading.factors(2, none, none).shape == (0,)
