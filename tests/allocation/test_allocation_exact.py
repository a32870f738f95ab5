from dataclasses import replace
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.allocation import p1_exact
from camu.allocation.p1 import Problem
from camu.allocation.p1_exact import solve_exact
from camu.allocation.p1_powers import Transmit
from camu.errors import CamuError
from helpers.allocation_instances import (
    brute_force,
    cheapest,
    every_update,
    random_problem,
    slsqp,
)


def check(problem, answer, optimum):
    assert answer.objective == pytest.approx(optimum, rel=1e-6)
    assert problem.violations(answer.power_watts, answer.extra_updates, tolerance=0.0) == []
    assert answer.objective == problem.objective(answer.power_watts, answer.extra_updates)
    assert answer.lower_bound <= optimum * (1 + 1e-9)
    relaxed, bound = (answer.details[f"relaxation_{key}"] for key in ("objective", "lower_bound"))
    assert bound <= optimum * (1 + 1e-9)
    assert 0 <= 1 - bound / relaxed < 1e-6
    with patch.object(p1_exact, "BRANCH_UP_TO", 0):
        rounded = solve_exact(problem)
    assert rounded.details["integer"] == "round"
    assert rounded.lower_bound <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= rounded.objective
    assert problem.violations(rounded.power_watts, rounded.extra_updates, tolerance=0.0) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_branch_and_bound_equals_brute_force(block: int) -> None:
    for index in range(25 * block, 25 * block + 25):
        problem = random_problem(index, penalty=index % 4 >= 2)
        answer = solve_exact(problem)
        assert answer.details["integer"] == "branch"
        check(problem, answer, brute_force(problem))
        assert answer.gap < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_each_leader_keeps_its_own_cap_and_the_answer_equals_brute_force(block: int) -> None:
    some_capped = []
    for index in range(4000 + 25 * block, 4025 + 25 * block):
        problem = random_problem(index, penalty=index % 4 >= 2, own_caps=True)
        answer = solve_exact(problem)
        assert answer.details["integer"] == "branch"
        check(problem, answer, brute_force(problem))
        capped = answer.power_watts >= problem.max_power_watts * (1 - 1e-9)
        some_capped.append(capped.any() and not capped.all())
    assert any(some_capped)


@pytest.mark.parametrize("own_caps", [False, True])
@pytest.mark.parametrize("total_cap", [False, True])
def test_the_optimum_equals_slsqp_over_every_count(total_cap: bool, own_caps: bool) -> None:
    for index in range(1000, 1012):
        problem = random_problem(
            index,
            clusters=3,
            max_extra=2,
            total_cap=total_cap,
            penalty=index % 4 >= 2,
            own_caps=own_caps,
        )
        values = [slsqp(problem, extra) for extra in every_update(problem)]
        check(problem, solve_exact(problem), min(v for v in values if v is not None))


@pytest.mark.parametrize("own_caps", [False, True])
def test_the_relaxation_is_certified_on_larger_instances_with_every_cap(own_caps: bool) -> None:
    for index in range(40):
        problem = random_problem(
            2000 + index, 30, 4, index % 3 == 0, index % 4 >= 2, own_caps=own_caps
        )
        answer = solve_exact(problem)
        found = answer.details
        assert 0 <= 1 - found["relaxation_lower_bound"] / found["relaxation_objective"] < 1e-6
        assert answer.lower_bound <= answer.objective
        assert problem.violations(answer.power_watts, answer.extra_updates, tolerance=0.0) == []


def test_a_loose_budget_leaves_the_caps_alone_binding() -> None:
    problem = random_problem(3, clusters=4, tightness=1e3)
    answer = solve_exact(problem)
    assert np.allclose(answer.power_watts, problem.max_power_watts)
    useful = problem.descent > 0
    assert (answer.extra_updates == np.where(useful, problem.extra_limit, 0)).all()
    assert answer.shadow_price == 0
    assert "energy_joules" not in answer.binding


