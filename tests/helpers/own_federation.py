"""A federation written again in plain numpy, with nothing of camu's training and aggregation.

It takes from camu what is not under test: the data of the devices, the initial weights, the order
in which a device draws its samples, and the plan's clusters and times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import wasserstein_distance

import camu
from camu.seeding import derive
from camu.simulation.result import build_engine
from helpers.configs import IDEAL

Vector = np.ndarray[Any, np.dtype[np.float64]]

WORLD = {
    "radio.uplink": "digital",
    "data.size_exponent": 1.0,
    "data.samples_per_device": 30,
    "data.with_replacement": True,
    "training.learning_rate": 0.5,
    "training.model": "logistic",
    "machine.workers": 1,
    "run.eval_every": 100,
}


class Sent(NamedTuple):
    """What a device has sent: from which model it started, when, and what it trained."""

    device: int
    version: int
    start: Vector
    end: Vector
    loss: float


class Federation:
    """Softmax regression, or a network with hidden layers of ReLU, on the devices of a world."""

    def __init__(self, scheme: camu.Scheme, rounds: int, **keys: Any) -> None:
        overrides = {**IDEAL, **WORLD, "run.rounds": rounds, **keys}
        self.world = camu.build_world(camu.load_config(preset="demo", overrides=overrides), seed=3)
        self.scheme, self.rounds = scheme, rounds
        self.plan = camu.plan(scheme, self.world)
        with build_engine(self.world) as engine:
            data = engine.train_data
            self.images = np.asarray(data.inputs).reshape(len(data.inputs), -1) / 255.0
            self.labels = np.asarray(data.targets).astype(int)
            self.initial = engine.initial.parameters.astype(np.float64)
            shapes = [entry.shape for entry in engine.initial.layout.parameters]
            self.held = [np.array(own) for own in engine.batches.device_indices]
            self.batch = [engine.batches.size(device) for device in range(len(self.held))]
        self.layers = [shape for shape in shapes if len(shape) == 2]
        self.devices = range(len(self.held))
        self.samples = np.array([len(own) for own in self.held], dtype=float)
        self.shares = self.samples / self.samples.sum()
        self.rate = self.world.config.training.learning_rate
        self.counts = np.asarray(self.world.devices.label_counts, dtype=float)

    def simulated(self) -> Vector:
        """What camu makes of it."""
        result = camu.simulate(self.world, self.scheme)
        return result.weights.parameters.astype(np.float64)

    def draw(self, round_: int, device: int, step: int, size: int | None = None) -> Vector:
        """The samples of a local step: permutations of the device's samples, cut into batches."""
        size, held = size or self.batch[device], self.held[device]
        number, place = divmod(step, math.ceil(len(held) / size))
        generator = derive(self.world.seed, "batch", round_).numpy(device, number)
        return generator.permutation(held)[place * size : (place + 1) * size]

    def loss_and_gradient(self, weights: Vector, rows: Vector) -> tuple[float, Vector]:
        """Mean cross-entropy of these samples, and its gradient by the chain rule."""
        parts, at = [], 0
        for out, into in self.layers:
            matrix = weights[at : at + out * into].reshape(out, into)
            parts.append((matrix, weights[at + out * into : at + out * into + out]))
            at += out * into + out
        inputs = [self.images[rows]]
        for number, (matrix, bias) in enumerate(parts):
            z = inputs[-1] @ matrix.T + bias
            inputs.append(np.maximum(z, 0) if number < len(parts) - 1 else z)
        z = inputs.pop()
        z = z - z.max(axis=1, keepdims=True)
        chance = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        truth = np.eye(chance.shape[1])[self.labels[rows]]
        loss = float(-np.log((chance * truth).sum(axis=1)).mean())
        back, found = (chance - truth) / len(rows), []
        for (matrix, _), into in zip(reversed(parts), reversed(inputs), strict=True):
            found.append(np.concatenate([(back.T @ into).ravel(), back.sum(axis=0)]))
            back = (back @ matrix) * (into > 0)
        return loss, np.concatenate(found[::-1])

    def train(
        self,
        start: Vector,
        round_: int,
        device: int,
        steps: int,
        *,
        first: int = 0,
        factor: float = 1.0,
        size: int | None = None,
        proximal: float = 0.0,
        correction: Vector | float = 0.0,
    ) -> tuple[Vector, float]:
        """A device's model after some SGD steps, and its mean loss over them."""
        weights, losses = start.copy(), []
        for step in range(first, first + steps):
            rows = self.draw(round_, device, step, size)
            loss, gradient = self.loss_and_gradient(weights, rows)
            gradient = gradient + proximal * (weights - start) + correction
            weights = weights - factor * self.rate * gradient
            losses.append(loss)
        return weights, float(np.mean(losses))

    def cluster(
        self,
        start: Vector,
        round_: int,
        members: Sequence[int],
        shares: Sequence[float],
        gathers: int,
        steps: int = 1,
        correction: Vector | float = 0.0,
    ) -> Vector:
        """A cluster's model: in each gather its members take steps and average at the leader."""
        weights = start.copy()
        for gather in range(gathers):
            own = [
                self.train(
                    weights, round_, device, steps, first=gather * steps, correction=correction
                )[0]
                for device in members
            ]
            weights = sum(share * model for share, model in zip(shares, own, strict=True))
        return weights

    def inside(self, members: Sequence[int]) -> Vector:
        """The shares of members by their samples."""
        own = self.samples[list(members)]
        return np.asarray(own / own.sum())

    def contributions(self, groups: Iterable[Sequence[int]]) -> Vector:
        """ln theta of each group: ln |D| + 1 / W with scipy's Wasserstein distance."""
        labels, everyone = range(self.counts.shape[1]), self.counts.sum(axis=0)
        found = []
        for members in groups:
            own = self.counts[list(members)].sum(axis=0)
            distance = wasserstein_distance(labels, labels, own, everyone)
            least = self.world.config.readings.w_min
            found.append(math.log(own.sum()) + 1 / max(distance, least))
        return np.array(found)

    @property
    def members(self) -> list[tuple[int, ...]]:
        """The devices of each unit."""
        return [unit.members for unit in self.plan.units]

    def fitting(self, most: int) -> list[int]:
        """Updates of each unit that fit while the slowest unit makes one."""
        cost = [unit.per_update for unit in self.plan.units]
        seconds = [one.compute_seconds + one.gather_seconds for one in cost]
        return [1 + min(most, int(max(seconds) / own + 1e-9) - 1) for own in seconds]

    def events(
        self,
        train: Callable[[Vector, int, int], tuple[Vector, float]],
        ready: Callable[[list[Sent], int, dict[int, int]], bool],
        aggregate: Callable[[Vector, list[Sent], int, set[int]], Vector],
        begins: Callable[[set[int]], Iterable[int]] = sorted,
        start: Callable[[Vector, int], Vector] = lambda weights, _: weights,
    ) -> Vector:
        """The global model of an asynchronous run on one TDMA channel, first ready first served.

        `ready` gets what has arrived, the version, and the version at which each device on its
        way started. Idle devices of `begins` start after an aggregation.
        """
        weights, version, now, free = self.initial.copy(), 0, 0.0, 0.0
        queue: list[tuple[float, int, int]] = []
        flying: dict[int, Sent] = {}
        idle: set[int] = set(self.devices)

        def begin() -> None:
            for device in begins(idle.copy()):
                idle.discard(device)
                at = start(weights, device)
                flying[device] = Sent(device, version, at, *train(at, version, device))
                heapq.heappush(queue, (now + self.plan.units[device].ready_seconds, 0, device))

        begin()
        arrived: list[Sent] = []
        while version < self.rounds:
            now, kind, device = heapq.heappop(queue)
            if kind == 0:
                free = max(now, free) + self.plan.units[device].uplink_seconds
                heapq.heappush(queue, (free, 1, device))
                continue
            arrived.append(flying.pop(device))
            if ready(arrived, version, {k: own.version for k, own in flying.items()}):
                weights = aggregate(weights, arrived, version, set(flying))
                idle |= {own.device for own in arrived}
                arrived, version = [], version + 1
                begin()
        return weights
