"""Schemes as the code behind published tables has them, where it differs from the papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import AnyArray, Float32, Float64, Int64
from camu.learning.weights import Weights
from camu.planning.groups import make_plan, single_devices
from camu.schemes import LocalSgd
from camu.schemes.adaptive_tau import control_value, estimate
from camu.schemes.aggregation import MeanUpdate
from camu.schemes.contract import Count, Plan, Positive, Scheme, State, View, World
from camu.schemes.fednova import normalised
from camu.schemes.scaffold import Scaffold
from camu.schemes.server_steps import TwoSided
from camu.seeding import derive


@dataclass(frozen=True)
class BenchNova(LocalSgd):
    """FedNova with momentum: local epochs, each update divided by what its steps move in all."""

    name = "bench-nova"

    def plan(self, world: World) -> Plan:
        return normalised(super().plan(world), world)


@dataclass(frozen=True)
class BenchScaffold(Scaffold):
    """SCAFFOLD whose control variates ignore momentum, as the benchmark's code has it.

    Theirs are (x - y_i) / (steps rate), which under momentum rho is 1 / (1 - rho) gradients long,
    and c - c_i is added beside the velocity. Here the correction passes through the velocity, so it
    is (1 - rho) of theirs: after some dozen steps a step moves as much as theirs.
    """

    name = "bench-scaffold"

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        found = super().correction(view, state, unit)
        momentum = view.world.config.training.momentum
        return None if found is None else np.float32(1 - momentum) * found

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> Float32:
        own, training = view.plan.units[unit], view.world.config.training
        (device,) = own.members
        samples = int(view.world.devices.samples[device])
        assert training.batch_samples is not None
        steps = own.local_updates * -(-samples // training.batch_samples)
        before = 0 if kept is None else kept
        mean = state.get("mean", np.float32(0))
        after: Float32 = before - mean - change / np.float32(steps * training.learning_rate)
        return after


@dataclass(frozen=True)
class Fedl(TwoSided):
    """FEDL: local steps along g(w) + eta (mean gradient) - (own gradient), both at the start.

    Gradients at the start are exact, as in the authors' code, over the devices that take part.
    """

    eta: Positive = 0.2
    name = "anchors-fedl"
    uses_oracle = True

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        assert view.oracle is not None
        everyone = [m for own in self.select(view, state) for m in view.plan.units[own].members]
        own = view.oracle.gradient(view.weights, view.plan.units[unit].members)
        mean = view.oracle.gradient(view.weights, everyone)
        found: Float32 = np.float32(self.eta) * mean - own
        return found


_BLOCK_WATTS = 1e-8 * (np.array([5.0, 7.0, 9.0, 11.0, 13.0, 15.0]) - 4)  # interference of each
_NOISE_WATTS, _POWER_WATTS, _WATERFALL = 1e-14, 0.01, 1.08
_MEGABITS = 39_760 * 16 / 2**20  # of an update
_DOWNLINK = 20.0  # times as wide as a block, with an interference of its own
_DOWNLINK_WATTS = 1.8e-7
_MOST_SECONDS, _MOST_JOULES = 0.5, 0.003
_COMPUTE_JOULES = 1e-27 * 40 * 1e18 * _MEGABITS


class Edges(NamedTuple):
    """What every user could do on every block (users, blocks)."""

    error: Float64  # chance that an update is lost; 1 where a limit forbids the block
    allowed: npt.NDArray[np.bool_]


def block_edges(metres: Float64) -> Edges:
    """Packet errors and limits of users at these distances from the base station."""
    gain = metres[:, None] ** -2.0
    heard = _BLOCK_WATTS[None, :] + _NOISE_WATTS
    error = 1 - np.exp(-_WATERFALL * heard / (_POWER_WATTS * gain))
    up = _MEGABITS / np.log2(1 + _POWER_WATTS * gain / _BLOCK_WATTS[None, :])
    down = _MEGABITS / (_DOWNLINK * np.log2(1 + gain / _DOWNLINK_WATTS))
    allowed = (up + down <= _MOST_SECONDS) & (_COMPUTE_JOULES + _POWER_WATTS * up <= _MOST_JOULES)
    return Edges(np.where(allowed, error, 1.0), allowed)


@dataclass(frozen=True)
class BlockUsers(Scheme):
    """Users on resource blocks with interference; an update is lost with its packet error.

    `joint` maximises the expected samples that arrive (Hungarian); `users` takes the same users on
    blocks at random; `random` draws both; `errors` minimises the sum of packet errors.
    """

    method: Literal["joint", "users", "random", "errors"] = "joint"
    name = "anchors-blocks"

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights)

    def assigned(self, samples: Float64, world_seed: int) -> dict[int, float]:
        """The users that have a block, with their packet errors."""
        draw = derive(world_seed, "own-blocks").numpy()
        edges = block_edges(draw.uniform(0, 500, len(samples)))
        users, blocks = best_blocks(samples[:, None] * (1 - edges.error))
        if self.method == "users":
            blocks = draw.permutation(blocks)
        elif self.method == "random":
            users = draw.permutation(len(samples))[: len(blocks)]
            blocks = draw.permutation(len(_BLOCK_WATTS))
        elif self.method == "errors":
            users, blocks = best_blocks(1 - edges.error)
        chosen = zip(users.tolist(), blocks.tolist(), strict=True)
        return {u: float(edges.error[u, b]) for u, b in chosen if edges.allowed[u, b]}

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean of what arrives; the model stays where nothing does."""
        errors = self.assigned(view.world.devices.samples.astype(float), view.world.seed)
        draw = view.random().numpy().random(len(view.plan.units))
        mean = MeanUpdate(view.weights)
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            if draw[arrival.unit] >= errors.get(arrival.unit, 1.0):
                mean.add(arrival.weight, arrival.update, arrival.buffers)
        return mean.added()


