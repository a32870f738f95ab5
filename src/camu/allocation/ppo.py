"""P1 by proximal policy optimisation (section IV-B): the game, its training, the answer.

The state holds the last round's decisions, score and spending; the action is the next decisions;
the reward is minus the objective, less a penalty for spending too much. Two readings differ from
the printed text, which stays available as ``reward="literal"``: the reward belongs to the current
action (printed: the last round's GAP), and only over-spending is punished (printed:
``- alpha (E - E_total)``, which pays for saving energy). The default reward also takes the
logarithm of the objective, so that one setting serves objectives of any size.

Nothing here looks at the exact solution; the exact lower bound only measures the answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from camu.allocation.answer import Allocation
from camu.allocation.p1 import Problem
from camu.allocation.p1_exact import solve_exact
from camu.arrays import Float64, Int64
from camu.errors import CamuError
from camu.seeding import derive
from camu.work import Progress, silent


@dataclass(frozen=True)
class PpoSettings:
    """Every setting of the training; the defaults solve the paper's instances in seconds."""

    steps: int = 100_000  # actions tried in total
    environments: int = 128  # evaluated together as arrays
    rollout: int = 8  # steps of each environment between two updates of the policy
    minibatch: int = 512
    epochs: int = 8  # passes over a rollout, the paper's inner loop
    clip: float = 0.2  # epsilon
    discount: float = 0.2  # Upsilon; the system is static, so a short memory is enough
    gae_lambda: float = 0.9
    learning_rate: float = 2e-3  # falls linearly to zero
    log_std: float = -0.5  # of the first policy, in units where the action spans 2
    episode: int = 8  # steps until an environment starts again
    energy_penalty: float = 10.0  # alpha, per budget that is spent too much
    power_decades: float = 1.5  # how far the action reaches above and below the first powers
    reward: Literal["current", "literal"] = "current"


class P1Game:
    """P1 as a game for many players at once: rows are players.

    An action in [-1, 1] sets powers and extra updates; it gets a score and spends a share of the
    budget. The game remembers the best feasible trial of all players. The scales of objective and
    power are those of the simplest allocation, where every leader sends at the same share of its
    cap.
    """

    def __init__(self, problem: Problem, settings: PpoSettings) -> None:
        self.problem, self.settings, self.actions = problem, settings, 2 * problem.size
        self.best_objective = np.inf
        self.best: tuple[Float64, Int64] | None = None  # powers and extra updates
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
        share = (np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0) + 1) / 2
        power = np.exp(self.low + share[:, :size] * (self.high - self.low))
        power = np.minimum(power, problem.max_power_watts)
        power = power * np.minimum(1.0, _to_total_cap(problem, power))[:, None]
        return power, np.rint(share[:, size:] * problem.extra_limit).astype(np.int64)

    def play(self, action: NDArray[Any]) -> tuple[Float64, Float64]:
        """The logarithm of objective / reference, and the energy as a share of the budget."""
        problem = self.problem
        power, extra = self.decode(action)
        spent = problem.spent_joules(power, extra) / problem.energy_joules
        fitting = spend_budget(problem, power, extra)
        objectives = problem.objective(*fitting)
        winner = int(np.argmin(objectives))
        if objectives[winner] < self.best_objective:
            self.best_objective = float(objectives[winner])
            self.best = fitting[0][winner], fitting[1][winner]
        ratio = problem.objective(power, extra) / self.reference
        return np.log(np.clip(ratio, 1e-4, 1e4)), spent

    def reward(self, score: Float64, spent: Float64) -> Float64:
        """Minus the logarithm of the objective, less a fine; or the printed reward."""
        alpha, problem = self.settings.energy_penalty, self.problem
        if self.settings.reward == "literal":
            gap = np.exp(score) * self.reference
            return np.asarray(-gap - alpha * (spent - 1) * problem.energy_joules)
        return np.asarray(-score - alpha * np.maximum(0.0, spent - 1))


def _to_total_cap(problem: Problem, power: Float64) -> Float64:
    """The factor that scales each row of powers to max_total_power_watts; infinite without one."""
    if problem.max_total_power_watts is None:
        return np.full(len(power), np.inf)
    total = (power**problem.exponent).sum(axis=1)
    factor = (problem.max_total_power_watts / total) ** (1 / problem.exponent)
    return np.asarray(factor * (1 - 1e-12))


def spend_budget(
    problem: Problem, power: Float64, extra: Int64, halvings: int = 40
) -> tuple[Float64, Int64]:
    """Scale each row's powers by one factor onto the budget and the caps.

    No power falls below the cheapest one, so that less of it never costs more.
    Rows whose updates alone exceed the budget lose the same share of all extra updates.
    """
    wanted = (problem.compute_joules * extra).sum(axis=-1)
    share = np.minimum(1.0, problem.spare_joules * (1 - 1e-9) / np.maximum(wanted, 1e-300))
    extra = np.floor(extra * share[:, None]).astype(np.int64)
    left = problem.energy_joules - problem.update_joules(extra).sum(axis=-1)
    factor = np.minimum(
        (problem.max_power_watts / power).min(axis=1), _to_total_cap(problem, power)
    )
    high = np.log(factor)

    def scaled(log_factor: Float64) -> Float64:
        return np.maximum(power * np.exp(log_factor)[:, None], problem.cheapest_watts)

    fits = problem.transmit_joules(scaled(high)).sum(axis=1) <= left
    low = np.where(fits, high, high - 60.0)
    for _ in range(halvings):
        middle = (low + high) / 2
        good = problem.transmit_joules(scaled(middle)).sum(axis=1) <= left
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.minimum(scaled(low), problem.max_power_watts), extra


