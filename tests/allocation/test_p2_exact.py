"""P2: exact against brute force, a certificate that never lies, decisions that make sense."""

from dataclasses import replace

import numpy as np
import pytest

from camu.allocation.p2 import P2Problem
from camu.allocation.p2_dual import best_ratio, best_ready
from camu.allocation.p2_exact import solve_p2
from camu.errors import CamuError, InputError
from helpers.p2_instances import brute_force, random_p2

CIRCUITS = {"circuit_watts": 0.3, "amplifier_efficiency": 0.35}


def check(index: int, **changes: float) -> bool:
    """Whether the instance has an answer; if it has, it must be the one of brute force."""
    problem = random_p2(index, **changes)
    expected = brute_force(problem)
    if not np.isfinite(expected):
        with pytest.raises(CamuError):
            solve_p2(problem)
        return False
    answer = solve_p2(problem)
    assert answer.objective == pytest.approx(expected, rel=1e-6), index
    assert answer.lower_bound <= expected * (1 + 1e-9), index
    assert answer.energy_joules <= problem.energy_joules * (1 + 1e-9)
    assert answer.run_seconds <= problem.seconds * (1 + 1e-9)
    assert answer.gap < 1e-7
    return True


def test_the_answer_is_that_of_brute_force() -> None:
    assert sum(check(index) for index in range(6)) >= 4


