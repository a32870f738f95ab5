"""P2 by reinforcement learning: the same training as for P1, on a game with two budgets.

The action sets powers, updates, the number of rounds and the ready time. Nothing here looks at the
exact solution; its lower bound only measures the answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from camu.allocation.horizon import HorizonProblem
from camu.allocation.horizon_answer import HorizonAnswer
from camu.allocation.horizon_exact import most_rounds, solve_horizon
from camu.allocation.ppo_training import PpoSettings, train
from camu.arrays import Float64, Int64
from camu.errors import CamuError
from camu.work import Progress, silent

_POWER_DECADES = 3.0  # how far the action reaches below the caps


@dataclass
class HorizonTrial:
    """The best answer so far."""

    objective: float = np.inf
    rounds: int = 0
    updates: Int64 | None = None
    power_watts: Float64 | None = None
    ready_seconds: float = 0.0


class HorizonGame:
    """P2 as a game for many players at once: rows are players, everything is an array."""

    def __init__(self, problem: HorizonProblem, settings: PpoSettings) -> None:
        self.problem, self.settings, self.best = problem, settings, HorizonTrial()
        self.most_rounds = most_rounds(problem)
        self.action_space = spaces.Box(-1.0, 1.0, (2 * problem.size + 2,), dtype=np.float32)
        self.observation_space = spaces.Box(-50.0, 50.0, (2 * problem.size + 4,), dtype=np.float32)

    def decode(self, action: NDArray[Any]) -> tuple[Float64, Int64, Float64, Float64]:
        """Rounds, updates, powers and ready times of actions in [-1, 1]."""
        problem, size = self.problem, self.problem.size
        share = (np.clip(np.asarray(action, dtype=np.float64), -1, 1) + 1) / 2
        power = problem.max_power_watts * 10.0 ** (-_POWER_DECADES * (1 - share[:, :size]))
        updates = 1 + np.rint(share[:, size:-2] * (problem.max_updates - 1)).astype(np.int64)
        rounds = np.rint(self.most_rounds ** share[:, -2])
        earliest = updates * (problem.least_seconds + problem.gather_seconds)
        first = earliest.max(axis=1)
        latest = np.maximum(problem.seconds / rounds, first)
        return rounds, updates, power, first * (latest / first) ** share[:, -1]

    def play(self, action: NDArray[Any]) -> tuple[Float64, Float64]:
        """The logarithm of the gap, and the larger of the shares of both budgets."""
        problem = self.problem
        rounds, updates, power, ready = self.decode(action)
        joules = problem.round_joules(updates, power, ready) / problem.energy_joules
        seconds = problem.round_seconds(power, ready) / problem.seconds
        each = np.maximum(joules, seconds)
        self._consider(np.minimum(rounds, np.floor(1 / each)), updates, power, ready)
        ratio = problem.objective(rounds, updates, power) / problem.initial_gap
        descent, _ = problem.recursion(updates, power)
        # Rounds that climb have no gap; the less they climb, the better, so that learning has a
        # direction.
        climb = -descent / (2 * problem.convexity * problem.learning_rate)
        score = np.log(np.clip(ratio, 1e-6, 2.0)) + np.where(descent > 0, 0, np.clip(climb, 0, 10))
        return score, rounds * each

    def _consider(self, rounds: Float64, updates: Int64, power: Float64, ready: Float64) -> None:
        """Keep the best trial, cut to the rounds that fit."""
        value = np.where(
            rounds >= 1, self.problem.objective(np.maximum(rounds, 1), updates, power), np.inf
        )
        winner = int(np.argmin(value))
        if value[winner] < self.best.objective:
            self.best = HorizonTrial(
                float(value[winner]),
                int(rounds[winner]),
                updates[winner],
                power[winner],
                float(ready[winner]),
            )

    def observe(self, action: NDArray[Any], score: Float64, spent: Float64) -> NDArray[np.float32]:
        """The state: the decisions as acted, the gap and the spending, all of order one."""
        used = np.log(np.clip(spent, 1e-4, 1e4))
        parts = [np.clip(action, -1, 1), score[:, None], used[:, None]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def reward(self, score: Float64, spent: Float64) -> Float64:
        """Minus the logarithm of the gap, less a fine for spending too much."""
        return np.asarray(-score - self.settings.energy_penalty * np.clip(spent - 1, 0.0, 10.0))


def solve_horizon_ppo(
    problem: HorizonProblem,
    seed: int = 0,
    settings: PpoSettings | None = None,
    progress: Progress = silent,
) -> HorizonAnswer:
    """Train a policy on the problem and return the best feasible answer that it tried."""
    began = time.perf_counter()
    game = HorizonGame(problem, settings or PpoSettings())
    lower = solve_horizon(problem).lower_bound
    curve = train(game, seed, progress)
    best = game.best
    if best.updates is None or best.power_watts is None:
        raise CamuError(f"{problem.source}: PPO met no feasible allocation; give it more steps")
    return HorizonAnswer.of(
        problem,
        "ppo",
        best.rounds,
        best.updates,
        best.power_watts,
        best.ready_seconds,
        lower_bound=lower,
        seconds=time.perf_counter() - began,
        details={"seed": seed, "learning_curve": curve},
    )
