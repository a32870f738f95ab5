"""Bandwidth, power and frequency under OFDMA: against CVXPY, SLSQP and closed forms."""

import time
from dataclasses import replace
from typing import Any

import cvxpy
import numpy as np
import pytest
from scipy.optimize import minimize

from camu.allocation.ofdma import OfdmaEnergy, OfdmaTime
from camu.allocation.ofdma_exact import solve_ofdma_energy, solve_ofdma_time
from camu.errors import CamuError, InputError
from helpers.device_instances import REAL, random_devices, round_joules


def problem_of(index: int, count: int, slack: float = 2.0, **keys: Any) -> OfdmaEnergy:
    """A random instance whose deadline is a multiple of the least."""
    loose = OfdmaEnergy(**random_devices(index, count), deadline_seconds=1.0, **keys)
    return replace(loose, deadline_seconds=slack * loose.least_seconds)


def keys_of(problem: OfdmaEnergy) -> dict[str, Any]:
    return {**vars(problem)}


def air_of(problem: OfdmaEnergy, answer: Any) -> Any:
    return problem.deadline_seconds - problem.cycles / answer.cpu_hz


@pytest.mark.parametrize("slack", [1.01, 1.3, 3.0, 30.0])
@pytest.mark.parametrize("index", range(4))
def test_the_answer_keeps_every_limit_and_costs_what_it_says(index: int, slack: float) -> None:
    problem = problem_of(index, 7, slack)
    answer = solve_ofdma_energy(problem)
    air = air_of(problem, answer)
    snr = answer.power_watts * problem.gain / (4e-21 * answer.bandwidth_hz)
    assert air * answer.bandwidth_hz * np.log2(1 + snr) == pytest.approx(3e5, rel=1e-6)
    assert answer.bandwidth_hz.sum() <= problem.bandwidth_hz * (1 + 1e-12)
    assert (answer.cpu_hz <= problem.max_hz * (1 + 1e-12)).all()
    assert (answer.power_watts <= problem.max_power_watts * (1 + 1e-12)).all()
    assert answer.device_seconds == pytest.approx(problem.deadline_seconds, rel=1e-9)
    own = round_joules(keys_of(problem), problem.deadline_seconds, air, answer.bandwidth_hz)
    assert answer.device_joules == pytest.approx(own, rel=1e-9)
    assert answer.energy_joules == pytest.approx(own.sum(), rel=1e-9)
    assert answer.gap < 1e-9


def sending(problem: OfdmaEnergy, area: Any) -> Any:
    """n u (e^(nats / u) - 1) of u = 1e5 area for CVXPY: its epigraph, with the exponential cone."""
    top = cvxpy.Variable(problem.size)
    cone = cvxpy.ExpCone(cvxpy.Constant(np.full(problem.size, problem.nats / 1e5)), area, top)
    return cvxpy.multiply(problem.noise * 1e5, top - area), cone


@pytest.mark.parametrize("slack", [1.05, 2.0, 10.0])
@pytest.mark.parametrize("index", range(3))
def test_bandwidths_and_times_are_each_those_of_a_convex_solver(index: int, slack: float) -> None:
    """With t given the best b, and with b given the best t: both are convex programs by rule."""
    problem = problem_of(index, 6, slack)
    answer = solve_ofdma_energy(problem)
    air, band = air_of(problem, answer), answer.bandwidth_hz
    deadline, unit = problem.deadline_seconds, 1e3 / answer.objective

    own = cvxpy.Variable(problem.size, pos=True)
    cost, cone = sending(problem, cvxpy.multiply(air, own))
    power = cvxpy.multiply(1 / air, cost)
    limits = [cone, cvxpy.sum(own) * 1e5 <= problem.bandwidth_hz, power <= problem.max_power_watts]
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cost) * unit), limits)
    program.solve(solver=cvxpy.CLARABEL)
    computing = problem.compute_joules(answer.cpu_hz).sum()
    assert program.value / unit + computing == pytest.approx(answer.objective, rel=1e-6)

    times = cvxpy.Variable(problem.size, pos=True)
    cost, cone = sending(problem, cvxpy.multiply(band / 1e5, times))
    squares = cvxpy.power(deadline - times, -2)
    computing = cvxpy.sum(cvxpy.multiply(problem.capacitance * problem.cycles**3, squares))
    limits = [
        cone,
        times <= deadline - problem.cycles / problem.max_hz,
        cost <= cvxpy.multiply(problem.max_power_watts, times),
    ]
    program = cvxpy.Problem(cvxpy.Minimize((cvxpy.sum(cost) + computing) * unit), limits)
    program.solve(solver=cvxpy.CLARABEL)
    assert program.value / unit == pytest.approx(answer.objective, rel=1e-6)


