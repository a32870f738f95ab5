"""What the air costs: bits per parameter, the broadcast, and receiving, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from camu.planning.codecs import RAW, Quantised, Raw, payload_bits
from camu.planning.costs import Costs, device_spending, unit_costs
from camu.planning.groups import single_devices
from camu.schemes import make_scheme
from camu.schemes.camu_joint import CamuJoint
from camu.simulation import History, simulate
from camu.world import World, build_world
from helpers.configs import small
from helpers.small_fleets import random_world

MEMBERS = ((0, 1, 2), (3,), (4, 5))
LEADERS = (1, 3, 5)


def costs_of(world: World) -> Costs:
    power = world.devices.power_watts[list(LEADERS)]
    bits = payload_bits(RAW, 1000, world.config.radio.bits_per_parameter)
    return unit_costs(world, MEMBERS, LEADERS, power, bits, 1000)


def test_half_the_bits_cost_half_the_seconds_and_joules_of_sending() -> None:
    whole = costs_of(random_world(6, 1))
    half = costs_of(random_world(6, 1, ["radio.bits_per_parameter=16"]))
    for name in ("uplink_seconds", "uplink_joules", "gather_seconds", "gather_joules"):
        assert (getattr(half, name) * 2 == getattr(whole, name)).all()  # exactly
    assert (half.compute_joules == whole.compute_joules).all()


def history(scheme: str = "camu", **changes: object) -> History:
    config = small(scheme__name=scheme, **changes)
    return simulate(build_world(config), make_scheme(config)).history


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_half_the_bits_halve_what_a_run_spends_on_sending(access: str) -> None:
    # Under `camu` shorter gathers may leave time for further updates.
    whole = history("clustered", radio__access=access)
    half = history("clustered", radio__access=access, radio__bits_per_parameter=16)
    assert 2 * half.final.joules["transmit"] == whole.final.joules["transmit"]
    assert half.final.joules["compute"] == whole.final.joules["compute"]
    assert half.weights_sha256 == whole.weights_sha256  # values are not rounded


def test_only_what_is_sent_as_it_is_takes_the_configured_bits() -> None:
    assert payload_bits(Raw(copies=2), 100, 16) == 2 * 16 * 100
    assert payload_bits(Quantised(3), 100, 16) == Quantised(3).bits(100)


def test_problem_p1_counts_the_configured_bits_and_pays_for_the_broadcast() -> None:
    plain = random_world(6, 1, ["allocation.energy_joules=50.0"])
    changed = random_world(
        6,
        1,
        [
            *("allocation.energy_joules=50.0", "radio.bits_per_parameter=8"),
            *("radio.downlink=true", "radio.receive_watts=0.1"),
        ],
    )
    problem, other = (CamuJoint().problem(single_devices(w)) for w in (plain, changed))
    assert other.payload_bits * 4 == problem.payload_bits
    once = single_devices(changed).costs_of_one_update
    assert other.energy_joules == pytest.approx(50.0 - 6 * 0.1 * once.downlink_seconds, rel=1e-12)


def broadcast_by_hand(world: World, devices: list[int], bits: float) -> float:
    """Shannon's rate of the weakest link, one antenna at the base station."""
    radio = world.config.radio
    noise = 10 ** ((-174 + 10 * math.log10(radio.bandwidth_hz) + radio.noise_figure_db - 30) / 10)
    rates = []
    for k in devices:
        x, y, z = world.devices.positions[k] - np.array(world.config.fleet.base_station)
        wave = 299_792_458 / (4 * math.pi * radio.carrier_hz * math.sqrt(x * x + y * y + z * z))
        gain = wave**radio.exponent * 10 ** (radio.bs_gain_dbi / 10)
        snr = radio.bs_power_watts * gain / noise
        rates.append(radio.bandwidth_hz * math.log2(1 + snr))
    return bits / min(rates)


def test_the_downlink_costs_what_a_computation_by_hand_gives() -> None:
    settings = ["radio.downlink=true", "radio.bs_power_watts=0.02", "radio.receive_watts=0.3"]
    world = random_world(6, 1, settings)
    costs, free = costs_of(world), costs_of(random_world(6, 1))
    assert free.downlink_seconds == 0
    seconds = broadcast_by_hand(world, list(range(6)), 32_000)
    assert costs.downlink_seconds == pytest.approx(seconds, rel=1e-6)
    updates = np.array([2.0, 1.0, 3.0])
    spent = device_spending(MEMBERS, LEADERS, updates, costs)
    plain = device_spending(MEMBERS, LEADERS, updates, free)
    assert spent.devices.tolist() == [0, 1, 2, 3, 4, 5]
    assert (spent.transmit_joules == plain.transmit_joules).all()
    assert not plain.receive_joules.any()
    expected = np.full(6, 0.3 * seconds)
    answer = costs.answer_seconds
    listen = costs.gather_seconds - answer
    for unit, (own, leader) in enumerate(zip(MEMBERS, LEADERS, strict=True)):
        for device in own:  # leaders listen to their members, and these to the answer
            heard = listen[unit] if device == leader else answer[unit]
            expected[device] += 0.3 * updates[unit] * heard
    assert spent.receive_joules == pytest.approx(expected, rel=1e-6)


def test_the_ledger_of_a_run_grows_by_the_downlink() -> None:
    off, on = history(), history(radio__downlink=True, radio__receive_watts=0.1)
    config = small(scheme__name="camu", radio__downlink=True, radio__receive_watts=0.1)
    world = build_world(config)
    plan = make_scheme(config).plan(world)
    seconds = broadcast_by_hand(world, list(range(20)), 32 * plan.parameters)
    gathers = sum(  # a leader hears its members, and each of them its answer
        u.local_updates
        * (
            u.per_update.gather_seconds
            - u.per_update.answer_seconds
            + (len(u.members) - 1) * u.per_update.answer_seconds
        )
        for u in plan.units
    )
    receive = 2 * 0.1 * (20 * seconds + gathers)  # two rounds
    assert on.final.joules["receive"] == pytest.approx(receive, rel=1e-6)
    assert on.final.joules["base_station"] == pytest.approx(2 * 1.0 * seconds, rel=1e-6)
    grown = on.final.total_joules - off.final.total_joules
    assert grown == pytest.approx(receive, rel=1e-6)
    longer = on.final.virtual_seconds - off.final.virtual_seconds
    assert longer == pytest.approx(2 * seconds, rel=1e-6)
    assert on.devices is not None
    assert on.devices.receive_joules.sum() == pytest.approx(receive, rel=1e-6)
    assert 2 * plan.round_joules == pytest.approx(on.final.total_joules, rel=1e-9)
    assert 2 * plan.round_seconds == pytest.approx(on.final.virtual_seconds, rel=1e-9)
    assert off.weights_sha256 == on.weights_sha256
