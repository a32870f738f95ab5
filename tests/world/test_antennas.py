"""Channels of several antennas: their size, their directions, and signals taken apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from camu.arrays import Float64
from camu.config import RadioConfig
from camu.errors import InputError
from camu.world.antennas import zero_forcing
from camu.world.devices import Devices
from camu.world.links import Links, build_links
from helpers.small_fleets import plain_devices


def links_of(positions: Float64, stations: Any = ((0.0, 0.0, 10.0),), **radio: Any) -> Links:
    devices: Devices = plain_devices(positions)
    return build_links(RadioConfig(**radio), devices, np.array(stations), seed=5)


def around(count: int, seed: int = 1) -> Float64:
    places = np.random.default_rng(seed).uniform(-300, 300, (count, 3))
    return places * [1, 1, 0]


def alignment(channels: Any) -> Any:
    """|h_j^H h_k| / (||h_j|| ||h_k||) of all pairs of different devices."""
    unit = channels / np.linalg.norm(channels, axis=1, keepdims=True)
    return np.abs(unit.conj() @ unit.T)[np.triu_indices(len(unit), 1)]


@pytest.mark.parametrize("antennas", [1, 4, 15])
@pytest.mark.parametrize("rho", [0.0, 0.7])
@pytest.mark.parametrize("fading", ["none", "rayleigh", "rician"])
def test_squares_add_up_to_the_gain_of_the_round(antennas: int, rho: float, fading: str) -> None:
    rho = 0.0 if fading == "none" else rho
    links = links_of(around(9), antennas=antennas, fading=fading, fading_correlation=rho)
    for round_ in (3, 0, 7):
        power = np.square(np.abs(links.channels(round_))).sum(axis=1)
        assert power == pytest.approx(links.uplink_gain * links.fading(round_), rel=1e-13)


def test_rayleigh_channels_are_independent_circular_normal_numbers() -> None:
    links = links_of(around(3000), antennas=3, fading="rayleigh")
    size = np.sqrt(links.uplink_gain / 3)[:, None]
    state = np.concatenate([links.channels(t) / size for t in range(4)], axis=1)
    covariance = state.T @ state.conj() / len(state)  # over antennas and rounds
    assert np.abs(covariance - np.eye(12)).max() < 5 / np.sqrt(3000)
    assert np.abs(state.T @ state / len(state)).max() < 5 * np.sqrt(2 / 3000)  # circular


@pytest.mark.parametrize("fading", ["none", "rician"])
def test_lines_of_sight_of_two_devices_are_not_parallel(fading: str) -> None:
    """If they were, one receive vector would have the whole array's gain for everyone."""
    links = links_of(around(12), antennas=15, fading=fading, rician_k_db=20.0)
    assert np.median(alignment(links.channels(0))) < 0.4


def test_a_line_of_sight_is_a_plane_wave_on_the_array() -> None:
    """Phases fall by pi times the direction's cosine with the array from antenna to antenna."""
    places = np.array([[100.0, 0, 10], [0, 100, 10], [0, -50, 10], [60, 80, 10], [30, 40, 10]])
    h = links_of(places, antennas=4).channels(2)
    step = np.angle(h[:, 1:] / h[:, :-1]) / np.pi
    for row, cosine in zip(step, [0, 1, -1, 0.8, 0.8], strict=True):
        assert np.abs(np.exp(1j * np.pi * row) - np.exp(-1j * np.pi * cosine)).max() < 1e-12
    assert alignment(h[3:])[0] == pytest.approx(1)  # the same direction, at two distances
    assert np.unique(np.angle(h[:, 0]).round(6)).size == 5  # and phases of their own


def test_devices_without_a_place_have_directions_of_their_own() -> None:
    places = around(30)
    places[:20] = np.nan
    links = links_of(np.nan_to_num(places), antennas=8)
    blind = replace(links, devices=plain_devices(places))
    assert np.isfinite(blind.channels(0)).all()
    assert np.median(alignment(blind.channels(0)[:20])) < 0.5
    assert (blind.channels(0)[20:] == links.channels(0)[20:]).all()


def test_a_device_on_top_of_the_mast_has_a_channel() -> None:
    links = links_of(np.array([[0.0, 0.0, 10.0]]), antennas=3)
    assert np.isfinite(links.channels(0)).all()


def test_directions_are_those_from_the_serving_station() -> None:
    places = np.array([[0.0, 100.0, 10.0], [1000.0, 900.0, 10.0]])
    two = links_of(places, ((0.0, 0.0, 10.0), (1000.0, 1000.0, 10.0)), antennas=2)
    assert two.serving.tolist() == [0, 1]
    h = two.channels(0)
    assert h[:, 1] / h[:, 0] == pytest.approx(np.exp(-1j * np.pi * np.array([1.0, -1.0])))


def noise_of(channels: Any) -> Any:
    return zero_forcing(channels).diagonal().real


def test_zero_forcing_leaves_the_noise_that_it_says() -> None:
    rng = np.random.default_rng(0)
    h = rng.standard_normal((3, 5)) + 1j * rng.standard_normal((3, 5))
    h *= np.array([1e-6, 1.0, 30.0])[:, None]
    received = np.linalg.pinv(h.T)  # the receiver's matrix, found another way
    covariance = zero_forcing(h)
    assert covariance == pytest.approx(received @ received.conj().T, rel=1e-9)
    noise = rng.standard_normal((2, 5, 200_000)) * np.sqrt(0.5)
    left = received @ (noise[0] + 1j * noise[1])
    measured = left @ left.conj().T / 200_000
    sizes = np.sqrt(covariance.diagonal().real)
    assert np.abs((measured - covariance) / np.outer(sizes, sizes)).max() < 5 / np.sqrt(200_000)


def test_orthogonal_signals_lose_nothing_and_others_lose_something() -> None:
    rng = np.random.default_rng(1)
    base = np.linalg.qr(rng.standard_normal((6, 4)) + 1j * rng.standard_normal((6, 4)))[0].T
    size = np.array([3.0, 1.0, 0.1, 20.0])
    assert noise_of(size[:, None] * base) == pytest.approx(size**-2)
    mixed = base + 0.3 * rng.standard_normal((4, 4)) @ base
    assert (noise_of(mixed) > 1 / np.square(np.abs(mixed)).sum(axis=1)).all()
    two = np.array([[1.0, 0.0], [np.cos(0.3), np.sin(0.3)]])
    assert noise_of(two) == pytest.approx(np.sin(0.3) ** -2)


@pytest.mark.parametrize(
    ("channels", "words"),
    [
        (np.ones((3, 2)), "at least 3 antennas"),
        (np.array([[1, 2j, 3], [2j, -4, 6j]]), "nearly parallel"),
        (np.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 1e-7]]), "nearly parallel"),
        (np.array([[1.0, 1e-7], [1, 0]]), "nearly parallel"),
    ],
)
def test_signals_that_cannot_be_taken_apart_are_refused(channels: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        zero_forcing(channels)