@pytest.mark.parametrize("extra", [{}, {"snr_gap": 3.0}, {"max_bits_per_hz": 2.0}])
@pytest.mark.parametrize("slack", [1.05, 2.0])
def test_the_answer_is_that_of_a_search_over_times_and_bandwidths_at_once(
    slack: float, extra: dict[str, float]
) -> None:
    problem = problem_of(5, 4, slack, **extra)
    answer = solve_ofdma_energy(problem)
    deadline, keys = problem.deadline_seconds, keys_of(problem)
    most = extra.get("max_bits_per_hz", np.inf)

    def spent(point: Any) -> Any:
        return round_joules(keys, deadline, *np.exp(point).reshape(2, 4))

    def spare(point: Any) -> Any:
        air, band = np.exp(point).reshape(2, 4)
        computing = problem.capacitance * problem.cycles * (problem.cycles / (deadline - air)) ** 2
        watts = (spent(point) - computing) / air
        bits = [most / (3e5 / air / band)] if np.isfinite(most) else []
        room = [problem.bandwidth_hz / band.sum()], problem.max_power_watts / watts, *bits
        return np.log(np.concatenate(room))

    last = deadline - problem.cycles / problem.max_hz
    ends = np.log([last, np.full(4, problem.bandwidth_hz)]).ravel()
    start = np.log([0.9 * last, np.full(4, problem.bandwidth_hz / 4)]).ravel()
    found = minimize(
        lambda point: float(np.log(spent(point).sum())),
        start,
        method="SLSQP",
        bounds=[(end - 4, end) for end in ends],
        constraints={"type": "ineq", "fun": spare},
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert spare(found.x).min() > -1e-8
    joules = float(spent(found.x).sum())
    assert answer.objective == pytest.approx(joules, rel=1e-6)
    assert answer.lower_bound <= joules * (1 + 1e-7)


REAL_WORLDS = [
    {"circuit_watts": 0.4},
    {"amplifier_efficiency": 0.3},
    {"static_watts": 0.2},
    REAL,
    {**REAL, "max_bits_per_hz": 2.0, "snr_gap": 2.0},
    {**REAL, "static_watts": np.array([0.0, 0.05, 0.3, 5.0])},
]


@pytest.mark.parametrize("extra", REAL_WORLDS)
@pytest.mark.parametrize(("index", "slack"), [(5, 1.05), (6, 1.5), (7, 6.0)])
def test_with_circuits_amplifier_and_static_power_it_is_that_of_a_search_over_all_times(
    index: int, slack: float, extra: dict[str, Any]
) -> None:
    """Over the times of sending and of computing, and the bandwidths, at once."""
    problem = problem_of(index, 4, slack, **extra)
    answer = solve_ofdma_energy(problem)
    deadline, keys = problem.deadline_seconds, keys_of(problem)
    most = extra.get("max_bits_per_hz", np.inf)

    def spent(point: Any) -> Any:
        air, band, computing = np.exp(point).reshape(3, 4)
        return round_joules(keys, deadline, air, band, computing)

    def spare(point: Any) -> Any:
        air, band, computing = np.exp(point).reshape(3, 4)
        bits = 3e5 / (air * band)
        watts = keys.get("snr_gap", 1.0) * 4e-21 * band * (2**bits - 1) / problem.gain
        code = [most / bits] if np.isfinite(most) else []
        room = [problem.bandwidth_hz / band.sum()], problem.max_power_watts / watts
        return np.log(np.concatenate([*room, deadline / (air + computing), *code]))

    shortest = problem.cycles / problem.max_hz
    last = np.log(deadline - shortest)
    low = np.log([np.exp(last - 8), np.full(4, problem.bandwidth_hz / 1e4), shortest]).ravel()
    high = np.log([np.exp(last), np.full(4, problem.bandwidth_hz), np.full(4, deadline)]).ravel()
    first = answer.device_seconds - problem.cycles / answer.cpu_hz
    near = np.log([first, answer.bandwidth_hz, problem.cycles / answer.cpu_hz]).ravel()
    equal = [0.9 * (deadline - shortest), np.full(4, problem.bandwidth_hz / 4), shortest]
    found = minimize(
        lambda point: float(np.log(spent(point).sum())),
        np.clip(np.log(equal).ravel(), low, high),
        method="SLSQP",
        bounds=list(zip(low, high, strict=True)),
        constraints={"type": "ineq", "fun": spare},
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert spare(found.x).min() > -1e-8
    assert answer.objective == pytest.approx(float(spent(found.x).sum()), rel=1e-7)
    assert answer.objective == pytest.approx(float(spent(near).sum()), rel=1e-9)
    assert spare(near).min() > -1e-9
    assert answer.gap < 1e-9


def test_a_device_ends_before_a_late_deadline_where_time_costs_joules() -> None:
    problem = problem_of(2, 5, 50.0, **REAL)
    answer = solve_ofdma_energy(problem)
    assert answer.round_seconds < 0.5 * problem.deadline_seconds
    assert "deadline_seconds" not in answer.binding
    best = np.cbrt(0.2 / (2 * problem.capacitance))
    assert answer.cpu_hz == pytest.approx(np.minimum(best, problem.max_hz), rel=1e-12)
    later = replace(problem, deadline_seconds=2 * problem.deadline_seconds)
    assert solve_ofdma_energy(later).objective == pytest.approx(answer.objective, rel=1e-12)


@pytest.mark.parametrize("extra", REAL_WORLDS[:4])
def test_the_shortest_round_keeps_a_budget_that_counts_everything(extra: dict[str, Any]) -> None:
    problem = problem_of(7, 4, 1.2, **extra)
    energy = solve_ofdma_energy(problem).objective
    timed = OfdmaTime(**random_devices(7, 4), energy_joules=energy, **extra)
    answer = solve_ofdma_time(timed)
    assert answer.objective == pytest.approx(problem.deadline_seconds, rel=1e-6)
    assert answer.energy_joules <= energy * (1 + 1e-9)
    assert answer.gap < 1e-8
    least = solve_ofdma_energy(replace(problem, deadline_seconds=1e7)).objective
    with pytest.raises(CamuError, match="however long it takes; give more"):
        solve_ofdma_time(replace(timed, energy_joules=least * (1 - 1e-4)))


def test_equal_devices_share_the_band_equally() -> None:
    keys = random_devices(1, 8)
    for name in ("cycles", "capacitance", "max_hz", "gain", "max_power_watts"):
        keys[name] = np.full(8, keys[name][0])
    answer = solve_ofdma_energy(OfdmaEnergy(**keys, deadline_seconds=2.0))
    assert answer.bandwidth_hz == pytest.approx(keys["bandwidth_hz"] / 8, rel=1e-12)


def test_without_noise_devices_compute_all_the_time() -> None:
    times = []
    for noise in (1.0, 1e-6, 1e-12):
        problem = problem_of(2, 5, 4.0)
        quiet = replace(problem, noise_watts=noise * problem.noise_watts)
        times.append(air_of(quiet, solve_ofdma_energy(quiet)).max())
    assert times[0] > times[1] > times[2]
    assert times[2] < 0.25 * times[0]  # it falls as 1 / log of the noise


def test_devices_without_work_send_until_the_deadline() -> None:
    problem = replace(problem_of(3, 4), cycles=np.zeros(4))
    answer = solve_ofdma_energy(problem)
    air = answer.device_seconds
    assert air == pytest.approx(problem.deadline_seconds)
    assert answer.gap < 1e-9


def test_a_code_that_carries_less_costs_no_less() -> None:
    problem = problem_of(4, 6, 1.5)
    limited = solve_ofdma_energy(replace(problem, max_bits_per_hz=3.0))
    rate = problem.payload_bits / air_of(problem, limited) / limited.bandwidth_hz
    assert rate.max() <= 3.0 * (1 + 1e-9)
    assert "max_bits_per_hz" in limited.binding
    assert limited.objective > solve_ofdma_energy(problem).objective


def test_a_deadline_that_is_too_short_is_refused_with_the_least() -> None:
    problem = problem_of(6, 5)
    least = problem.least_seconds
    with pytest.raises(CamuError, match=f"deadline_seconds = .* takes {least:.6g} s"):
        solve_ofdma_energy(replace(problem, deadline_seconds=0.999 * least))
    tight = solve_ofdma_energy(replace(problem, deadline_seconds=least * (1 + 1e-8)))
    assert tight.power_watts == pytest.approx(problem.max_power_watts, rel=1e-3)
    assert tight.cpu_hz == pytest.approx(problem.max_hz, rel=1e-3)
    assert tight.gap < 1e-6


@pytest.mark.parametrize("slack", [1.001, 1.5, 4.0, 40.0])
def test_the_shortest_round_is_the_deadline_at_which_the_budget_is_the_least_energy(
    slack: float,
) -> None:
    problem = problem_of(7, 6, slack)
    energy = solve_ofdma_energy(problem).objective
    answer = solve_ofdma_time(OfdmaTime(**random_devices(7, 6), energy_joules=energy))
    assert answer.objective == pytest.approx(problem.deadline_seconds, rel=1e-6)
    assert answer.lower_bound <= problem.deadline_seconds * (1 + 1e-9)
    assert answer.energy_joules <= energy * (1 + 1e-9)
    assert answer.gap < 1e-8
    assert "energy_joules" in answer.binding


def test_with_energy_to_spare_the_round_is_the_least_there_is() -> None:
    keys = random_devices(8, 6)
    problem = OfdmaTime(**keys, energy_joules=1e3)
    answer = solve_ofdma_time(problem)
    assert answer.objective == pytest.approx(problem.least_seconds, rel=2e-9)
    assert "energy_joules" not in answer.binding
    with pytest.raises(CamuError, match=r"energy_joules = .* give more"):
        solve_ofdma_time(replace(problem, energy_joules=problem.least_joules))


def test_a_thousand_devices_take_less_than_a_second() -> None:
    problem = problem_of(9, 1000)
    began = time.process_time()
    assert solve_ofdma_energy(problem).gap < 1e-9
    assert time.process_time() - began < 1.0


def test_the_document_of_a_problem_gives_it_back_and_names_wrong_keys() -> None:
    problem = problem_of(10, 3, max_bits_per_hz=6.0)
    document = problem.to_dict()
    ideal = ("circuit_watts", "amplifier_efficiency")  # documents of earlier versions have none
    older = {name: value for name, value in document.items() if name not in ideal}
    older["devices"] = [
        {name: value for name, value in row.items() if name != "static_watts"}
        for row in document["devices"]
    ]
    assert OfdmaEnergy.from_dict(older).to_dict() == document
    again = OfdmaEnergy.from_dict(document)
    assert again.to_dict() == document
    assert solve_ofdma_energy(again).objective == solve_ofdma_energy(problem).objective
    for wrong, text in (
        ({"deadline_seconds": 0}, "deadline_seconds is 0; it must be a finite positive number"),
        ({"snr_gap": 0.5}, "snr_gap is 0.5; it must be a finite number from 1"),
        ({"devices": []}, "devices is .*; it must be a list with at least one device"),
        ({"devices": [{"gain": 1}]}, r"devices\[0\].cycles is missing"),
        ({"deadline": 1}, "deadline is not a known key"),
    ):
        with pytest.raises(InputError, match=text):
            OfdmaEnergy.from_dict({**document, **wrong})
    with pytest.raises(InputError, match=r"devices\[1\].gain is -1.0"):
        replace(problem, gain=np.array([1.0, -1.0, 1.0]))
    with pytest.raises(InputError, match="cycles has shape"):
        replace(problem, cycles=np.ones(2))