def best_blocks(worth: Float64) -> tuple[Int64, Int64]:
    """Users and blocks, at most one each, whose worth (users, blocks) is largest in all."""
    from scipy.optimize import linear_sum_assignment

    users, blocks = linear_sum_assignment(worth, maximize=True)
    return np.asarray(users), np.asarray(blocks)


_STEP_SECONDS, _AVERAGE_SECONDS = (0.013015, 0.006946), (0.131604, 0.053873)  # mean, deviation


@dataclass(frozen=True)
class TauWithin(Scheme):
    """All devices run tau steps between averages until a budget of seconds is used."""

    tau: Count = 1
    budget_seconds: Positive = 15.0
    name = "anchors-tau"

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights, self.tau)

    def revise(self, view: View, state: State) -> Plan | None:
        """The last round is cut to what the budget leaves, with a step and an average to spare."""
        tau = view.plan.units[0].local_updates
        draw = view.random().numpy()
        steps = np.maximum(draw.normal(*_STEP_SECONDS, tau), 1e-10)
        average = max(float(draw.normal(*_AVERAGE_SECONDS)), 1e-10)
        used = float(state.get("used", 0.0)) + float(steps.sum()) + average
        state["used"] = used
        local = float(steps.mean())
        if state.get("last"):
            state["finished"] = True
            return None
        wanted = self.next_tau(view, state, local, average)
        left = self.budget_seconds - used - local - 2 * average
        if wanted * local >= left:
            state["last"], wanted = True, int(left / local)
            if wanted < 1:
                state["finished"] = True
                return None
        return view.plan.with_updates([wanted] * len(view.plan.units))

    def next_tau(self, view: View, state: State, local: float, average: float) -> int:
        """tau of the next round."""
        return self.tau

    def finished(self, view: View, state: State) -> bool:
        return bool(state.get("finished"))


@dataclass(frozen=True)
class AdaptiveTauWithin(TauWithin):
    """tau by Wang et al.'s control, with seconds as the resource and exact losses and gradients."""

    control: Positive = 0.025  # phi
    most: Count = 100
    name = "anchors-adaptive-tau"
    uses_oracle = True

    def next_tau(self, view: View, state: State, local: float, average: float) -> int:
        """The tau between 1 and ten times the present one with the smallest bound."""
        constants = estimate(view)
        tau = view.plan.units[0].local_updates
        if constants is None:
            return tau
        costs = local, average, self.budget_seconds
        rate = view.world.config.training.learning_rate
        tries = range(1, min(10 * tau, self.most) + 1)
        return min(tries, key=lambda t: control_value(t, constants, costs, rate, self.control))