class AllocationEnv(VecEnv):
    """Many players of one game as one array computation; an observation is of order one."""

    def __init__(self, game: P1Game, rng: np.random.Generator) -> None:
        count, size = game.settings.environments, game.actions
        self.game, self.rng, self.mean_reward = game, rng, 0.0
        self.age = np.zeros(count, dtype=np.int64)
        self.state = np.zeros((count, size + 2), dtype=np.float32)
        self.last_reward = np.zeros(count)
        actions = spaces.Box(-1.0, 1.0, (size,), dtype=np.float32)
        super().__init__(count, spaces.Box(-50.0, 50.0, (size + 2,), dtype=np.float32), actions)

    def _play(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], Float64]:
        """The state after actions (they, their score and their spending), and their reward."""
        score, spent = self.game.play(action)
        used = np.log(np.clip(spent, 1e-4, 1e4))
        parts = [np.clip(action, -1, 1), score[:, None], used[:, None]]
        return np.concatenate(parts, axis=1).astype(np.float32), self.game.reward(score, spent)

    def _restart(self, who: NDArray[np.bool_]) -> None:
        """Put some players on random allocations."""
        action = self.rng.uniform(-1, 1, (int(who.sum()), self.game.actions))
        self.state[who], self.last_reward[who] = self._play(action)
        self.age[who] = 0

    def reset(self) -> NDArray[np.float32]:
        self._restart(np.ones(self.num_envs, dtype=np.bool_))
        return self.state.copy()

    def step_async(self, actions: NDArray[Any]) -> None:
        self.actions = actions

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Evaluate all actions, and restart the players whose episode is over."""
        before = self.last_reward
        self.state, self.last_reward = self._play(self.actions)
        literal = self.game.settings.reward == "literal"  # printed: the reward of the last round
        reward = (before if literal else self.last_reward).copy()
        self.mean_reward = float(reward.mean())
        self.age += 1
        done = self.age >= self.game.settings.episode
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if done.any():
            for i in np.flatnonzero(done).tolist():
                infos[i]["terminal_observation"] = self.state[i].copy()
            self._restart(done)
        return self.state.copy(), reward.astype(np.float32), done, infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        return [getattr(self, method_name)(*args, **kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


class _Curve(BaseCallback):
    """Keeps the learning curve and reports progress after each rollout.

    The curve begins with the first rollout after which a feasible allocation is known.
    """

    def __init__(self, environment: AllocationEnv, progress: Progress) -> None:
        super().__init__()
        self.environment, self.progress = environment, progress
        self.points: list[list[float]] = []
        self.rewards: list[float] = []

    def _on_step(self) -> bool:
        self.rewards.append(self.environment.mean_reward)
        return True

    def _on_rollout_end(self) -> None:
        game = self.environment.game
        if np.isfinite(game.best_objective):
            mean = float(np.mean(self.rewards))
            self.points.append([self.num_timesteps, game.best_objective, mean])
        self.rewards.clear()
        total = game.settings.steps
        done = min(self.num_timesteps, total)
        self.progress(f"PPO, best so far {game.best_objective:.4g}", done, total)


def train(game: P1Game, seed: int, progress: Progress) -> list[list[float]]:
    """Train a policy on a game, which remembers the best answer.

    Progress is reported after each rollout. Returns the learning curve: [steps, best objective so
    far, mean reward] per rollout.
    """
    settings, stream = game.settings, derive(seed, "ppo")
    environment = AllocationEnv(game, stream.numpy())
    curve = _Curve(environment, progress)
    with _global_state_kept():
        torch.set_num_threads(1)  # the networks are tiny: threads would wait for each other
        agent = PPO(
            "MlpPolicy",
            environment,
            learning_rate=lambda left: settings.learning_rate * left,
            n_steps=settings.rollout,
            batch_size=settings.minibatch,
            n_epochs=settings.epochs,
            gamma=settings.discount,
            gae_lambda=settings.gae_lambda,
            clip_range=settings.clip,
            policy_kwargs={"log_std_init": settings.log_std},
            seed=stream.entropy % 2**31,
            device="cpu",
        )
        agent.learn(settings.steps, callback=curve)
    return curve.points


@contextmanager
def _global_state_kept() -> Iterator[None]:
    """Stable-baselines3 seeds and uses the global generators; leave them as they were."""
    python, numbers, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
        torch.set_rng_state(tensors)
        torch.set_num_threads(threads)


def solve_ppo(
    problem: Problem,
    seed: int = 0,
    settings: PpoSettings | None = None,
    progress: Progress = silent,
) -> Allocation:
    """Train a policy on P1 and return the best feasible answer that it tried."""
    began, game = time.perf_counter(), P1Game(problem, settings or PpoSettings())
    lower = solve_exact(problem).lower_bound
    curve = train(game, seed, progress)
    if game.best is None:
        raise CamuError(f"{problem.source}: PPO met no feasible allocation; give it more steps")
    return Allocation.of(
        problem,
        "ppo",
        *game.best,
        lower_bound=lower,
        seconds=time.perf_counter() - began,
        details={"seed": seed, "learning_curve": curve},
    )
