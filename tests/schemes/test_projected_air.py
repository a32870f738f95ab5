"""A-DSGD: power limits, the error of what the server finds, and its limits without compression."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import camu
from camu.planning.air import Amplitudes, Reception, Senders
from camu.planning.projection import Projected
from camu.schemes import SCHEMES
from camu.seeding import derive
from helpers.bursts import draw_senders


def rule(parameters: int = 400, **fields: Any) -> Projected:
    plain: dict[str, Any] = {"measured_share": 0.5, "sent_share": 1.0, "threshold": 1.4}
    plain |= {"steps": 30, "pilot": 0.1, "seed": 4}
    return Projected(parameters=parameters, **{**plain, **fields})


def senders(air: Projected, count: int, noise_watts: float = 1e-12, seed: int = 0) -> Senders:
    own = draw_senders(np.random.default_rng(seed), count)
    return replace(own, noise_watts=noise_watts, symbols=air.symbols(air.parameters))


def encoded(air: Projected, updates: Any) -> Any:
    stream = derive(0, "own-test")
    return np.array([air.encode(one.astype(np.float32), None, stream)[0] for one in updates])


def squares_of(air: Projected, sent: Any) -> Any:
    return np.array([air.squares(one) for one in sent])


def received(air: Projected, sent: Any, found: Amplitudes, stream: int = 0) -> Any:
    heard = found.factors @ sent.astype(np.float64)
    return air.estimate(Reception(heard, 1.0, found, derive(stream, "own-test")))


def test_it_takes_a_number_for_each_measurement_and_one_for_the_scale() -> None:
    assert rule().symbols(400) == 101  # 200 + 1 real numbers, two in a symbol
    assert rule(401, measured_share=1.0).symbols(401) == 201
    assert encoded(rule(), np.ones((1, 400))).shape == (1, 201)


def test_every_unit_keeps_its_power_limit_and_one_reaches_it() -> None:
    air = rule()
    for seed in range(20):
        own = senders(air, 6, seed=seed)
        updates = np.random.default_rng(seed).standard_normal((6, 400))
        sent = encoded(air, updates * np.logspace(-3, 3, 6)[:, None])
        found = air.amplitudes(own, squares_of(air, sent))
        # What each antenna radiates, per symbol of two numbers.
        radiated = np.square(found.factors[:, None] * sent).sum(axis=1) / own.gain / own.symbols
        assert radiated == pytest.approx(found.power_watts, rel=1e-5)
        share = found.power_watts / own.power_watts
        assert share.max() == pytest.approx(1, rel=1e-12)


def test_amplitudes_are_equal_exactly_for_equal_norms() -> None:
    air = rule()
    like = replace(senders(air, 3), weight=np.full(3, 1 / 3))
    equal = air.amplitudes(like, np.array([2.0, 2.0, 2.0])).factors
    assert equal == pytest.approx(equal[0])
    other = air.amplitudes(like, np.array([2.0, 2.0, 8.0])).factors
    assert other[0] / other[2] == pytest.approx(2)


def test_without_noise_the_mean_of_the_largest_entries_is_found() -> None:
    air = rule(2000, steps=100, sent_share=0.02)
    updates = np.random.default_rng(0).standard_normal((4, 2000)) ** 5
    sent = encoded(air, updates)
    own = senders(air, 4, noise_watts=0.0)
    found = air.amplitudes(own, squares_of(air, sent))
    least = np.sort(np.abs(updates), axis=1)[:, -40:-39]
    largest = np.where(np.abs(updates) >= least, updates, 0.0)
    weights = own.weight / np.linalg.norm(sent, axis=1)
    mean = (weights / weights.sum()) @ largest
    error = received(air, sent, found) - mean
    assert np.linalg.norm(error) < 1e-6 * np.linalg.norm(mean)


@pytest.mark.slow
def test_the_error_without_compression_is_the_closed_form() -> None:
    """Noise of the numbers, and of the scale that they are divided by, to first order."""
    air = rule(measured_share=1.0, pilot=3.0)
    updates = np.random.default_rng(1).standard_normal((5, 400))
    sent = encoded(air, updates)
    own = senders(air, 5, noise_watts=1e-14)
    found = air.amplitudes(own, squares_of(air, sent))
    total = found.factors.sum()
    mean = found.factors @ updates / total
    errors = [np.square(received(air, sent, found, n) - mean).sum() for n in range(4000)]
    expected = own.noise_watts / 2 / total**2 * (400 + np.square(mean).sum() / air.pilot**2)
    spread = np.std(errors) / np.sqrt(len(errors))
    assert np.mean(errors) == pytest.approx(expected, abs=5 * spread)
    assert spread < 0.02 * expected


def test_a_burst_with_numbers_that_are_not_finite_has_no_finite_estimate() -> None:
    air, sent = rule(), np.ones((2, 201))
    sent[0, 5] = np.nan
    found = Amplitudes(np.array([0.5, 0.5]), 0.0, np.ones(2))
    assert not np.isfinite(received(air, sent, found)).all()


def test_a_burst_takes_half_as_long_for_half_the_measurements() -> None:
    world = camu.build_world(camu.load_config(preset="demo"))
    plans = [
        camu.plan(SCHEMES["a-dsgd"](measured_share=share), world)  # type: ignore[call-arg]
        for share in (0.25, 0.5)
    ]
    seconds = [plan.units[0].uplink_seconds for plan in plans]
    numbers = round(0.5 * plans[1].parameters) + 1
    assert seconds[1] == math.ceil(numbers / 2) / world.config.radio.bandwidth_hz
    assert seconds[0] == pytest.approx(seconds[1] / 2, rel=1e-3)
    assert {unit.uplink_seconds for unit in plans[0].units} == {seconds[0]}
