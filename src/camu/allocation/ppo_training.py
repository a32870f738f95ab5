"""The training of P1 and P2 by proximal policy optimisation: players, environment, curve.

A game turns actions in [-1, 1] into a score and a share of the budget, for many players at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from camu.arrays import Float64
from camu.seeding import derive
from camu.work import Progress


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


class Trial(Protocol):
    """The best feasible answer among all that were tried."""

    @property
    def objective(self) -> float: ...


class AnyGame(Protocol):
    """An allocation problem as a game: rows are players, everything is an array."""

    @property
    def settings(self) -> PpoSettings: ...

    @property
    def best(self) -> Trial: ...

    @property
    def action_space(self) -> spaces.Box: ...

    @property
    def observation_space(self) -> spaces.Box: ...

    def play(self, action: NDArray[Any]) -> tuple[Float64, Float64]:
        """What these actions score, and the share of the budget that they spend."""
        ...

    def observe(self, action: NDArray[Any], score: Float64, spent: Float64) -> NDArray[np.float32]:
        """The state after actions."""
        ...

    def reward(self, score: Float64, spent: Float64) -> Float64:
        """What actions earn."""
        ...


class Players:
    """The state of many players of one game."""

    def __init__(self, game: AnyGame, count: int) -> None:
        self.game, self.count = game, count
        self.age = np.zeros(count, dtype=np.int64)
        self.state = np.zeros((count, *game.observation_space.shape), dtype=np.float32)
        self.last_reward = np.zeros(count)

    @property
    def over(self) -> NDArray[np.bool_]:
        """Whose episode has ended."""
        return np.asarray(self.age >= self.game.settings.episode)

    def restart(self, rng: np.random.Generator, who: NDArray[np.bool_]) -> None:
        """Put some players on random allocations."""
        action = rng.uniform(-1, 1, (int(who.sum()), *self.game.action_space.shape))
        score, energy = self.game.play(action)
        self.state[who] = self.game.observe(action, score, energy)
        self.last_reward[who] = self.game.reward(score, energy)
        self.age[who] = 0

    def act(self, action: NDArray[Any]) -> Float64:
        """Let everyone act; the literal reward is the one of the round before."""
        score, energy = self.game.play(action)
        self.state = self.game.observe(action, score, energy)
        earned = self.game.reward(score, energy)
        paid = self.last_reward if self.game.settings.reward == "literal" else earned
        self.last_reward = earned
        self.age += 1
        return paid.copy()


class ArrayVecEnv(VecEnv):
    """Many players as one array computation: all environments share this object."""

    def __init__(self, game: AnyGame, settings: PpoSettings, rng: np.random.Generator) -> None:
        self.players = Players(game, settings.environments)
        self.rng, self.game = rng, game
        self.mean_reward = 0.0
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
        best = self.environment.game.best.objective
        if np.isfinite(best):
            self.points.append([self.num_timesteps, best, float(np.mean(self.rewards))])
        self.rewards.clear()
        done = min(self.num_timesteps, self.total)
        self.progress(f"PPO, best so far {best:.4g}", done, self.total)


def train(game: AnyGame, seed: int, progress: Progress) -> list[list[float]]:
    """Train a policy on a game, which remembers the best answer.

    Returns the learning curve: [steps, best objective so far, mean reward] per rollout.
    """
    settings, stream = game.settings, derive(seed, "ppo")
    environment = ArrayVecEnv(game, settings, stream.numpy())
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
    return curve.points


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
