"""Packets: updates arrive whole or are lost, as often as the waterfall formula says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from camu.planning.packets import packet_error
from camu.schemes import FedAvg
from camu.simulation import simulate
from camu.world import build_world
from helpers.configs import small


def test_the_error_rate_is_the_published_formula() -> None:
    power, gain, interference_and_noise, m = 0.2, 3e-9, 4e-11, 10**0.0023
    expected = 1 - math.exp(-m * interference_and_noise / (power * gain))
    snr = power * gain / interference_and_noise
    assert packet_error(snr) == pytest.approx(expected, rel=1e-12)
    assert packet_error(1e300) == pytest.approx(m * 1e-300)
    assert packet_error(1e-300) == packet_error(0.0) == 1.0


def test_lost_packets_are_counted_and_as_many_as_expected() -> None:
    rounds = 30
    config = small(
        radio__uplink="packet",
        radio__noise_dbm=-87.0,
        run__rounds=rounds,
        run__eval_every=rounds,
        training__model="logistic",
    )
    world = build_world(config)
    history = simulate(world, FedAvg()).history
    lost = sum(record.faults["lost_packets"] for record in history.records)
    error = np.array([packet_error(float(snr)) for snr in world.links.uplink_snr()])
    mean, variance = rounds * error.sum(), rounds * (error * (1 - error)).sum()
    assert mean > 20
    assert abs(lost - mean) < 4 * math.sqrt(variance)
    assert all(r.units == 20 - r.faults["lost_packets"] for r in history.records[1:])
    assert sum(record.faults["outages"] for record in history.records) == 0


def test_a_link_without_errors_gives_what_digital_gives() -> None:
    runs = {
        uplink: simulate(
            build_world(small(radio__uplink=uplink, radio__noise_dbm=-200.0)), FedAvg()
        ).history
        for uplink in ("packet", "digital")
    }
    assert runs["packet"].weights_sha256 == runs["digital"].weights_sha256
    assert runs["packet"].final.total_joules == runs["digital"].final.total_joules
