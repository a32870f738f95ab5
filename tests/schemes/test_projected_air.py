"""A-DSGD: power limits, the error of what the server finds, and its limits without compression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import camu
from camu.planning.air import Amplitudes, Reception, Senders
from camu.planning.projection import Projected
from camu.schemes import SCHEMES
from camu.seeding import derive
from camu.world import World

QUIET = {"radio.noise_dbm": -200.0}


def rule(**fields: Any) -> Projected:
    plain: dict[str, Any] = {"measured_share": 0.5, "sent_share": 0.05, "threshold": 1.4}
    plain |= {"steps": 30, "pilot": 0.1, "seed": 4}
    return Projected(**{**plain, **fields})


def senders(
    air: Projected, count: int, parameters: int = 400, noise_watts: float = 1e-12, seed: int = 0
) -> Senders:
    draw = np.random.default_rng(seed)
    gain = 10 ** draw.uniform(-9, -7, count)
    return Senders(
        weight=draw.dirichlet(np.ones(count)),
        power_watts=draw.uniform(0.1, 1, count),
        gain=gain,
        mean_gain=gain,
        noise_watts=noise_watts,
        symbols=air.symbols(parameters),
        leaders=np.arange(count),
        links=None,  # type: ignore[arg-type]
        round=0,
    )


def received(air: Projected, updates: Any, found: Amplitudes, stream: int = 0) -> Any:
    return air.estimate(Reception(found.factors @ updates, 1.0, found, derive(stream, "own-test")))


def test_it_takes_a_number_for_each_measurement_and_one_for_the_scale() -> None:
    assert rule().symbols(400) == 101  # 200 + 1 real numbers, two in a symbol
    assert rule(measured_share=1.0).symbols(401) == 201


def test_every_unit_keeps_its_power_limit_and_one_reaches_it() -> None:
    air = rule()
    for seed in range(20):
        own = senders(air, 6, seed=seed)
        sent = (
            np.random.default_rng(seed).standard_normal((6, 400)) * np.logspace(-3, 3, 6)[:, None]
        )
        squares = np.array([air.squares(one.astype(np.float32)) for one in sent])
        found = air.amplitudes(own, squares)
        for k, one in enumerate(sent):  # what the antenna of unit k radiates
            numbers = found.factors[k] * np.append(air.matrix(400).forward(one), air.pilot)
            watts = np.square(numbers).sum() / own.gain[k] / own.symbols
            assert watts == pytest.approx(found.power_watts[k], rel=1e-5)
        share = found.power_watts / own.power_watts
        assert share.max() == pytest.approx(1, rel=1e-12)


def test_amplitudes_are_equal_exactly_for_equal_norms() -> None:
    air = rule()
    own = senders(air, 3)
    like = Senders(**{**vars(own), "weight": np.full(3, 1 / 3)})
    equal = air.amplitudes(like, np.array([2.0, 2.0, 2.0])).factors
    assert equal == pytest.approx(equal[0])
    other = air.amplitudes(like, np.array([2.0, 2.0, 8.0])).factors
    assert other[0] / other[2] == pytest.approx(2)


def test_without_noise_the_sparse_mean_is_found() -> None:
    air = rule(steps=100)
    draw, sent = np.random.default_rng(0), np.zeros((4, 2000))
    for row in sent:
        row[draw.permutation(2000)[:40]] = draw.standard_normal(40)
    own = senders(air, 4, 2000, noise_watts=0.0)
    squares = np.array([air.squares(one.astype(np.float32)) for one in sent])
    found = air.amplitudes(own, squares)
    weights = own.weight / np.sqrt(squares)
    mean = (weights / weights.sum()) @ sent
    assert np.abs(received(air, sent, found) - mean).max() < 1e-9


@pytest.mark.slow
def test_the_error_without_compression_is_the_closed_form() -> None:
    """Noise of the numbers, and of the scale that they are divided by, to first order."""
    air = rule(measured_share=1.0, sent_share=1.0)
    sent = np.random.default_rng(1).standard_normal((5, 400))
    own = senders(air, 5, noise_watts=3e-16)
    found = air.amplitudes(own, np.array([air.squares(one.astype(np.float32)) for one in sent]))
    total = found.factors.sum()
    mean = found.factors @ sent / total
    errors = [np.square(received(air, sent, found, n) - mean).sum() for n in range(4000)]
    expected = own.noise_watts / 2 / total**2 * (400 + np.square(mean).sum() / air.pilot**2)
    spread = np.std(errors) / np.sqrt(len(errors))
    assert np.mean(errors) == pytest.approx(expected, abs=5 * spread)
    assert spread < 0.05 * expected


def test_a_burst_with_numbers_that_are_not_finite_has_no_finite_estimate() -> None:
    air, sent = rule(), np.zeros((2, 400))
    sent[0, 5] = np.nan
    found = Amplitudes(np.array([0.5, 0.5]), 0.0, np.ones(2))
    assert not np.isfinite(received(air, sent, found)).all()


def world_of(**keys: Any) -> World:
    plain = {"run.rounds": 5, "training.model": "logistic", "machine.workers": 1, **QUIET}
    return camu.build_world(camu.load_config(preset="demo", overrides={**plain, **keys}))


def test_a_burst_takes_as_long_for_more_devices_and_half_for_half_the_measurements() -> None:
    plans = [
        camu.plan(SCHEMES["a-dsgd"](measured_share=share), world_of())  # type: ignore[call-arg]
        for share in (0.25, 0.5)
    ]
    seconds = [plan.units[0].uplink_seconds for plan in plans]
    band = world_of().config.radio.bandwidth_hz
    assert seconds[1] == pytest.approx((plans[1].parameters / 2 + 1) / 2 / band, rel=1e-2)
    assert seconds[0] == pytest.approx(seconds[1] / 2, rel=1e-2)
    assert len({unit.uplink_seconds for unit in plans[0].units}) == 1
