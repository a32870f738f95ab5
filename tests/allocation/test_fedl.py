"""FEDL's closed forms: against CVXPY, a scalar search, and their limits."""

from dataclasses import replace
from typing import Any

import cvxpy
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from camu.allocation.fedl import FedlProblem, solve_fedl
from camu.errors import InputError
from helpers.device_instances import REAL, random_devices

PRICES = [1e-6, 1e-3, 0.01, 0.1, 1.0, 100.0]


def problem_of(index: int, price: float, count: int = 6, **more: Any) -> FedlProblem:
    keys = random_devices(index, count)
    low = np.random.default_rng(index).uniform(0.05, 0.6, count)
    return FedlProblem(
        **keys,
        min_hz=low * keys["max_hz"],
        min_power_watts=1e-4 * keys["max_power_watts"],
        joules_per_second=price,
        **more,
    )


STATIC = [0.0, 0.2, np.array([0.0, 0.01, 0.1, 0.3, 1.0, 9.0])]


@pytest.mark.parametrize("static", STATIC, ids=["none", "equal", "own"])
@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("index", range(4))
def test_computing_is_that_of_a_convex_solver(index: int, price: float, static: Any) -> None:
    """In the times of the devices, in seconds: kappa C^3 / t^2 is convex by rule."""
    problem = problem_of(index, price, static_watts=static)
    answer = solve_fedl(problem)
    times, longest = cvxpy.Variable(problem.size, pos=True), cvxpy.Variable(pos=True)
    energy = cvxpy.multiply(problem.capacitance * problem.cycles**3, cvxpy.power(times, -2))
    energy = energy + cvxpy.multiply(problem.static_watts, times)
    cost = cvxpy.sum(energy) + price * longest
    limits = [
        times <= longest,
        times >= problem.cycles / problem.max_hz,
        times <= problem.cycles / problem.min_hz,
    ]
    program = cvxpy.Problem(cvxpy.Minimize(cost), limits)
    program.solve(solver=cvxpy.CLARABEL)
    own = problem.compute_joules(answer.cpu_hz).sum() + price * answer.details["compute_seconds"]
    assert own == pytest.approx(program.value, rel=1e-6)
    assert answer.gap < 1e-9


@pytest.mark.parametrize("extra", [{}, {"snr_gap": 2.0}, {"max_bits_per_hz": 4.0}, REAL])
@pytest.mark.parametrize("price", PRICES)
def test_sending_is_that_of_a_scalar_search(price: float, extra: dict[str, float]) -> None:
    problem = problem_of(4, price, **extra)
    answer = solve_fedl(problem)
    gap, most = extra.get("snr_gap", 1.0), extra.get("max_bits_per_hz", np.inf)
    share, circuit = extra.get("amplifier_efficiency", 1.0), extra.get("circuit_watts", 0.0)
    total = 0.0
    for k in range(problem.size):
        snr_per_watt = problem.gain[k] / (problem.noise_watts * gap)

        def rate(watts: float, snr_per_watt: float = snr_per_watt) -> float:
            return problem.bandwidth_hz * min(np.log2(1 + watts * snr_per_watt), most)

        def cost(log_watts: float, rate: Any = rate) -> float:
            watts = np.exp(log_watts)
            return (watts / share + circuit + price) * problem.payload_bits / rate(watts)

        ends = np.log([problem.min_power_watts[k], problem.max_power_watts[k]])
        found = minimize_scalar(cost, bounds=ends, method="bounded", options={"xatol": 1e-10})
        least = min(found.fun, *map(cost, ends))
        total += least
        own = cost(np.log(answer.power_watts[k]))
        assert own == pytest.approx(least, rel=1e-7)
    sent = answer.energy_joules - problem.compute_joules(answer.cpu_hz).sum()
    assert sent + price * answer.details["send_seconds"] == pytest.approx(total, rel=1e-7)
    assert answer.gap < 1e-9


def test_a_second_of_great_worth_means_full_speed_and_one_of_none_the_slowest() -> None:
    fast = solve_fedl(dear := problem_of(5, 1e9))
    slowest = (dear.cycles / dear.max_hz).max()
    assert fast.details["compute_seconds"] == pytest.approx(slowest)
    assert fast.power_watts == pytest.approx(dear.max_power_watts)
    slow = solve_fedl(cheap := problem_of(5, 1e-12))
    assert slow.cpu_hz == pytest.approx(cheap.min_hz)
    assert slow.power_watts == pytest.approx(cheap.min_power_watts)
    assert slow.binding == ("min_hz", "min_power_watts")


@pytest.mark.parametrize("extra", [{}, REAL])
def test_the_objective_is_what_its_parts_cost(extra: dict[str, float]) -> None:
    answer = solve_fedl(problem := problem_of(6, 0.05, **extra))
    snr = answer.power_watts * problem.gain / problem.noise_watts
    air = problem.payload_bits / (problem.bandwidth_hz * np.log2(1 + snr))
    computing = (problem.cycles / answer.cpu_hz).max()
    joules = problem.capacitance * problem.cycles * answer.cpu_hz**2
    joules = joules + extra.get("static_watts", 0.0) * problem.cycles / answer.cpu_hz
    drawn = answer.power_watts / extra.get("amplifier_efficiency", 1.0)
    joules = joules + (drawn + extra.get("circuit_watts", 0.0)) * air
    assert answer.device_joules == pytest.approx(joules)
    assert answer.round_seconds == pytest.approx(computing + air.sum())
    assert answer.objective == pytest.approx(joules.sum() + 0.05 * (computing + air.sum()))


def test_limits_in_the_wrong_order_are_refused() -> None:
    problem = problem_of(7, 1.0)
    with pytest.raises(InputError, match=r"devices\[0\].min_hz is above max_hz"):
        replace(problem, min_hz=2 * problem.max_hz)
    again = FedlProblem.from_dict(problem.to_dict())
    assert solve_fedl(again).objective == solve_fedl(problem).objective
