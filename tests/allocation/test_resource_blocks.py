"""Resource blocks: against every permutation, and in cases that are plain."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from camu.allocation.resource_blocks import BlocksProblem, solve_blocks
from camu.errors import CamuError


def problem_of(index: int, devices: int = 5, blocks: int = 4, **more: Any) -> BlocksProblem:
    """The author's constants: 640 kbit, 10 mW, 0.5 s and 3 mJ, interference of 0.01 to 0.11 uW."""
    draw = np.random.default_rng(index)
    keys = {
        "cycles": draw.uniform(1e7, 1e8, devices),
        "capacitance": 1e-29,
        "max_hz": draw.uniform(0.5e9, 1e9, devices),
        "gain": draw.uniform(20, 500, devices) ** -2.0,
        "samples": draw.integers(10, 100, devices).astype(float),
        "max_power_watts": 0.01,
        "bandwidth_hz": 1e6,
        "noise_watts": 1e-14,
        "payload_bits": 39_760 * 16,
        "interference_watts": draw.uniform(1e-8, 1.1e-7, blocks).tolist(),
        "deadline_seconds": 0.5,
        "device_energy_joules": 3e-3,
    }
    return BlocksProblem(**{**keys, **more})


def value(problem: BlocksProblem, i: int, j: int) -> float:
    """Expected samples that arrive from a device on a block, at its best power; 0: not allowed."""
    noise = problem.interference_watts[j] + problem.noise_watts
    gain, computing = problem.gain[i], problem.cycles[i] / problem.max_hz[i]
    work = problem.capacitance[i] * problem.cycles[i] * problem.max_hz[i] ** 2
    work += np.broadcast_to(problem.static_watts, problem.size)[i] * computing
    most = problem.max_bits_per_hz or np.inf

    def seconds(watts: float) -> float:
        bits = min(np.log2(1 + watts * gain / noise), most)
        return float(problem.payload_bits / (problem.bandwidth_hz * bits))

    def joules(watts: float) -> float:
        drawn = watts / problem.amplifier_efficiency + problem.circuit_watts
        return float(work + drawn * seconds(watts) - problem.device_energy_joules)

    watts = problem.max_power_watts[i]
    if joules(watts) > 0:
        ends = np.log([1e-12, watts])
        cheap = minimize_scalar(
            lambda log: joules(np.exp(log)), bounds=ends, method="bounded", options={"xatol": 1e-12}
        )
        least = min(float(np.exp(cheap.x)), 1e-12, key=joules)
        if joules(least) > 0:
            return 0.0
        watts = brentq(joules, least, watts, xtol=1e-18)
    air = seconds(watts)
    if computing + air > problem.deadline_seconds:
        return 0.0
    return float(problem.samples[i] * np.exp(-problem.waterfall * noise / (watts * gain)))


REAL = {"circuit_watts": 1e-3, "amplifier_efficiency": 0.6, "static_watts": 2e-3}


@pytest.mark.parametrize("index", range(12))
@pytest.mark.parametrize(
    ("shape", "extra"),
    [
        *(((5, 4), {}), ((3, 5), {}), ((5, 5), {})),
        *(
            ((5, 4), REAL),
            ((5, 4), {"max_bits_per_hz": 2.0}),
            ((4, 4), {**REAL, "circuit_watts": 0.01}),
        ),
        ((4, 5), {**REAL, "max_bits_per_hz": 2.5}),
    ],
)
def test_the_assignment_is_the_best_of_all(
    index: int, shape: tuple[int, int], extra: dict[str, float]
) -> None:
    problem = problem_of(index, *shape, **extra)
    devices, blocks = shape
    values = np.array([[value(problem, i, j) for j in range(blocks)] for i in range(devices)])
    padded = np.zeros((max(shape), max(shape)))
    padded[:devices, :blocks] = values
    everyone = range(max(shape))
    best = max(padded[everyone, list(order)].sum() for order in itertools.permutations(everyone))
    if best == 0.0:
        with pytest.raises(CamuError, match="no device can compute"):
            solve_blocks(problem)
        return
    answer = solve_blocks(problem)
    assert problem.samples.sum() - answer.objective == pytest.approx(best, rel=1e-6)
    assert answer.gap < 1e-9
    chosen = np.flatnonzero(answer.block >= 0)
    assert len(set(answer.block[chosen])) == len(chosen)
    own = problem.samples[chosen] * (1 - answer.packet_error[chosen])
    assert own == pytest.approx(values[chosen, answer.block[chosen]], rel=1e-6)
    assert (answer.device_joules <= 3e-3 * (1 + 1e-9)).all()
    assert (answer.device_seconds <= 0.5).all()


def test_some_instances_leave_devices_out_and_some_limit_their_power() -> None:
    answers = [solve_blocks(problem_of(index)) for index in range(12)]
    assert len({answer.details["participants"] for answer in answers}) > 1
    powers = np.concatenate([answer.power_watts[answer.block >= 0] for answer in answers])
    assert (powers < 0.0099).any()
    assert (powers == 0.01).any()


def test_nobody_takes_part_where_every_packet_is_lost() -> None:
    problem = problem_of(0, interference_watts=[1.0] * 4, deadline_seconds=1e9)
    answer = solve_blocks(replace(problem, device_energy_joules=1e9))
    assert answer.objective == pytest.approx(problem.samples.sum())


def test_limits_that_nobody_keeps_are_refused_with_the_least_that_will_do() -> None:
    problem = problem_of(0)
    with pytest.raises(CamuError, match=r"deadline_seconds = 1e-06 is too short.*give at least"):
        solve_blocks(replace(problem, deadline_seconds=1e-6))
    with pytest.raises(CamuError, match=r"at least ([\d.e-]+) s") as refused:
        solve_blocks(replace(problem, deadline_seconds=1e-6))
    least = float(str(refused.value).split("at least ")[1].split()[0])
    assert (solve_blocks(replace(problem, deadline_seconds=1.00001 * least)).block >= 0).sum() == 1
    with pytest.raises(CamuError, match="at least"):
        solve_blocks(replace(problem, deadline_seconds=0.9999 * least))
    with pytest.raises(CamuError, match="device_energy_joules = 1e-12 is too small"):
        solve_blocks(replace(problem, device_energy_joules=1e-12))


def test_one_block_goes_to_the_device_with_the_most_expected_samples() -> None:
    problem = problem_of(3, 8, 1)
    values = [value(problem, i, 0) for i in range(8)]
    assert np.flatnonzero(solve_blocks(problem).block == 0) == [int(np.argmax(values))]


def test_a_hundred_devices_are_certified() -> None:
    answer = solve_blocks(problem := problem_of(4, 100, 60))
    assert 0 < answer.details["participants"] <= 60
    assert answer.gap < 1e-9
    assert BlocksProblem.from_dict(problem.to_dict()).to_dict() == problem.to_dict()