def test_with_circuit_power_the_answer_is_that_of_brute_force() -> None:
    assert sum(check(index, **CIRCUITS) for index in range(20, 26)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_100_instances_equal_brute_force(block: int) -> None:
    solved = sum(check(index) for index in range(1000 + 27 * block, 1000 + 27 * (block + 1)))
    assert solved >= 25  # 4 times 25 are 100


def test_the_frequencies_are_the_lowest_that_are_in_time() -> None:
    problem = random_p2(3, clusters=3)
    answer = solve_p2(problem)
    seconds = problem.cycles / answer.cpu_hz
    ready = answer.updates[problem.cluster] * (seconds + problem.gather_seconds[problem.cluster])
    assert ready == pytest.approx(answer.ready_seconds)
    assert (answer.cpu_hz <= problem.max_hz * (1 + 1e-12)).all()
    joules = problem.capacitance * problem.cycles * answer.cpu_hz**2
    computing = float((answer.updates[problem.cluster] * joules).sum())
    air = problem.air_scale / np.log1p(answer.power_watts * problem.snr_per_watt)
    sending = float((answer.power_watts * air).sum())
    gathering = float((answer.updates * problem.gather_joules).sum())
    assert answer.rounds * (computing + sending + gathering) == pytest.approx(answer.energy_joules)
    assert answer.rounds * (answer.ready_seconds + air.sum()) == pytest.approx(answer.run_seconds)


def test_the_prices_are_the_slopes_of_the_objective() -> None:
    problem = random_p2(10, clusters=3, max_rounds=1, energy_joules=0.5, seconds=4.0)
    answer = solve_p2(problem)
    assert {"energy_joules", "seconds"} <= set(answer.binding)
    for key, price in (
        ("energy_joules", answer.joule_price),
        ("seconds", answer.second_price),
    ):
        budget, step = getattr(problem, key), 1e-4 * getattr(problem, key)
        more = solve_p2(replace(problem, **{key: budget + step})).objective
        less = solve_p2(replace(problem, **{key: budget - step})).objective
        assert (less - more) / (2 * step) == pytest.approx(price, rel=1e-2)


def test_more_of_either_budget_never_does_harm() -> None:
    problem = random_p2(5, clusters=3, max_rounds=40)
    values = []
    for joules in (1, 2, 4):
        for seconds in (1, 2, 4):
            changed = replace(
                problem,
                energy_joules=joules * problem.energy_joules,
                seconds=seconds * problem.seconds,
            )
            values.append(solve_p2(changed).objective)
    table = np.array(values).reshape(3, 3)
    assert (np.diff(table, axis=0) <= 1e-8 * table[:-1]).all()
    assert (np.diff(table, axis=1) <= 1e-8 * table[:, :-1]).all()


def test_clusters_that_pull_aside_make_equal_updates() -> None:
    problem = random_p2(2, clusters=4, max_rounds=30, divergence=np.full(4, 2.0))
    problem = replace(problem, max_updates=np.full(4, 4))
    assert len(set(solve_p2(problem).updates.tolist())) == 1


@pytest.mark.parametrize("size", [30, 400])
def test_larger_instances_come_with_a_small_gap(size: int) -> None:
    problem = random_p2(1, clusters=size, max_rounds=60)
    answer = solve_p2(problem)
    assert answer.lower_bound <= answer.objective
    assert answer.gap < 1e-4


def test_scalar_problems_are_solved() -> None:
    grid = np.exp(np.linspace(np.log(1e-4), np.log(50.0), 400_001))
    for worth, joule, second in (
        (1e-3, 0.2, 0.05),
        (2.0, 0.1, 0.0),
        (0.0, 1.0, 3.0),
        (1.0, 0.0, 1),
    ):
        value = worth / grid + joule * grid / np.log1p(grid) + second / np.log1p(grid)
        one = np.array([1.0])
        found = best_ratio(worth * one, joule * one, second * one, 50 * one)[0]
        assert found == pytest.approx(grid[value.argmin()], rel=1e-4)
    cube, offset = np.array([[0.3, 0.01]]), np.array([[0.1, 0.5]])
    moments = np.linspace(0.8, 9.0, 400_001)
    value = (cube[0] / (moments[:, None] - offset[0]) ** 2).sum(axis=1) + 0.02 * moments
    found = best_ready(cube, offset, 0.02, np.array([0.8]), 9.0)[0]
    assert found == pytest.approx(moments[value.argmin()], rel=1e-4)


def test_a_problem_survives_its_file() -> None:
    problem = random_p2(4)
    again = P2Problem.from_dict(problem.to_dict())
    assert again.to_dict() == problem.to_dict()
    assert solve_p2(again).objective == solve_p2(problem).objective


def test_the_bound_is_the_recursion_of_its_rounds() -> None:
    problem = random_p2(6, clusters=3)
    updates, power = np.minimum([1, 2, 2], problem.max_updates), np.array([0.01, 0.2, 0.4])
    descent, error = problem.recursion(updates, power)
    gap = problem.initial_gap
    for rounds in range(1, 6):
        gap = (1 - float(descent)) * gap + float(error)
        assert float(problem.objective(rounds, updates, power)) == pytest.approx(gap)
        assert problem.gap_derivatives(rounds, float(descent), float(error)).gap == pytest.approx(
            gap
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": 1e-3}, "one round takes at least"),
        ({"energy_joules": 1e-6}, "energy_joules"),
    ],
)
def test_budgets_that_are_too_small_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(CamuError, match=message):
        solve_p2(replace(random_p2(4), **change))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("learning_rate", 3.0, "above 2 / smoothness"),
        ("weight", [0.4, 0.4], "add up to 1"),
        ("gain", [0.0, 1.0], r"clusters\[0\].gain"),
        ("variance", [-1.0, 1.0], r"clusters\[0\].variance"),
        ("convexity", 2.0, "convexity"),
        ("seconds", float("nan"), "seconds"),
    ],
)
def test_values_without_meaning_are_refused(key: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        random_p2(0, clusters=2, **{key: value})


def test_mistakes_in_the_file_name_the_key() -> None:
    document = random_p2(0, clusters=2).to_dict()
    document["clusters"][1]["devices"][0]["max_herz"] = 1e9
    with pytest.raises(InputError, match=r"clusters\[1\].devices\[0\].max_herz.*max_hz"):
        P2Problem.from_dict(document)
    document = random_p2(0, clusters=2).to_dict()
    del document["clusters"][0]["gain"]
    with pytest.raises(InputError, match=r"clusters\[0\].gain is missing"):
        P2Problem.from_dict(document)
    document = random_p2(0, clusters=2).to_dict() | {"seconds": "long"}
    with pytest.raises(InputError, match='seconds is "long"; it must be a finite positive'):
        P2Problem.from_dict(document)
