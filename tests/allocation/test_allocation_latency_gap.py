import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.allocation.latency_gap import (
    minimise_arrival_spread,
    minimise_latency_gap,
    solve_latency_gap,
)
from camu.allocation.p1 import Problem
from camu.arrays import send_in_turn
from camu.errors import CamuError, InputError
from camu.seeding import derive
from helpers.allocation_instances import random_problem


def own_bands(ready, transmit):
    return ready + transmit


WAYS = [(minimise_latency_gap, own_bands), (minimise_arrival_spread, send_in_turn)]


def brute_force(seconds, transmit, limit, joules, budget, arrive):
    best = np.inf
    for extra in itertools.product(*(range(n + 1) for n in limit)):
        if (joules * np.array(extra)).sum() <= budget:
            finish = arrive(seconds * (1 + np.array(extra)), transmit)
            best = min(best, finish.max() - finish.min())
    return best


@pytest.mark.parametrize(("minimise", "arrive"), WAYS)
def test_the_gap_equals_brute_force(
    minimise: Callable[..., Any], arrive: Callable[..., Any]
) -> None:
    for index in range(300):
        rng = derive(1, "own-latency", index).numpy()
        size = int(rng.integers(1, 6))
        # Times on a grid make ties and gaps of exactly zero common.
        seconds = rng.integers(1, 9, size) / 4
        transmit = rng.integers(0, 5, size) / 4
        limit = rng.integers(0, 5, size)
        joules = rng.uniform(0.1, 1.0, size)
        budget = float(rng.choice([0.0, 0.5, 2.0, 100.0]))
        extra, gap = minimise(seconds, transmit, limit, joules, budget)
        finish = arrive(seconds * (1 + extra), transmit)
        assert gap == pytest.approx(finish.max() - finish.min(), abs=1e-12)
        assert gap == pytest.approx(
            brute_force(seconds, transmit, limit, joules, budget, arrive), abs=1e-12
        )
        assert (joules * extra).sum() <= budget
        assert ((extra >= 0) & (extra <= limit)).all()


def test_the_spread_is_that_of_the_queue_to_the_last_bit() -> None:
    for index in range(50):
        rng = derive(2, "own-latency", index).numpy()
        seconds, transmit = rng.uniform(0.1, 2.0, 8), rng.uniform(0.0, 0.7, 8)
        extra, spread = minimise_arrival_spread(seconds, transmit, [9] * 8, [1.0] * 8, 40.0)
        assert spread == np.ptp(send_in_turn(seconds * (1 + extra), transmit))


TIMES = st.lists(
    st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 1.0), st.integers(0, 3)), min_size=1, max_size=4
)


@pytest.mark.parametrize(("minimise", "arrive"), WAYS)
@given(times=TIMES, budget=st.floats(0.0, 6.0))
def test_no_count_within_the_budget_is_better_for_any_times(
    minimise: Callable[..., Any],
    arrive: Callable[..., Any],
    times: list[tuple[float, float, int]],
    budget: float,
) -> None:
    seconds, transmit, limit = (np.array(column) for column in zip(*times, strict=True))
    joules = np.linspace(0.3, 1.2, len(times))
    _, gap = minimise(seconds, transmit, limit, joules, budget)
    expected = brute_force(seconds, transmit, limit, joules, budget, arrive)
    assert gap == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("minimise", [minimise for minimise, _ in WAYS])
@given(times=TIMES, exponent=st.integers(-20, 20))
def test_the_unit_of_time_changes_nothing(
    minimise: Callable[..., Any], times: list[tuple[float, float, int]], exponent: int
) -> None:
    seconds, transmit, limit = (np.array(column) for column in zip(*times, strict=True))
    joules, scale = np.ones(len(times)), 2.0**exponent
    extra, gap = minimise(seconds, transmit, limit, joules, 4.0)
    again, scaled = minimise(scale * seconds, scale * transmit, limit, joules, 4.0)
    assert extra.tolist() == again.tolist()
    assert scaled == scale * gap


@pytest.mark.parametrize(("minimise", "arrive"), WAYS)
def test_clusters_that_are_alike_get_equal_counts_and_one_alone_has_no_gap(
    minimise: Callable[..., Any], arrive: Callable[..., Any]
) -> None:
    alike = np.full(6, 0.7)
    extra, gap = minimise(alike, 0.2 * alike, np.full(6, 4), alike, 100.0)
    assert len(set(extra.tolist())) == 1
    assert gap == pytest.approx(0.0 if arrive is own_bands else 5 * 0.2 * 0.7)
    assert minimise([0.7], [0.2], [4], [1.0], 100.0)[1] == 0


def test_fast_clusters_fill_the_wait_for_the_slow_one() -> None:
    extra, gap = minimise_latency_gap([1.0, 4.0, 2.0], [0.0] * 3, [9, 9, 9], [0.1] * 3, 100.0)
    assert extra.tolist() == [3, 0, 1]
    assert gap == 0


def with_seconds(problem):
    document = problem.to_dict()
    for index, cluster in enumerate(document["clusters"]):
        cluster["compute_seconds"] = 0.1 * (1 + index)
    return Problem.from_dict(document)


def test_the_answer_is_feasible_and_measured_against_the_optimum() -> None:
    problem = with_seconds(random_problem(8, clusters=4, tightness=1.0))
    problem = replace(problem, max_power_watts=np.full(4, 0.3))
    answer = solve_latency_gap(problem)
    assert (answer.power_watts == 0.3).all()
    assert answer.solver == "latency"
    assert problem.violations(answer.power_watts, answer.extra_updates) == []
    assert 0 <= answer.gap < 1
    assert answer.to_dict()["latency_gap_seconds"] >= 0


def test_what_the_solver_misses_is_named() -> None:
    problem = random_problem(8, clusters=4, tightness=1.0)
    with pytest.raises(InputError, match="compute_seconds"):
        solve_latency_gap(problem)
    poor = with_seconds(random_problem(8, clusters=4, tightness=1e-3))
    with pytest.raises(CamuError, match="needs at least") as caught:
        solve_latency_gap(poor)
    document = poor.to_dict()
    document["energy_joules"] = float(str(caught.value).split("needs at least ")[1].split(" J")[0])
    solve_latency_gap(Problem.from_dict(document))


@pytest.mark.parametrize("total_cap", [False, True])
def test_powers_start_at_each_leaders_own_cap(total_cap: bool) -> None:
    problem = with_seconds(
        random_problem(8, clusters=4, tightness=1e3, own_caps=True, total_cap=total_cap)
    )
    answer = solve_latency_gap(problem)
    assert problem.violations(answer.power_watts, answer.extra_updates) == []
    if not total_cap:
        assert answer.power_watts.tolist() == problem.max_power_watts.tolist()


def test_equal_powers_respect_the_total_cap() -> None:
    document = with_seconds(random_problem(8, clusters=4, tightness=2.0)).to_dict()
    document["max_total_power_watts"] = 0.9
    problem = Problem.from_dict(document)
    answer = solve_latency_gap(problem)
    assert problem.violations(answer.power_watts, answer.extra_updates, tolerance=1e-12) == []
