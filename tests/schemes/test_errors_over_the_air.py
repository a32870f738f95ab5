"""Measured errors of what a server receives over the air, against closed forms over the fading."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import camu
from camu.arrays import Float64
from camu.planning.air import ALIGNED, Senders
from camu.schemes import SCHEMES
from camu.simulation.burst import Burst
from camu.simulation.run import Update
from camu.world import World
from helpers.bursts import start_of

Tiny = Callable[..., World]
SIZE = 60
WEIGHTS = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])


def made_up() -> list[Update]:
    """Updates of six devices that have a direction in common."""
    draw, found = np.random.default_rng(1), []
    common = draw.standard_normal(SIZE)
    for unit in range(len(WEIGHTS)):
        one = Update(unit, 0, loss=1.0)
        own = draw.uniform(0.5, 2.0) * (common + 2 * draw.standard_normal(SIZE))
        one.update, one.buffers = own.astype(np.float32), np.zeros(0, np.float32)
        one.squares = ALIGNED.squares(one.update)
        found.append(one)
    return found


def sums(
    world: World, updates: list[Update], rounds: int, noise_watts: float, **parameters: Any
) -> Iterator[tuple[Senders, Float64]]:
    """What is received in each round before it is divided by the weight of those that sent."""
    plan = camu.plan(SCHEMES["broadband-analog"](**parameters), world)
    for round_ in range(rounds):
        burst = Burst.of(world, plan, plan.units, round_)
        assert burst is not None
        own = replace(
            burst.senders, weight=WEIGHTS, noise_watts=noise_watts, symbols=math.ceil(SIZE / 2)
        )
        for row, one in enumerate(updates):
            one.lost = "truncated" if row in burst.silent else None
        arrival = replace(burst, senders=own).receive(updates, start_of(SIZE), math.inf).arrival
        total = np.zeros(SIZE) if arrival is None else arrival.weight * arrival.update.astype(float)
        yield own, total


def is_mean(found: list[float], expected: float, within: float) -> None:
    """The mean is the expected one within its interval, which is as narrow as it should be."""
    error = float(np.std(found)) / math.sqrt(len(found))
    assert error < within * expected
    assert abs(np.mean(found) - expected) < 4 * error


def test_truncation_and_noise_have_the_error_of_the_formula(tiny: Tiny) -> None:
    """sum_k w_k^2 z (1 - z) ||d_k||^2 + ||z sum_k w_k d_k||^2 + the noise; silent: z of all."""
    world, updates, threshold = tiny(radio__fading="rayleigh"), made_up(), 0.4
    exact = sum(w * one.update.astype(float) for w, one in zip(WEIGHTS, updates, strict=True))
    squares = np.array([one.squares for one in updates])
    mean_gain = world.links.uplink_gain / world.config.radio.antennas
    need = WEIGHTS**2 * squares / (world.devices.power_watts * mean_gain)
    noise_watts = 0.1 * float(np.square(exact).sum()) / need.max()
    found = [
        float(np.square(total - exact).sum())
        for _, total in sums(world, updates, 4000, noise_watts, truncation=threshold)
    ]
    need *= noise_watts  # the noise is max_k need_k / x_k over x_k > threshold, x_k exponential

    def louder(noise: float) -> float:
        weaker = np.exp(-np.maximum(threshold, need / noise))
        return 1.0 - float((1.0 - math.exp(-threshold) + weaker).prod())

    noise, _ = quad(louder, 0.0, need.max() / threshold, points=sorted(need / threshold), limit=200)
    z = 1.0 - math.exp(-threshold)
    expected = z * (1 - z) * float((WEIGHTS**2 * squares).sum())
    expected += z**2 * float(np.square(exact).sum())
    assert 0.1 * expected < noise < expected  # so that each of them shows
    is_mean(found, expected + noise, within=0.02)


@pytest.mark.parametrize(
    ("keys", "scattered"),
    [
        ({"radio__fading": "rayleigh", "radio__pilot_symbols": 2}, 1.0),
        ({"radio__fading": "rayleigh", "radio__csi_correlation": 0.9}, 1.0),
        (
            {
                "radio__fading": "rician",
                "radio__rician_k_db": 3.0,
                "radio__pilot_symbols": 3,
                "radio__csi_correlation": 0.95,
            },
            1 / (1 + 10**0.3),
        ),
    ],
)
def test_an_estimated_channel_has_the_error_of_its_formula(
    tiny: Tiny, keys: dict[str, Any], scattered: float
) -> None:
    """sum_k w_k^2 ||d_k||^2 var(e_k) / |h'_k|^2 for h = h' + e, and the noise, in every round."""
    world, updates = tiny(radio__noise_dbm=-90.0, **keys), made_up()
    exact = sum(w * one.update.astype(float) for w, one in zip(WEIGHTS, updates, strict=True))
    squares = WEIGHTS**2 * np.array([one.squares for one in updates])
    radio, power = world.config.radio, world.devices.power_watts
    mean_gain = world.links.uplink_gain / radio.antennas
    known = np.full(len(WEIGHTS), radio.csi_correlation**2)  # squared correlation of the estimate
    if radio.pilot_symbols is not None:
        pilots = radio.pilot_symbols * scattered * power * mean_gain / 1e-12
        known *= pilots / (1 + pilots)
    assert ((known > 0.05) & (known < 0.95)).all()
    variance, ratios, shares = mean_gain * scattered * (1 - known), [], []
    noise_watts = 0.1 * float((power * mean_gain / squares).min()) * squares.sum()
    for own, total in sums(world, updates, 2500, noise_watts, truncation=0.0):
        errors = float((squares * variance / own.gain).sum())
        noise = float((squares * noise_watts / (power * own.gain)).max())
        ratios.append(float(np.square(total - exact).sum()) / (errors + noise))
        shares.append(noise / (errors + noise))
    assert 0.02 < np.mean(shares) < 0.98
    is_mean(ratios, 1.0, within=0.03)


def test_a_phase_error_shrinks_the_mean_and_spreads_it(tiny: Tiny) -> None:
    """||d||^2 (1 - c)^2 + sum_k w_k^2 ||d_k||^2 (E cos^2 - c^2 + E sin^2) for c = E cos."""
    deviation = 0.6
    world, updates = tiny(radio__phase_error_rad=deviation), made_up()
    exact = sum(w * one.update.astype(float) for w, one in zip(WEIGHTS, updates, strict=True))
    squares = WEIGHTS**2 * np.array([one.squares for one in updates])

    def mean_of(function: Callable[[float], float]) -> float:
        density = math.sqrt(2 * math.pi) * deviation
        inside = lambda phi: function(phi) * math.exp(-((phi / deviation) ** 2) / 2)  # noqa: E731
        return float(quad(inside, -8 * deviation, 8 * deviation)[0]) / density

    cosine = mean_of(math.cos)
    spread = mean_of(lambda phi: math.cos(phi) ** 2) - cosine**2
    spread += mean_of(lambda phi: math.sin(phi) ** 2)
    gain = world.links.uplink_gain / world.config.radio.antennas
    need = squares / (world.devices.power_watts * gain)
    noise_watts = 0.02 * float(np.square(exact).sum() / need.max())
    received = [total for _, total in sums(world, updates, 3000, noise_watts)]
    expected = (1 - cosine) ** 2 * float(np.square(exact).sum()) + spread * float(squares.sum())
    expected += noise_watts * float(need.max())
    is_mean([float(np.square(one - exact).sum()) for one in received], expected, within=0.02)
    along = [float(one @ exact / (exact @ exact)) for one in received]
    is_mean(along, cosine, within=0.01)
