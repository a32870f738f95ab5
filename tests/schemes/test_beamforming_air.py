"""Receive beamforming over the air: the error of the mean, power limits, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import camu
from camu.allocation.beamforming import receive_beam
from camu.planning.air import ALIGNED, Senders
from camu.planning.several_antennas import Beamformed, Separated
from camu.schemes.beamforming_air import BeamformingAir
from camu.schemes.contract import State, View, Weights
from camu.seeding import derive
from camu.simulation import Callback, Record, Run
from camu.simulation.burst import senders_of
from camu.world import World

PLAIN = {"training.model": "logistic", "machine.workers": 1, "run.rounds": 3}


def world_of(**keys: Any) -> World:
    return camu.build_world(camu.load_config(preset="demo", overrides={**PLAIN, **keys}))


def senders(world: World, round_: int = 0) -> Senders:
    plan = camu.plan(BeamformingAir(), world)
    return senders_of(world, plan, plan.units, round_)


@pytest.mark.parametrize("fading", ["none", "rayleigh", "rician"])
def test_the_noise_is_that_of_a_receiver_that_combines_its_antennas(fading: str) -> None:
    """Signals through complex channels, the receiver's f^H y, and the mean read off: by hand."""
    own = senders(world_of(**{"radio.fading": fading, "radio.noise_dbm": -60.0}))
    squares = np.random.default_rng(0).uniform(0.5, 2.0, len(own.weight))
    found = Beamformed().amplitudes(own, squares)
    h = own.links.channels(own.round)[own.leaders]
    assert (found.power_watts <= own.power_watts * (1 + 1e-12)).all()
    assert (found.power_watts / own.power_watts).max() == pytest.approx(1)
    # Powers p_k = eta w_k^2 ||s_k||^2 / (n |f^H h_k|^2) give |f^H h_k|^2 up to 1 / eta, and the
    # noise gives eta; one vector of norm 1 must have these outputs.
    eta = own.noise_watts / (2 * found.noise**2)
    outputs = np.sqrt(eta * own.weight**2 * squares / (own.symbols * found.power_watts))
    assert (outputs <= np.linalg.norm(h, axis=1) * (1 + 1e-9)).all()
    assert outputs.min() > 0


def test_more_antennas_make_less_noise_than_one() -> None:
    world = world_of(**{"radio.fading": "rayleigh"})
    own = senders(world)
    squares = np.ones(len(own.weight))
    assert Beamformed().amplitudes(own, squares).noise < ALIGNED.amplitudes(own, squares).noise


def test_with_one_antenna_it_is_the_rule_of_aligned_units() -> None:
    own = senders(world_of(**{"radio.antennas": 1, "radio.fading": "rayleigh"}))
    squares = np.random.default_rng(0).uniform(0.5, 2.0, len(own.weight))
    ours, plain = Beamformed().amplitudes(own, squares), ALIGNED.amplitudes(own, squares)
    assert ours.noise == pytest.approx(plain.noise, rel=1e-9)
    assert ours.power_watts == pytest.approx(plain.power_watts, rel=1e-9)


def test_with_estimated_channels_units_arrive_as_the_vector_hears_them() -> None:
    """The vector is for the known channels; what arrives is f^H h over f^H h'."""
    for pilots, far in ((1, 0.05), (100_000, 0.0)):
        own = senders(world_of(**{"radio.fading": "rayleigh", "radio.pilot_symbols": pilots}))
        true, known = (
            get(0)[own.leaders] for get in (own.links.channels, own.links.known_channels)
        )
        scale = np.sqrt(own.power_watts) / own.weight
        f = receive_beam(scale[:, None] * known, derive(0, "receive-vector", 0)).vector
        expected = np.array(
            [np.vdot(f, h) / np.vdot(f, k) for h, k in zip(true, known, strict=True)]
        )
        found = Beamformed().true_over_known(own)
        assert found == pytest.approx(np.array(expected), rel=1e-9)
        assert np.abs(found - 1).max() >= far
    assert np.abs(found - 1).max() < 0.05


@pytest.mark.parametrize("fading", ["none", "rayleigh"])
def test_taken_apart_the_mean_has_the_noise_of_a_simulated_receiver(fading: str) -> None:
    """y = H x + n, then (H^H H)^-1 H^H y over the amplitudes, weighted: 100 000 times."""
    whole = senders(world_of(**{"radio.fading": fading, "radio.noise_dbm": -60.0}))
    own = whole.only(np.arange(0, 20, 8 if fading == "none" else 3))  # lines of sight are alike
    draw = np.random.default_rng(0)
    squares = draw.uniform(0.5, 2.0, len(own.weight))
    found = Separated().amplitudes(own, squares)
    assert found.factors == pytest.approx(own.weight)
    assert found.power_watts == pytest.approx(own.power_watts)
    h = own.links.channels(own.round)[own.leaders].T
    size = np.sqrt(own.symbols * own.power_watts / squares)
    noise = draw.standard_normal((2, 15, 100_000)) * np.sqrt(own.noise_watts / 2)
    left = np.linalg.pinv(h) @ (noise[0] + 1j * noise[1])
    mean = own.weight @ (left / size[:, None])
    for part in (mean.real, mean.imag):
        assert part.std() == pytest.approx(found.noise, rel=5 / np.sqrt(2e5))


