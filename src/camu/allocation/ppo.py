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

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from camu.allocation.answer import Allocation
from camu.allocation.exact import solve_exact
from camu.allocation.problem import Problem
from camu.arrays import Float64, Int64
from camu.errors import CamuError
from camu.seeding import derive
from camu.work import Progress, silent

Space = spaces.Space[NDArray[np.float32]]


@dataclass(frozen=True)
class PpoSettings:
    """Every knob of the training; the defaults solve instances of the paper's size in seconds."""

    steps: int = 100_000  # actions tried in total
    environments: int = 128  # evaluated together as arrays
    rollout: int = 8  # steps of each environment between two updates of the policy
    minibatch: int = 512
    epochs: int = 8  # passes over a rollout, the paper's inner loop
    clip: float = 0.2  # epsilon
    discount: float = 0.2  # Upsilon; the system is static, so a short memory is enough
    gae_lambda: float = 0.9
    learning_rate: float = 2e-3  # falls linearly to zero
    hidden: tuple[int, ...] = (64, 64)
    entropy: float = 0.0  # bonus for an undecided policy
    log_std: float = -0.5  # of the first policy, in units where the action spans 2
    episode: int = 8  # steps until an environment starts again
    energy_penalty: float = 10.0  # alpha, per budget that is spent too much
    power_decades: float = 1.5  # how far the action reaches above and below the first powers
    reward: Literal["current", "literal"] = "current"


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
        self.players = _Players(Game(problem, settings or PpoSettings()), 1)
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
        info = {"power": self.players.power[0].copy(), "extra": self.players.extra[0].copy()}
        return self.players.state[0].copy(), float(reward[0]), done, False, info


class _Players:
    """The state of many players of one game."""

    def __init__(self, game: Game, count: int) -> None:
        self.game, self.count = game, count
        self.age = np.zeros(count, dtype=np.int64)
        self.state = np.zeros((count, 2 * game.problem.size + 2), dtype=np.float32)
        self.last_reward = np.zeros(count)
        self.power = np.ones((count, game.problem.size))
        self.extra = np.zeros((count, game.problem.size), dtype=np.int64)

    @property
    def over(self) -> NDArray[np.bool_]:
        """Whose episode has ended."""
        return np.asarray(self.age >= self.game.settings.episode)

    def restart(self, rng: np.random.Generator, who: NDArray[np.bool_]) -> None:
        """Put some players on random allocations."""
        action = rng.uniform(-1, 1, (int(who.sum()), 2 * self.game.problem.size))
        score, energy = self.game.judge(*self.game.decode(action))
        self.state[who] = self.game.observe(action, score, energy)
        self.last_reward[who] = self.game.reward(score, energy)
        self.age[who] = 0

    def act(self, action: NDArray[Any]) -> Float64:
        """Let everyone act; the literal reward is the one of the round before."""
        self.power, self.extra = self.game.decode(action)
        score, energy = self.game.judge(self.power, self.extra)
        self.state = self.game.observe(action, score, energy)
        earned = self.game.reward(score, energy)
        paid = self.last_reward if self.game.settings.reward == "literal" else earned
        self.last_reward = earned
        self.age += 1
        return paid.copy()


class ArrayVecEnv(VecEnv):
    """Many players as one array computation: all environments share this object."""

    def __init__(self, problem: Problem, settings: PpoSettings, rng: np.random.Generator) -> None:
        self.players = _Players(Game(problem, settings), settings.environments)
        self.rng, self.best = rng, self.players.game.best
        self.mean_reward = 0.0
        game = self.players.game
        super().__init__(settings.environments, game.observation_space, game.action_space)

    def reset(self) -> NDArray[np.float32]:
        self.players.restart(self.rng, np.ones(self.num_envs, dtype=np.bool_))
        return self.players.state.copy()

    def step_async(self, actions: NDArray[Any]) -> None:
        self.actions = actions

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Evaluate all actions, remember the best, restart the players that are done."""
        players = self.players
        reward = players.act(self.actions)
        self.mean_reward = float(reward.mean())
        done, infos = players.over.copy(), [dict[str, Any]() for _ in range(self.num_envs)]
        if done.any():
            for i in np.flatnonzero(done).tolist():
                infos[i]["terminal_observation"] = players.state[i].copy()
            players.restart(self.rng, done)
        return players.state.copy(), reward.astype(np.float32), done, infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * len(self._count(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        return [getattr(self, method_name)(*args, **kwargs) for _ in self._count(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(self._count(indices))

    def _count(self, indices: Any) -> Sequence[int]:
        return list(self._get_indices(indices))


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


class _Curve(BaseCallback):
    """Keeps the learning curve and reports progress after each rollout.

    The curve begins with the first rollout after which a feasible allocation is known.
    """

    def __init__(self, environment: ArrayVecEnv, total: int, progress: Progress) -> None:
        super().__init__()
        self.environment, self.total, self.progress = environment, total, progress
        self.points: list[list[float]] = []
        self.rewards: list[float] = []

    def _on_step(self) -> bool:
        self.rewards.append(self.environment.mean_reward)
        return True

    def _on_rollout_end(self) -> None:
        best = self.environment.best.objective
        if np.isfinite(best):
            self.points.append([self.num_timesteps, best, float(np.mean(self.rewards))])
        self.rewards.clear()
        done = min(self.num_timesteps, self.total)
        self.progress(f"PPO, best so far {best:.4g}", done, self.total)


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
    settings = settings or PpoSettings()
    lower = solve_exact(problem).lower_bound
    stream = derive(seed, "ppo")
    environment = ArrayVecEnv(problem, settings, stream.numpy())
    curve = _Curve(environment, settings.steps, progress)
    with _one_thread(), _own_randomness():
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
            ent_coef=settings.entropy,
            policy_kwargs={"net_arch": list(settings.hidden), "log_std_init": settings.log_std},
            seed=stream.entropy % 2**31,
            device="cpu",
        )
        agent.learn(settings.steps, callback=curve)
    return _answer(problem, environment.best, lower, curve, seed, began)


def _answer(
    problem: Problem, best: Best, lower: float, curve: _Curve, seed: int, began: float
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
        details={"seed": seed, "learning_curve": curve.points},
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """The networks are tiny: threads would spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Stable-baselines3 seeds and uses the global generators; leave them as they were."""
    python, numbers, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
        torch.set_rng_state(tensors)
