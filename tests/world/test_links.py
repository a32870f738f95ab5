"""Links: the paper's SNR, symmetry, blocks, noise, Shannon costs, TDMA and OFDMA."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.config import RadioConfig, load_config
from camu.errors import CamuError
from camu.world import Links, build_links, noise_watts
from helpers.small_fleets import device_gain, plain_devices

BASE_STATION = np.array([-50.0, 0.0, 10.0])


def make_links(radio: RadioConfig, positions: Any, power: Any = 0.5, **more: Any) -> Links:
    return build_links(radio, plain_devices(positions, power), BASE_STATION, 0, **more)


def random_places(count: int) -> np.ndarray:
    generator = np.random.Generator(np.random.PCG64(5))
    return generator.uniform([-300, -300, 0], [300, 300, 20], size=(count, 3))


def test_printed_parameters_give_the_snr_of_the_print() -> None:
    corners = [[x, y, 0] for x in (-10, 0, 10, 20) for y in (-5, 0, 5)]
    links = make_links(RadioConfig(noise_dbm=-10.0), corners)
    assert links.noise_watts == pytest.approx(1e-4)
    snr_db = 10 * np.log10(links.uplink_snr())
    assert snr_db.max() < -66
    assert round(snr_db.min()) == -75  # -75.4 dB in the farthest corners
    # At the origin by hand: 10 log10(15) + 5 dBi - 123.753 dB + 10 log10(0.5 / 1e-4) = -70.002
    assert snr_db[4] == pytest.approx(-70.002, abs=1e-3)


def test_noise_powers() -> None:
    assert 10 * math.log10(1e3 * noise_watts(RadioConfig())) == pytest.approx(-107.0)
    assert noise_watts(RadioConfig(noise_dbm=-100.0)) == pytest.approx(1e-13)
    assert noise_watts(load_config(preset="literal").radio) == pytest.approx(1e-4)
    wide = RadioConfig(bandwidth_hz=2e7, noise_figure_db=0.0)
    boltzmann = 1.380649e-23 * 290 * 2e7
    assert noise_watts(wide) == pytest.approx(boltzmann, rel=0.01)


def test_device_links_use_the_device_antenna_at_both_ends() -> None:
    links = make_links(RadioConfig(device_gain_dbi=3.0), [[0, 0, 0], [30, 40, 0]])
    ratio = 299792458 / (4 * math.pi * 915e6 * 50)
    assert device_gain(links, [0], [1])[0, 0] == pytest.approx(10**0.6 * ratio**3.76)
    snr_db = links.device_snr_db([0], [1])[0, 0]
    expected = 10 * math.log10(0.5 * 10**0.6 * ratio**3.76 / links.noise_watts)
    assert snr_db == pytest.approx(expected)


@pytest.mark.parametrize("model", ["paper", "log-distance", "umi", "uma"])
@pytest.mark.parametrize("shadowing_db", [0.0, 7.82])
def test_device_links_are_symmetric_and_the_same_in_any_block(
    model: Any, shadowing_db: float
) -> None:
    power = np.linspace(0.1, 1.0, 60)
    radio = RadioConfig(path_loss=model, shadowing_db=shadowing_db)
    links = make_links(radio, random_places(60), power)
    everyone = np.arange(60)
    for block in (partial(device_gain, links), links.device_snr_db):
        whole = block(everyone, everyone)
        assert (whole == whole.T).all()
        assert np.isfinite(whole).all()
        rows, cols = [5, 59, 0], [0, 17]
        assert block(rows, cols) == pytest.approx(whole[np.ix_(rows, cols)], rel=1e-12)


def test_links_in_parts_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    links = make_links(RadioConfig(path_loss="umi", shadowing_db=3.0), random_places(7), 0.5)
    everyone, one = np.arange(7), np.array([3])
    pairs = ((everyone, one), (one, everyone), (everyone[:, None], everyone), (one[:, None], one))
    whole = [links.pair_gain(*pair) for pair in pairs]
    monkeypatch.setattr("camu.world.links._CACHED_LINKS", 2)
    for pair, gain in zip(pairs, whole, strict=True):
        assert links.pair_gain(*pair) == pytest.approx(gain, rel=1e-12)


def test_unequal_powers_count_with_the_mean_of_both_directions() -> None:
    links = make_links(RadioConfig(), [[0, 0, 0], [9, 0, 0]], np.array([0.1, 1.0]))
    gain = device_gain(links, [0], [1])[0, 0]
    directions = 10 * np.log10(links.devices.power_watts * gain / links.noise_watts)
    assert links.device_snr_db([0], [1])[0, 0] == pytest.approx(directions.mean())


def test_shadowing_has_its_deviation_and_leaves_the_mean() -> None:
    places = random_places(500)
    plain = make_links(RadioConfig(), places)
    shadowed = make_links(RadioConfig(shadowing_db=6.0), places)
    everyone = np.arange(500)
    change = shadowed.device_snr_db(everyone, everyone) - plain.device_snr_db(everyone, everyone)
    links = change[np.triu_indices(500, 1)]
    assert links.std() == pytest.approx(6.0, rel=0.02)
    assert links.mean() == pytest.approx(0.0, abs=0.1)
    uplink = 10 * np.log10(shadowed.uplink_gain / plain.uplink_gain)
    assert uplink.std() == pytest.approx(6.0, rel=0.15)
    other = build_links(RadioConfig(shadowing_db=6.0), plain_devices(places), BASE_STATION, 1)
    assert (other.uplink_gain != shadowed.uplink_gain).all()


def test_gamma_is_the_papers_matrix() -> None:
    links = make_links(RadioConfig(), random_places(12))
    gamma = links.gamma()
    assert (gamma == gamma.T).all()
    assert np.diag(gamma) == pytest.approx(links.uplink_snr())
    gain = device_gain(links, [2], [7])[0, 0]
    assert gamma[2, 7] == pytest.approx(0.5 * gain / links.noise_watts)


def test_gamma_refuses_what_memory_cannot_hold() -> None:
    links = make_links(RadioConfig(), random_places(20_001))
    with pytest.raises(CamuError, match="blocks"):
        links.gamma()


def test_measured_values_replace_the_model() -> None:
    nowhere = np.full((3, 3), np.nan)
    measured = np.array([[9.0, 12.0, -3.0], [12.0, 9.0, 5.0], [-3.0, 5.0, 9.0]])
    links = make_links(
        RadioConfig(),
        nowhere,
        gains=np.array([1e-9, 1e-10, np.nan]),
        distances_m=np.array([np.nan, np.nan, 75.0]),
        snr_db=measured,
    )
    ratio = 299792458 / (4 * math.pi * 915e6 * 75)
    assert links.uplink_gain == pytest.approx([1e-9, 1e-10, 15 * 10**0.5 * ratio**3.76])
    assert (links.device_snr_db([0, 2], [1]) == [[12.0], [5.0]]).all()
    back = 10 * np.log10(0.5 * device_gain(links, [0], [1]) / links.noise_watts)
    assert back[0, 0] == pytest.approx(12.0)


def test_a_distance_below_the_mast_height_is_kept() -> None:
    far = make_links(RadioConfig(), np.full((1, 3), np.nan), distances_m=np.array([4.0]))
    below = make_links(RadioConfig(), [[-50, 0, 6]])
    assert far.uplink_gain == pytest.approx(below.uplink_gain)


def test_rates_and_costs() -> None:
    ideal = RadioConfig(snr_gap_db=0.0, amplifier_efficiency=1.0, circuit_watts=0.0)
    links = make_links(ideal, [[0, 0, 0]])
    gain = links.noise_watts * 7 / 0.5  # SNR 7: three bits per second and hertz
    assert links.rate_bps(0.5, gain) == pytest.approx(3e6)
    assert links.transmit_seconds(6e6, 0.5, gain) == pytest.approx(2.0)
    assert links.transmit_seconds(1.0, 0.0, gain) == math.inf
    assert links.supply_watts(0.5) == 0.5
    real = make_links(RadioConfig(amplifier_efficiency=0.25, circuit_watts=0.1), [[0, 0, 0]])
    assert real.supply_watts([0.5, 0.0]) == pytest.approx([2.1, 0.1])


def test_tdma_takes_turns_and_ofdma_shares() -> None:
    tdma = make_links(RadioConfig(), [[0, 0, 0]])
    assert tdma.share(4) == (1e6, tdma.noise_watts)
    ofdma = make_links(RadioConfig(access="ofdma", snr_gap_db=0.0), [[0, 0, 0]])
    share = ofdma.share(4)
    assert share == pytest.approx((0.25e6, ofdma.noise_watts / 4))
    # A share holds a quarter of the noise, so the same power gives four times the SNR there.
    gain = ofdma.noise_watts * 7 / 4 / 0.5
    assert ofdma.rate_bps(0.5, gain, share.bandwidth_hz) == pytest.approx(0.75e6)


@given(
    bits=st.floats(1, 1e12),
    power=st.floats(1e-9, 1e3),
    gain=st.floats(1e-30, 100),
    band=st.floats(1e3, 1e9),
)
def test_costs_are_always_positive_numbers(
    bits: float, power: float, gain: float, band: float
) -> None:
    links = make_links(RadioConfig(), [[0, 0, 0]])
    seconds = float(links.transmit_seconds(bits, power, gain, band))
    for value in (seconds, float(links.rate_bps(power, gain, band))):
        assert 0 < value < math.inf


@given(
    model=st.sampled_from(["paper", "log-distance", "umi", "uma"]),
    places=st.lists(
        st.tuples(*[st.floats(-1e7, 1e7)] * 2, st.floats(-10, 100)), min_size=1, max_size=5
    ),
    dbi=st.floats(-100, 100),
    shadowing=st.floats(0, 100),
    noise_dbm=st.floats(-300, 300),
)
def test_gains_stay_within_their_limits(
    model: Any, places: list[Any], dbi: float, shadowing: float, noise_dbm: float
) -> None:
    radio = RadioConfig(
        path_loss=model, bs_gain_dbi=dbi, shadowing_db=shadowing, noise_dbm=noise_dbm, antennas=4
    )
    links = make_links(radio, places)
    assert ((links.uplink_gain > 0) & (links.uplink_gain <= 4)).all()
    everyone = np.arange(len(places))
    gain = device_gain(links, everyone, everyone)
    assert ((gain > 0) & (gain <= 1)).all()
    assert np.isfinite(links.device_snr_db(everyone, everyone)).all()
    assert np.isfinite(links.uplink_snr()).all()


@pytest.mark.parametrize("path_loss", ["paper", "umi"])
@pytest.mark.parametrize("measured", [False, True])
def test_pairs_are_entries_of_the_block(path_loss: Any, measured: bool) -> None:
    radio = RadioConfig(path_loss=path_loss, shadowing_db=4.0)
    draw = np.random.Generator(np.random.PCG64(6))
    snr_db = draw.uniform(-20, 60, (30, 30)) if measured else None
    power = draw.uniform(0.1, 2.0, 30)
    links = make_links(radio, random_places(30), power, snr_db=snr_db)
    first, second = draw.integers(0, 30, (2, 100))
    everyone = np.arange(30)
    gains, snrs_db = device_gain(links, everyone, everyone), links.device_snr_db(everyone, everyone)
    assert links.pair_gain(first, second) == pytest.approx(gains[first, second], rel=1e-13)
    assert links.pair_snr_db(first, second) == pytest.approx(snrs_db[first, second], rel=1e-12)