def test_orthogonal_channels_taken_apart_have_the_noise_of_uplinks_in_turn() -> None:
    """sum_k w_k^2 ||s_k||^2 sigma^2 / (P_k ||h_k||^2), as if each were received on its own."""
    own = senders(world_of())
    own = own.only(np.arange(5))
    h = np.linalg.norm(own.links.channels(0)[:5], axis=1)[:, None] * np.eye(5, 15)
    links: Any = SimpleNamespace(channels=lambda round_: h)
    squares = np.arange(1.0, 6.0)
    found = Separated().amplitudes(replace(own, links=links, leaders=np.arange(5)), squares)
    gain = np.square(np.abs(h)).sum(axis=1)
    expected = (own.weight**2 * squares * own.noise_watts / (own.power_watts * gain)).sum()
    assert 2 * own.symbols * found.noise**2 == pytest.approx(expected, rel=1e-12)


def test_more_units_than_antennas_cannot_be_taken_apart() -> None:
    own = senders(world_of(**{"radio.antennas": 4}))
    with pytest.raises(camu.InputError, match="at least 20 antennas"):
        Separated().amplitudes(own, np.ones(20))


def units_by_round(world: World, scheme: Any) -> list[int]:
    return [one.units for one in camu.simulate(world, scheme).history.records[1:]]


def test_with_one_antenna_exactly_those_below_the_limit_take_part() -> None:
    world = world_of(**{"radio.antennas": 1, "radio.fading": "rayleigh"})
    links, plan = world.links, camu.plan(BeamformingAir(), world)
    weight, power = plan.column("weight"), plan.column("power_watts")
    limit, expected = 0.0, []
    for round_ in range(3):
        gain = links.uplink_gain * links.fading(round_)
        error = weight**2 * links.noise_watts / (power * gain)
        limit = limit or float(np.median(error))
        expected.append(int((error <= limit).sum()))
    assert units_by_round(world, BeamformingAir(mse_limit=limit)) == expected


def test_a_stricter_limit_means_fewer_devices() -> None:
    world = world_of(**{"radio.fading": "rayleigh"})
    own = senders(world)
    worst = Beamformed().amplitudes(own, np.full(len(own.weight), 2.0 * own.symbols)).noise ** 2
    counts = [
        units_by_round(world, BeamformingAir(mse_limit=factor * worst))[0]
        for factor in (0.02, 0.3, 1.1)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == len(own.weight)


@dataclass(frozen=True)
class Shown(BeamformingAir):
    """Keeps what it is shown of the last burst."""

    def aggregate(self, view: View, state: State) -> Weights:
        (arrival,) = view.arrived
        state["update"] = arrival.update.astype(np.float64)
        state["norms"] = np.array([arrival.norms[unit] for unit in sorted(arrival.norms)])
        return super().aggregate(view, state)


class Kept(Callback):
    """The state of a scheme at the end of a run."""

    def on_round(self, run: Run, record: Record) -> None:
        self.state = dict(run.state)


def test_the_measured_error_of_a_round_is_the_closed_form() -> None:
    """E||e||^2 = max_k w_k^2 ||D_k||^2 sigma^2 / (P_k |f^H h_k|^2), over different draws."""
    ratios, count = [], 0
    for seed in range(4):
        keys = {"run.rounds": 1, "run.seed": seed, "radio.fading": "rayleigh"}
        heard = []
        for noise_dbm in (-70.0, -300.0):
            own, world = Kept(), world_of(**keys, **{"radio.noise_dbm": noise_dbm})
            camu.simulate(world, Shown(mse_limit=1e300), [own])
            heard.append(own.state)
        loud = senders(world_of(**keys, **{"radio.noise_dbm": -70.0}))
        h = loud.links.channels(0)[loud.leaders]
        scale = np.sqrt(loud.power_watts) / loud.weight
        f = receive_beam(scale[:, None] * h, derive(seed, "receive-vector", 0)).vector
        gain = np.abs(h.conj() @ f) ** 2
        terms = loud.weight**2 * heard[0]["norms"] ** 2 / (loud.power_watts * gain)
        expected = loud.noise_watts * terms.max()
        error = np.square(heard[0]["update"] - heard[1]["update"]).sum()
        ratios.append(error / expected)
        count += len(heard[0]["update"])
    assert np.mean(ratios) == pytest.approx(1, abs=5 * np.sqrt(2 / count))
