"""PPO on P1: feasible answers, measured against the certificate, equal for equal seeds."""

import json
import random

import numpy as np
import pytest
import torch

from camu.allocation.answer import Allocation
from camu.allocation.p1 import Problem
from camu.allocation.p1_exact import solve_exact
from camu.allocation.ppo import AllocationEnv, P1Game, PpoSettings, solve_ppo, spend_budget
from camu.seeding import derive
from helpers.allocation_instances import random_problem

SHORT = PpoSettings(steps=6_000)
ONE_ROLLOUT = PpoSettings(steps=1_024)


def test_the_literal_reward_is_the_last_rounds_and_pays_for_saving() -> None:
    problem = random_problem(6, clusters=3, tightness=0.5)
    settings = PpoSettings(reward="literal", energy_penalty=2.0, environments=1)
    game = P1Game(problem, settings)
    players = AllocationEnv(game, derive(1, "own-start").numpy())
    players.reset()
    actions = derive(3, "own-actions").numpy().uniform(-1, 1, (2, 1, 6))
    players.step(actions[0])
    (power,), (extra,) = game.decode(actions[0])
    expected = -problem.objective(power, extra) - 2.0 * (
        problem.spent_joules(power, extra) - problem.energy_joules
    )
    _, (reward,), _, _ = players.step(actions[1])
    assert reward == pytest.approx(float(expected), rel=1e-6)  # single precision


def test_only_overspending_is_punished() -> None:
    problem = random_problem(6, clusters=3, tightness=0.5)
    game = P1Game(problem, PpoSettings())
    score = np.zeros(3)
    rewards = game.reward(score, np.array([0.5, 1.0, 1.1]))
    assert rewards[0] == rewards[1] == 0
    assert rewards[2] == pytest.approx(-0.1 * game.settings.energy_penalty)


@pytest.mark.parametrize("own_caps", [False, True])
@pytest.mark.parametrize("total_cap", [False, True])
def test_scaling_onto_the_budget_is_feasible_and_wastes_nothing(
    total_cap: bool, own_caps: bool
) -> None:
    for index in range(20):
        problem = random_problem(index, clusters=4, total_cap=total_cap, own_caps=own_caps)
        rng = derive(5, "own-rows", index).numpy()
        power = 10 ** rng.uniform(-3, 0, (50, 4))
        extra = rng.integers(0, problem.extra_limit + 1, (50, 4))
        power, extra = spend_budget(problem, power, extra)
        for row_power, row_extra in zip(power, extra, strict=True):
            said = problem.violations(row_power, row_extra, tolerance=1e-9)
            assert [s for s in said if "denominator" not in s] == []
            # What is left of the budget is what a cap forbids to send.
            left = 1 - float(problem.spent_joules(row_power, row_extra)) / problem.energy_joules
            assert left < 1e-6 or "power" in " ".join(problem.binding(row_power, row_extra))


@pytest.mark.slow
def test_the_learning_curve_is_finite_where_few_counts_converge() -> None:
    """Nine clusters must nearly all update five times, or 1 - A is negative: rarely tried."""
    document = random_problem(2, clusters=10, tightness=1e3).to_dict()
    for cluster in document["clusters"]:
        cluster.update(descent=0.01, multi_update=True, max_extra_updates=4)
        cluster.pop("penalty", None)
    document["clusters"][0].update(multi_update=False, descent=-0.01 * 39 + 0.005)
    calls = []
    answer = solve_ppo(
        Problem.from_dict(document), 0, PpoSettings(steps=20_000), lambda *s: calls.append(s)
    )
    assert calls[0][0] == "PPO, best so far inf"
    curve = answer.details["learning_curve"]
    assert 0 < len(curve) < len(calls)
    assert np.isfinite(curve).all()
    again = Allocation.from_dict(json.loads(json.dumps(answer.to_dict(), allow_nan=False)))
    assert again.to_dict() == answer.to_dict()


@pytest.mark.slow
def test_unequal_caps_are_kept_and_used() -> None:
    """With energy to spare the best is every leader at its own cap; the policy finds it."""
    problem = random_problem(31, clusters=4, max_extra=0, tightness=1e3, own_caps=True)
    answer = solve_ppo(problem, 0, SHORT)
    assert problem.violations(answer.power_watts, answer.extra_updates) == []
    assert answer.objective <= 1.05 * solve_exact(problem).objective
    assert (answer.power_watts > problem.max_power_watts.min()).sum() == 3


@pytest.mark.slow
def test_a_short_training_is_close_to_the_optimum() -> None:
    problem, calls = random_problem(31, clusters=6, max_extra=4, tightness=1.0), []
    answer = solve_ppo(problem, 3, SHORT, lambda *state: calls.append(state))
    optimum = solve_exact(problem)
    assert optimum.objective * (1 - 1e-9) <= answer.objective <= 1.5 * optimum.objective
    assert problem.violations(answer.power_watts, answer.extra_updates) == []
    assert answer.lower_bound == optimum.lower_bound
    curve = answer.details["learning_curve"]
    assert len(curve) == len(calls)
    steps, best, rewards = zip(*curve, strict=True)
    assert steps[-1] >= SHORT.steps
    assert calls[-1][1:] == (SHORT.steps, SHORT.steps)
    assert list(best) == sorted(best, reverse=True)
    assert rewards[-1] > rewards[0]


def test_a_training_is_repeatable_and_leaves_global_randomness_alone() -> None:
    def draws() -> tuple[float, float, float]:
        return random.random(), np.random.random(), torch.rand(1).item()

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    problem = random_problem(31, clusters=6)
    seed()
    expected, threads = draws(), torch.get_num_threads()
    seed()
    first, second = (solve_ppo(problem, 3, ONE_ROLLOUT) for _ in range(2))
    assert draws() == expected
    assert torch.get_num_threads() == threads
    assert first.objective == second.objective
    assert np.array_equal(first.power_watts, second.power_watts)
    assert solve_ppo(problem, 4, ONE_ROLLOUT).objective != first.objective


def test_with_circuit_power_no_row_falls_below_the_cheapest_power() -> None:
    for index in range(7200, 7206):
        problem = random_problem(index, clusters=3, circuits=True, tightness=0.3)
        power = problem.max_power_watts * derive(4, "own-powers", index).numpy().random((5, 3))
        fitted, extra = spend_budget(problem, power, np.tile(problem.extra_limit, (5, 1)))
        assert (fitted >= problem.cheapest_watts * (1 - 1e-12)).all()
        assert (problem.spent_joules(fitted, extra) <= problem.energy_joules * (1 + 1e-9)).all()
    answer = solve_ppo(problem, settings=ONE_ROLLOUT)
    assert solve_exact(problem).lower_bound <= answer.objective
