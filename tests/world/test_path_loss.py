"""Path-loss models against values computed by hand from the printed formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.config import RadioConfig
from camu.world.path_loss import path_loss_model, reach_m

IN_SIGHT = 0.0
HIDDEN = 1.0 - 1e-12


def loss_db(radio: RadioConfig, ground: float, upper: float, lower: float, draw: float) -> float:
    gain = path_loss_model(radio)(
        np.array([ground]), np.array([upper]), np.array([lower]), lambda: np.array([draw])
    )
    return -10 * math.log10(gain[0])


def test_the_papers_formula_at_the_origin() -> None:
    # d = sqrt(50^2 + 10^2) m; c / (4 pi f d) = 5.11332e-4; 37.6 log10(5.11332e-4) = -123.753 dB
    assert loss_db(RadioConfig(), 50, 10, 0, HIDDEN) == pytest.approx(123.753, abs=1e-3)


def test_log_distance_is_free_space_at_one_metre_then_steeper() -> None:
    radio = RadioConfig(path_loss="log-distance", exponent=3.0, carrier_hz=1e9)
    # Friis at 1 GHz and 1 m: 20 log10(4 pi 1e9 / c) = 32.448 dB
    assert loss_db(radio, 0.5, 0, 0, HIDDEN) == pytest.approx(32.448, abs=0.001)
    assert loss_db(radio, 1, 0, 0, HIDDEN) == pytest.approx(32.448, abs=0.001)
    assert loss_db(radio, 1000, 0, 0, HIDDEN) == pytest.approx(32.448 + 90, abs=0.001)


def umi_by_hand(ground: float, upper: float, lower: float, ghz: float) -> tuple[float, float]:
    """LOS and NLOS loss from table 7.4.1-1, written with math alone."""
    d = math.sqrt(ground**2 + (upper - lower) ** 2)
    bp = 4 * (upper - 1) * (lower - 1) * ghz * 1e9 / 299792458
    if ground <= bp:
        los = 32.4 + 21 * math.log10(d) + 20 * math.log10(ghz)
    else:
        bend = 9.5 * math.log10(bp**2 + (upper - lower) ** 2)
        los = 32.4 + 40 * math.log10(d) + 20 * math.log10(ghz) - bend
    nlos = 35.3 * math.log10(d) + 22.4 + 21.3 * math.log10(ghz) - 0.3 * (lower - 1.5)
    return los, max(los, nlos)


def uma_by_hand(ground: float, upper: float, lower: float, ghz: float) -> tuple[float, float]:
    d = math.sqrt(ground**2 + (upper - lower) ** 2)
    bp = 4 * (upper - 1) * (lower - 1) * ghz * 1e9 / 299792458
    if ground <= bp:
        los = 28 + 22 * math.log10(d) + 20 * math.log10(ghz)
    else:
        bend = 9 * math.log10(bp**2 + (upper - lower) ** 2)
        los = 28 + 40 * math.log10(d) + 20 * math.log10(ghz) - bend
    nlos = 13.54 + 39.08 * math.log10(d) + 20 * math.log10(ghz) - 0.6 * (lower - 1.5)
    return los, max(los, nlos)


@pytest.mark.parametrize(
    ("name", "by_hand", "upper"), [("umi", umi_by_hand, 10.0), ("uma", uma_by_hand, 25.0)]
)
@pytest.mark.parametrize("ground", [20.0, 50.0, 56.0, 120.0, 1000.0])
@pytest.mark.parametrize("lower", [1.5, 12.0])
def test_3gpp_formulas(
    name: str,
    by_hand: Callable[..., tuple[float, float]],
    upper: float,
    ground: float,
    lower: float,
) -> None:
    radio = RadioConfig(path_loss=name, carrier_hz=0.915e9)  # type: ignore[arg-type]
    top, bottom = max(upper, lower), min(upper, lower)
    los, nlos = by_hand(ground, top, bottom, 0.915)
    assert loss_db(radio, ground, top, bottom, IN_SIGHT) == pytest.approx(los, abs=1e-9)
    assert loss_db(radio, ground, top, bottom, HIDDEN) == pytest.approx(nlos, abs=1e-9)


def test_3gpp_figures_of_a_textbook_link() -> None:
    # UMi, 2 GHz, 100 m, heights 10 and 1.5 m: d3D = 100.3606 m, breakpoint 120.08 m.
    radio = RadioConfig(path_loss="umi", carrier_hz=2e9)
    # 32.4 + 21 * 2.0015633 + 6.0206 = 80.4534; 22.4 + 35.3 * 2.0015633 + 6.4119 = 99.4671
    assert loss_db(radio, 100, 10, 1.5, IN_SIGHT) == pytest.approx(80.4534, abs=1e-3)
    assert loss_db(radio, 100, 10, 1.5, HIDDEN) == pytest.approx(99.4671, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "lower", "probability"),
    [
        # 18/100 + e^(-100/36) 0.82 = 0.23099; 18/100 + e^(-100/63) 0.82 = 0.34766
        ("umi", 1.5, 0.23099),
        ("uma", 1.5, 0.34766),
        # C' = 1 at 23 m: 0.34766 (1 + 1.25 e^(-100/150)) = 0.57078
        ("uma", 23.0, 0.57078),
    ],
)
def test_3gpp_probability_of_sight(name: str, lower: float, probability: float) -> None:
    radio = RadioConfig(path_loss=name, carrier_hz=2e9)  # type: ignore[arg-type]
    links = 200_000
    draws = (np.arange(links) + 0.5) / links
    gain = path_loss_model(radio)(
        np.full(links, 100.0), np.array(25.0), np.array(lower), lambda: draws
    )
    in_sight = float(np.mean(gain == gain.max()))
    assert in_sight == pytest.approx(probability, abs=2e-5)


@pytest.mark.parametrize("name", ["umi", "uma"])
def test_3gpp_always_sees_up_to_18_m(name: str) -> None:
    radio = RadioConfig(path_loss=name, carrier_hz=2e9)  # type: ignore[arg-type]
    near = loss_db(radio, 17.9, 10, 1.5, HIDDEN)
    assert near == pytest.approx(loss_db(radio, 17.9, 10, 1.5, IN_SIGHT))


def test_3gpp_lifts_low_devices_to_hand_height() -> None:
    radio = RadioConfig(path_loss="umi")
    assert loss_db(radio, 60, 10, 0, IN_SIGHT) == loss_db(radio, 60, 10, 1.5, IN_SIGHT)
    assert math.isfinite(loss_db(radio, 60, -3, -7, HIDDEN))


@given(
    name=st.sampled_from(["paper", "log-distance", "umi", "uma"]),
    carrier=st.floats(1e3, 1e12),
    exponent=st.floats(0.1, 10),
    ground=st.floats(0, 1e7),
    heights=st.tuples(st.floats(-100, 500), st.floats(-100, 500)),
    draw=st.floats(1e-9, 1 - 1e-9),
)
def test_a_path_never_gives_nonsense(
    name: str,
    carrier: float,
    exponent: float,
    ground: float,
    heights: tuple[float, float],
    draw: float,
) -> None:
    radio = RadioConfig(path_loss=name, carrier_hz=carrier, exponent=exponent)  # type: ignore[arg-type]
    gain = path_loss_model(radio)(
        np.array([ground]),
        np.array([max(heights)]),
        np.array([min(heights)]),
        lambda: np.array([draw]),
    )
    assert np.isfinite(gain).all()
    assert (gain >= 0).all()
    if name in ("paper", "log-distance"):
        assert (gain <= 1).all()


@pytest.mark.parametrize("name", ["paper", "log-distance", "umi", "uma"])
@pytest.mark.parametrize("gain_db", [-60.0, -90.0, -125.0])
def test_no_link_beyond_the_reach_has_the_gain(name: str, gain_db: float) -> None:
    radio, generator = RadioConfig(path_loss=name, exponent=3.0), np.random.default_rng(3)
    heights = generator.uniform(0.0, 40.0, (2, 20_000))
    reach = reach_m(radio, 10 ** (gain_db / 10), heights)
    assert 1.0 <= reach < math.inf
    ground = reach * generator.uniform(1.0, 1.2, 20_000)
    sight = generator.uniform(0.0, 1.0, 20_000)
    gains = path_loss_model(radio)(ground, heights.max(0), heights.min(0), lambda: sight)
    assert 10 * np.log10(gains.max()) < gain_db


@pytest.mark.parametrize("name", ["paper", "log-distance", "umi", "uma"])
def test_the_reach_is_that_of_two_ends_of_equal_height(name: str) -> None:
    radio = RadioConfig(path_loss=name, carrier_hz=2e9)
    reach = reach_m(radio, 1e-11, np.array([1.5, 1.5]))
    assert loss_db(radio, reach, 1.5, 1.5, IN_SIGHT) == pytest.approx(110.0, abs=1e-3)
    assert reach_m(RadioConfig(path_loss="own:model"), 1e-11, np.array([1.5])) == math.inf
