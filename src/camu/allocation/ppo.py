"""P1 by reinforcement learning, as in the paper: proximal policy optimisation (section IV-B).

The state holds the last round's powers, updates, GAP and energy; the action is the next powers and
updates; the reward is minus the objective, less a penalty for spending too much. Two readings
differ from the printed text, which stays available as ``reward="literal"``: the reward belongs to
the current action (printed: the last round's GAP), and only over-spending is punished (printed:
``- alpha (E - E_total)``, which pays for saving energy). The default reward also takes the
logarithm of the objective, so that one setting serves objectives of any size.

Nothing here looks at the exact solution; the exact lower bound only measures the answer.
"""

from __future__ import annotations

import time
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from camu.allocation.answer import Allocation
from camu.allocation.exact import solve_exact
from camu.allocation.ppo_training import Players, PpoSettings, train
from camu.allocation.problem import Problem
from camu.arrays import Float64, Int64
from camu.errors import CamuError
from camu.work import Progress, silent

Space = spaces.Space[NDArray[np.float32]]


class Game:
    """P1 as a game for many players at once: rows are players, everything is an array.

    The scales of objective and power are those of the simplest allocation, where every leader
    sends at the same share of its cap. `best` remembers the best trial of all players.
    """

    def __init__(self, problem: Problem, settings: PpoSettings) -> None:
        self.problem, self.settings, self.best = problem, settings, Best(problem)
        full = problem.max_power_watts[None]
        single, value = np.zeros((1, problem.size), dtype=np.int64), np.inf
        for extra in (problem.extra_limit[None], single):
            power, fitted = spend_budget(problem, full, extra)
            value = min(value, float(problem.objective(power, fitted)[0]))
        self.reference = value if np.isfinite(value) else 1.0  # an objective
        reach = 10.0**settings.power_decades
        self.low = np.log(power[0] / reach)  # ln of each power at action -1
        self.high = np.log(np.minimum(problem.max_power_watts, power[0] * reach))  # at action 1

    def decode(self, action: NDArray[Any]) -> tuple[Float64, Int64]:
        """Actions in [-1, 1] as powers, projected onto both caps, and whole extra updates."""
        size, problem = self.problem.size, self.problem
        clipped = np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        share = (clipped[:, :size] + 1) / 2
        power = np.exp(self.low + share * (self.high - self.low))
        power = np.minimum(power, problem.max_power_watts)
        if problem.max_total_power_watts is not None:
            total = (power**problem.exponent).sum(axis=1, keepdims=True)
            share = np.minimum(1.0, problem.max_total_power_watts / total)
            power = power * share ** (1 / problem.exponent) * (1 - 1e-12)
        extra = np.rint((clipped[:, size:] + 1) / 2 * problem.extra_limit)
        return power, extra.astype(np.int64)

    def play(self, action: NDArray[Any]) -> tuple[Float64, Float64]:
        """What these actions score, and the share of the budget that they spend."""
        return self.judge(*self.decode(action))

    def judge(self, power: Float64, extra: Int64) -> tuple[Float64, Float64]:
        """The logarithm of objective / reference, and the energy as a share of the budget."""
        energy = self.problem.spent_joules(power, extra) / self.problem.energy_joules
        self.best.consider(*spend_budget(self.problem, power, extra))
        ratio = self.problem.objective(power, extra) / self.reference
        return np.log(np.clip(ratio, 1e-4, 1e4)), energy

    def observe(self, action: NDArray[Any], score: Float64, energy: Float64) -> NDArray[np.float32]:
        """The state: powers and updates as acted, objective and energy, all of order one."""
        parts = [np.clip(action, -1, 1), score[:, None], np.log(np.maximum(energy, 1e-4))[:, None]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def reward(self, score: Float64, energy: Float64) -> Float64:
        """What an allocation earns."""
        alpha, problem = self.settings.energy_penalty, self.problem
        if self.settings.reward == "literal":
            gap = np.exp(score) * self.reference
            return np.asarray(-gap - alpha * (energy - 1) * problem.energy_joules)
        return np.asarray(-score - alpha * np.maximum(0.0, energy - 1))

    @property
    def action_space(self) -> spaces.Box:
        """Powers, then extra updates."""
        return spaces.Box(-1.0, 1.0, (2 * self.problem.size,), dtype=np.float32)

    @property
    def observation_space(self) -> spaces.Box:
        """The bounds that `observe` keeps."""
        return spaces.Box(-20.0, 80.0, (2 * self.problem.size + 2,), dtype=np.float32)


class AllocationEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One player, for any reinforcement learning library that uses Gymnasium."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium asks for a class attribute

    def __init__(self, problem: Problem, settings: PpoSettings | None = None) -> None:
        self.game = Game(problem, settings or PpoSettings())
        self.players = Players(self.game, 1)
        self.action_space = cast("Space", self.players.game.action_space)
        self.observation_space = cast("Space", self.players.game.observation_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode at a random allocation."""
        super().reset(seed=seed)
        self.players.restart(self.np_random, np.ones(1, dtype=np.bool_))
        return self.players.state[0].copy(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Try one allocation."""
        reward = self.players.act(np.asarray(action)[None])
        done = bool(self.players.over[0])
        power, extra = self.game.decode(np.asarray(action)[None])
        info = {"power": power[0], "extra": extra[0]}
        return self.players.state[0].copy(), float(reward[0]), done, False, info


class Best:
    """The best feasible allocation among all that were tried."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.objective = problem, np.inf
        self.power: Float64 | None = None
        self.extra: Int64 | None = None

    def consider(self, power: Float64, extra: Int64) -> None:
        """Keep the best of these feasible trials if it is better than all before."""
        value = self.problem.objective(power, extra)
        winner = int(np.argmin(value))
        if value[winner] < self.objective:
            self.objective = float(value[winner])
            self.power, self.extra = power[winner], extra[winner]


def spend_budget(
    problem: Problem, power: Float64, extra: Int64, halvings: int = 40
) -> tuple[Float64, Int64]:
    """Scale each row's powers by one factor onto the budget and the caps.

    Rows whose updates alone exceed the budget lose the same share of all extra updates.
    """
    room = problem.energy_joules - problem.update_joules(np.zeros(problem.size)).sum()
    room -= problem.base_joules.sum()
    wanted = (problem.compute_joules * extra).sum(axis=-1)
    share = np.minimum(1.0, room * (1 - 1e-9) / np.maximum(wanted, 1e-300))
    extra = np.floor(extra * share[:, None]).astype(np.int64)
    left = problem.energy_joules - problem.update_joules(extra).sum(axis=-1)
    high = (problem.max_power_watts / power).min(axis=1)
    if problem.max_total_power_watts is not None:
        total = (power**problem.exponent).sum(axis=1)
        high = np.minimum(
            high, (problem.max_total_power_watts / total) ** (1 / problem.exponent) * (1 - 1e-12)
        )
    low, span = np.log(high) - 60.0, np.log(high)
    fits = problem.transmit_joules(power * high[:, None]).sum(axis=1) <= left
    low = np.where(fits, span, low)
    for _ in range(halvings):
        middle = (low + span) / 2
        good = problem.transmit_joules(power * np.exp(middle)[:, None]).sum(axis=1) <= left
        low, span = np.where(good, middle, low), np.where(good, span, middle)
    return np.minimum(power * np.exp(low)[:, None], problem.max_power_watts), extra


def solve_ppo(
    problem: Problem,
    seed: int = 0,
    settings: PpoSettings | None = None,
    progress: Progress = silent,
) -> Allocation:
    """Train a policy on the problem and return the best feasible allocation it tried.

    Progress is reported after each rollout. The learning curve, [steps, best objective so far, mean
    reward] per rollout, is in the answer's details.
    """
    began = time.perf_counter()
    game = Game(problem, settings or PpoSettings())
    lower = solve_exact(problem).lower_bound
    curve = train(game, seed, progress)
    return _answer(problem, game.best, lower, curve, seed, began)


def _answer(
    problem: Problem, best: Best, lower: float, curve: list[list[float]], seed: int, began: float
) -> Allocation:
    if best.power is None or best.extra is None:
        raise CamuError(f"{problem.source}: PPO met no feasible allocation; give it more steps")
    return Allocation.of(
        problem,
        "ppo",
        best.power,
        best.extra,
        lower_bound=lower,
        seconds=time.perf_counter() - began,
        details={"seed": seed, "learning_curve": curve},
    )
