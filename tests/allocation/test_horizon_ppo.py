"""PPO on P2: feasible answers, measured against the certificate, the same for the same seed."""

import numpy as np

from camu.allocation.horizon_ppo import HorizonGame, solve_horizon_ppo
from camu.allocation.ppo_training import PpoSettings
from helpers.horizon_instances import random_horizon

SETTINGS = PpoSettings(steps=8192, environments=64)


def test_the_answer_is_feasible_and_near_the_certificate() -> None:
    problem = random_horizon(3, clusters=3)
    answer = solve_horizon_ppo(problem, 0, SETTINGS)
    assert answer.energy_joules <= problem.energy_joules
    assert answer.run_seconds <= problem.seconds
    assert answer.lower_bound <= answer.objective < 1.1 * answer.lower_bound
    again = solve_horizon_ppo(problem, 0, SETTINGS)
    assert again.objective == answer.objective
    assert answer.details["learning_curve"][-1][1] == answer.objective


def test_the_ends_of_the_action_are_the_limits() -> None:
    problem = random_horizon(3, clusters=3)
    game = HorizonGame(problem, SETTINGS)
    rounds, updates, power, ready = game.decode(np.array([[-1.0] * 8, [1.0] * 8]))
    assert rounds.tolist() == [1, game.most_rounds]
    assert updates[0].tolist() == [1, 1, 1]
    assert (updates[1] == problem.max_updates).all()
    assert np.allclose(power[1], problem.max_power_watts)
    assert np.allclose(power[0], problem.max_power_watts / 1000)
    step = problem.least_seconds + problem.gather_seconds
    assert np.isclose(ready[0], step.max())
    assert ready[1] >= (updates[1] * step).max() * (1 - 1e-12)


def test_rounds_that_climb_less_are_better() -> None:
    """Without this, an instance in which most rounds climb would teach nothing."""
    problem = random_horizon(
        3, clusters=3, divergence=np.full(3, 5.0), max_updates=np.full(3, 4), convexity=0.01
    )
    game = HorizonGame(problem, SETTINGS)
    action = np.zeros((4, 8))
    action[:, 3] = np.linspace(-1, 1, 4)  # updates of one cluster alone
    action[:, 4:6] = -1.0
    score, _ = game.play(action)
    assert np.isfinite(problem.objective(1, np.array([1, 1, 1]), problem.max_power_watts))
    assert np.isinf(problem.objective(1, np.array([4, 1, 1]), problem.max_power_watts))
    assert (np.diff(score) > 0).all()
