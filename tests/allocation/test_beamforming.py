"""One receive vector for many devices: closed forms, a convex solver, and all sets of devices."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camu.allocation.beamforming import receive_beam, select_devices
from camu.seeding import Stream, derive


def stream() -> Stream:
    return derive(0, "own-beam")


def channels(devices: int, antennas: int, seed: int, decades: float = 1.0) -> Any:
    draw = np.random.default_rng(seed)
    parts = draw.standard_normal((2, devices, antennas))
    return (parts[0] + 1j * parts[1]) * 10 ** draw.uniform(-decades, 0, (devices, 1))


def reached(rows: Any, vector: Any) -> float:
    return float((np.abs(rows.conj() @ vector) ** 2).min())


def relaxation(rows: Any) -> float:
    """max t: g_k^H M g_k >= t, tr M = 1, M positive semidefinite, in real numbers."""
    size = rows.shape[1]
    matrix, level = cvxpy.Variable((2 * size, 2 * size), symmetric=True), cvxpy.Variable()
    limits = []
    for row in rows:
        first, second = np.append(row.real, row.imag), np.append(-row.imag, row.real)
        both = np.outer(first, first) + np.outer(second, second)
        limits.append(cvxpy.trace(both @ matrix) / (both**2).sum() >= level / (both**2).sum())
    trace = cvxpy.trace(matrix) == 1
    problem = cvxpy.Problem(cvxpy.Maximize(level), [matrix >> 0, trace, *limits])
    return float(problem.solve(solver=cvxpy.CLARABEL))


@pytest.mark.parametrize("antennas", [1, 2, 15])
def test_one_device_is_received_along_its_channel(antennas: int) -> None:
    rows = channels(1, antennas, 0)
    beam = receive_beam(rows, stream())
    assert beam.worst == pytest.approx((np.abs(rows) ** 2).sum(), rel=1e-12)
    along = rows[0] / np.linalg.norm(rows)
    assert abs(np.vdot(beam.vector, along)) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_two_devices_have_a_closed_form(seed: int) -> None:
    rows = channels(2, 2 + seed % 3, seed, decades=0.4)
    a, b = (np.abs(rows) ** 2).sum(axis=1)
    c = abs(np.vdot(rows[0], rows[1]))
    best = a if c >= a else b if c >= b else (a * b - c**2) / (a + b - 2 * c)
    beam = receive_beam(rows, stream())
    assert beam.worst == pytest.approx(best, rel=1e-6)
    assert best <= beam.bound * (1 + 1e-12)


def test_parallel_channels_of_two_devices_are_limited_by_the_weaker() -> None:
    rows = np.array([[1.0, 2j, 3], [2j, -4, 6j]])
    assert receive_beam(rows, stream()).worst == pytest.approx(14)


@pytest.mark.parametrize("devices", [2, 4, 7])
def test_orthogonal_channels_have_a_closed_form(devices: int) -> None:
    base = np.linalg.qr(channels(devices, 8, devices).T)[0].T
    size = np.random.default_rng(devices).uniform(0.5, 2, devices)
    beam = receive_beam(size[:, None] * base, stream())
    assert 1 / beam.worst == pytest.approx((1 / size**2).sum(), rel=1e-6)
    assert beam.gap < 1e-6


def test_one_antenna_is_limited_by_the_weakest_device() -> None:
    rows = channels(30, 1, 1, decades=3)
    beam = receive_beam(rows, stream())
    assert beam.worst == pytest.approx((np.abs(rows) ** 2).min(), rel=1e-12)
    assert beam.gap < 1e-6


@pytest.mark.parametrize(("devices", "antennas"), [(3, 4), (6, 3), (12, 5)])
@pytest.mark.parametrize("decades", [0.0, 1.0])
def test_the_bound_is_that_of_a_convex_solver(devices: int, antennas: int, decades: float) -> None:
    rows = channels(devices, antennas, devices, decades)
    rows = rows / np.sqrt((np.abs(rows) ** 2).sum(axis=1).min())
    beam = receive_beam(rows, stream())
    assert beam.bound == pytest.approx(relaxation(rows), rel=1e-5)
    # Any multipliers prove a bound, whoever found them.
    proof = np.linalg.eigvalsh((rows.T * beam.multipliers) @ rows.conj())[-1]
    assert beam.multipliers.sum() == pytest.approx(1)
    assert (beam.multipliers >= 0).all()
    assert beam.bound == pytest.approx(proof, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_three_devices_reach_the_bound(seed: int) -> None:
    assert receive_beam(channels(3, 4, seed), stream()).gap < 1e-5


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 10**6), st.floats(0, 4))
def test_the_answer_is_what_it_says(devices: int, antennas: int, seed: int, decades: float) -> None:
    rows = 1e-6 * channels(devices, antennas, seed, decades)
    beam = receive_beam(rows, stream())
    assert np.linalg.norm(beam.vector) == pytest.approx(1)
    assert beam.worst == pytest.approx(reached(rows, beam.vector), rel=1e-9)
    assert beam.worst <= beam.bound
    draw = np.random.default_rng(seed)
    turns = np.exp(2j * np.pi * draw.random((devices, 1)))  # phases of devices do not matter
    assert receive_beam(turns * rows, stream()).bound == pytest.approx(beam.bound, rel=1e-6)
    parts = draw.standard_normal((2, 200, antennas))
    others = parts[0] + 1j * parts[1]
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    assert (np.abs(others.conj() @ rows.T) ** 2).min(axis=1).max() <= beam.worst * (1 + 1e-9)


def test_gaps_on_random_channels_are_small() -> None:
    """The relaxation is not tight: what is left is reported, and it bounds what is lost."""
    gaps = [receive_beam(channels(8, 4, seed, 0.5), stream()).gap for seed in range(40)]
    assert np.median(gaps) < 0.02
    assert max(gaps) < 0.3


def largest_set(rows: Any, target: float) -> int:
    """By trying all sets, the largest first, each from many starts."""
    for size in range(len(rows), 0, -1):
        for own in combinations(range(len(rows)), size):
            if receive_beam(rows[list(own)], stream()).worst >= target:
                return size
    return 0


@pytest.mark.parametrize("share", [0.3, 1.0, pytest.param(2.0, marks=pytest.mark.slow), 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_set_is_as_large_as_any(share: float, seed: int) -> None:
    rows = channels(7, 3, seed, 0.3)
    target = share * receive_beam(rows, stream()).worst
    chosen, beam = select_devices(rows, target, stream())
    assert reached(rows[chosen], beam.vector) >= target * (1 - 1e-9)
    assert len(chosen) == largest_set(rows, target)


def test_one_antenna_takes_exactly_the_strong_devices() -> None:
    rows = channels(20, 1, 3, 2)
    power = np.abs(rows[:, 0]) ** 2
    for target in np.quantile(power, [0.0, 0.3, 0.9]):
        chosen, _ = select_devices(rows, float(target), stream())
        assert chosen.tolist() == np.flatnonzero(power >= target).tolist()


def test_sets_grow_with_the_limit_and_with_antennas() -> None:
    rows = channels(10, 8, 4, 0.3)
    top = float((np.abs(rows) ** 2).sum(axis=1).min())
    sizes = [len(select_devices(rows, share * top, stream())[0]) for share in (0.9, 0.5, 0.2, 0.05)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    fewer = [len(select_devices(rows[:, :n], 0.2 * top, stream())[0]) for n in (1, 3, 8)]
    assert fewer == sorted(fewer)


def test_if_nobody_reaches_the_target_the_strongest_is_alone() -> None:
    rows = channels(5, 3, 0)
    chosen, beam = select_devices(rows, 1e9, stream())
    assert chosen.tolist() == [int((np.abs(rows) ** 2).sum(axis=1).argmax())]
    assert beam.worst == pytest.approx((np.abs(rows) ** 2).sum(axis=1).max())