@given(
    st.lists(st.floats(1e-3, 10.0), min_size=2, max_size=5),
    st.integers(0, 500),
    st.floats(0.01, 3.0),
)
def test_any_caps_give_a_feasible_certified_answer_that_higher_caps_never_worsen(
    caps: list[float], index: int, tightness: float
) -> None:
    document = random_problem(index, clusters=len(caps), tightness=tightness).to_dict()
    for cluster, cap in zip(document["clusters"], caps, strict=True):
        cluster["max_power_watts"] = cap
    problem = Problem.from_dict(document)
    answer = solve_exact(problem)
    assert problem.violations(answer.power_watts, answer.extra_updates, tolerance=0.0) == []
    assert answer.gap < 1e-6
    for cluster in document["clusters"]:
        cluster["max_power_watts"] *= 2
    higher = solve_exact(Problem.from_dict(document))
    assert higher.objective <= answer.objective * (1 + 1e-8)


def test_a_loose_budget_lets_every_leader_send_at_its_own_cap() -> None:
    problem = random_problem(3, clusters=4, tightness=1e3, own_caps=True)
    answer = solve_exact(problem)
    assert len(set(problem.max_power_watts)) == 4
    assert np.allclose(answer.power_watts, problem.max_power_watts)
    assert "max_power_watts" in answer.binding


def test_harmful_updates_are_never_bought() -> None:
    problem = random_problem(5, clusters=4, max_extra=3, tightness=3.0)
    values = problem.to_dict()
    for cluster in values["clusters"]:
        cluster["max_extra_updates"], cluster["multi_update"] = 3, True
    values["clusters"][1]["descent"] = -1e-4
    assert solve_exact(Problem.from_dict(values)).extra_updates[1] == 0


def test_the_shadow_price_is_the_slope_of_the_optimum() -> None:
    for index in (11, 12, 13, 14):
        problem = random_problem(index, clusters=4, max_extra=0, tightness=0.3)
        step = 1e-5 * problem.energy_joules
        around = []
        for sign in (-1, 1):
            document = problem.to_dict()
            document["energy_joules"] += sign * step
            around.append(solve_exact(Problem.from_dict(document)).objective)
        slope = (around[0] - around[1]) / (2 * step)
        assert solve_exact(problem).shadow_price == pytest.approx(slope, rel=1e-4)


@pytest.fixture
def solves(monkeypatch):
    """A list that grows by one with every solve of the clusters' equations, the solver's cost."""
    counted, inner = [], Transmit._equations
    monkeypatch.setattr(Transmit, "_equations", lambda *args: counted.append(1) or inner(*args))
    return counted


def test_a_large_instance_takes_no_more_solves_than_a_small_one(solves: list[object]) -> None:
    problem = random_problem(1, clusters=100_000, max_extra=4, tightness=0.4)
    answer = solve_exact(problem)
    assert len(solves) < 40
    assert answer.gap < 1e-6
    assert problem.violations(answer.power_watts, answer.extra_updates, tolerance=0.0) == []


def test_ten_clusters_take_some_dozen_solves(solves: list[object]) -> None:
    for index in range(40):
        solves.clear()
        solve_exact(random_problem(3000 + index, 10, 4))
        assert len(solves) < 80


def test_an_infeasible_budget_names_one_that_works() -> None:
    for index in range(30):
        document = random_problem(index, penalty=index % 4 >= 2).to_dict()
        document["energy_joules"] = 1e-9
        with pytest.raises(CamuError, match="the smallest that would do is") as caught:
            solve_exact(Problem.from_dict(document))
        assert caught.value.exit_code == 1
        named = float(str(caught.value).split("would do is ")[1].split(" J")[0])
        document["energy_joules"] = named
        problem = Problem.from_dict(document)
        answer = solve_exact(problem)
        assert problem.violations(answer.power_watts, answer.extra_updates, tolerance=0.0) == []
        assert np.isfinite(answer.objective)
        document["energy_joules"] = named * (1 - 3e-9)
        with pytest.raises(CamuError, match="too small"):
            solve_exact(Problem.from_dict(document))


def test_extra_updates_can_be_what_makes_the_denominator_positive() -> None:
    document = random_problem(9, clusters=3, tightness=2.0).to_dict()
    for cluster, descent in zip(document["clusters"], (-0.01, 0.004, 0.005), strict=True):
        cluster.update(descent=descent, multi_update=True, max_extra_updates=3)
        cluster.pop("penalty", None)
    problem = Problem.from_dict(document)
    assert problem.denominator(np.zeros(3)) < 0
    answer = solve_exact(problem)
    assert answer.details["integer"] == "branch"
    check(problem, answer, brute_force(problem))


def test_clusters_without_weight_or_cost_are_solved() -> None:
    document = random_problem(21, clusters=4, tightness=0.3).to_dict()
    document["clusters"][0]["weight"] = 0.0
    document["clusters"][1]["compute_joules"] = 0.0
    document["clusters"][1].update(multi_update=True, max_extra_updates=3, descent=0.01)
    problem = Problem.from_dict(document)
    answer = solve_exact(problem)
    assert answer.extra_updates[1] == 3
    assert problem.violations(answer.power_watts, answer.extra_updates, tolerance=0.0) == []
    assert answer.gap < 1e-6


def test_identical_clusters_do_not_explode_branch_and_bound() -> None:
    document = random_problem(1, clusters=1, tightness=0.5).to_dict()
    cluster = {**document["clusters"][0], "multi_update": True, "max_extra_updates": 4}
    document["clusters"] = [cluster] * 30
    document["energy_joules"] = 30 * (cluster["compute_joules"] * 2.7 + 0.5)
    answer = solve_exact(Problem.from_dict(document))
    assert answer.details["integer"] == "branch"
    assert answer.gap < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_with_circuit_power_the_answer_equals_brute_force(block: int) -> None:
    for index in range(5000 + 25 * block, 5025 + 25 * block):
        problem = random_problem(
            index, penalty=index % 4 >= 2, own_caps=index % 3 == 0, circuits=True
        )
        answer = solve_exact(problem)
        assert answer.details["integer"] == "branch"
        check(problem, answer, brute_force(problem))
        assert (answer.power_watts >= problem.cheapest_watts * (1 - 1e-12)).all()


def test_with_circuit_power_the_optimum_equals_slsqp_over_every_count() -> None:
    for index in range(6000, 6012):
        problem = random_problem(
            index, clusters=3, max_extra=2, penalty=index % 4 >= 2, circuits=True
        )
        values = [slsqp(problem, extra) for extra in every_update(problem)]
        check(problem, solve_exact(problem), min(v for v in values if v is not None))


def test_the_cheapest_power_is_that_of_a_search_and_of_the_closed_form() -> None:
    for index in range(7000, 7020):
        problem = random_problem(index, own_caps=index % 2 == 0, circuits=True)
        power, joules = cheapest(problem)
        assert problem.least_joules == pytest.approx(joules, rel=1e-6)
        assert problem.cheapest_watts == pytest.approx(power, rel=1e-4)
        free = problem.cheapest_watts < problem.max_power_watts * (1 - 1e-9)
        for c in np.flatnonzero(free):  # x = ln(1 + snr) solves (x - 1) e^x = k - 1
            k = problem.amplifier_efficiency * problem.circuit_watts * problem.snr_per_watt[c]
            x = 1 + mpmath.lambertw((mpmath.mpf(float(k)) - 1) / mpmath.e)
            assert problem.cheapest_nats[c] == pytest.approx(float(x.real), rel=1e-9)
    without = replace(problem, circuit_watts=0.0)
    assert not without.cheapest_watts.any()
    assert (without.least_joules == without.base_joules).all()


def test_circuits_that_draw_next_to_nothing_change_next_to_nothing() -> None:
    for index in range(7100, 7110):
        plain = random_problem(index, clusters=4)
        answer, near = solve_exact(plain), solve_exact(replace(plain, circuit_watts=1e-18))
        assert near.objective == pytest.approx(answer.objective, rel=1e-6)
        assert near.lower_bound <= near.objective


def test_circuit_power_and_a_cap_on_all_powers_together_are_refused() -> None:
    with pytest.raises(CamuError, match="max_total_power_watts is known only without circuit"):
        random_problem(1, total_cap=True, circuits=True)
