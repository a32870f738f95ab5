"""Runs of schemes for tests: their bits, their models, and quadratic losses with known optima."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from camu.learning.job import Evaluation, Job, Trained
from camu.learning.kernel import Provenance
from camu.learning.weights import Entry, Layout, Weights
from camu.schemes import Scheme, plans
from camu.simulation import Callback, Record, Run, simulate
from camu.simulation.result import run_rounds
from camu.world import World


def bits(world: World, scheme: Scheme) -> str:
    """The fingerprint of the trained model."""
    return simulate(world, scheme).history.weights_sha256


class Models(Callback):
    """The global model after every round, round 0 included."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def on_start(self, run: Run) -> None:
        self.seen.append(run.weights.parameters)

    def on_round(self, run: Run, record: Record) -> None:
        self.seen.append(run.weights.parameters)


def models(world: World, scheme: Scheme) -> list[np.ndarray]:
    """The global models of a run."""
    watch = Models()
    simulate(world, scheme, [watch])
    return watch.seen


class Quadratics:
    """A trainer whose device k has the loss 1/2 sum_j h_kj (w_j - a_kj)^2 and exact gradients."""

    provenance: Provenance = Provenance("quadratics")

    def __init__(self, world: World, size: int = 4, seed: int = 5) -> None:
        generator = np.random.default_rng(seed)
        count = world.devices.count
        self.samples = world.devices.samples
        self.curvature = generator.uniform(0.5, 3.0, (count, size))
        self.centre = generator.normal(0, 2, (count, size))
        self.rate = world.config.training.learning_rate
        layout = Layout((Entry("w", (size,)),), ())
        self.initial = Weights(np.zeros(size, np.float32), np.zeros(0, np.float32), layout)

    def gradient_of(self, device: int, w: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.curvature[device] * (w - self.centre[device])
        return found

    def optimum(self, weights: Sequence[float]) -> np.ndarray:
        """Where the sum of the devices' losses with these weights is least."""
        pull = np.asarray(weights)[:, None] * self.curvature
        found: np.ndarray = (pull * self.centre).sum(axis=0) / pull.sum(axis=0)
        return found

    @property
    def oracle(self) -> Quadratics:
        return self

    def loss(self, weights: Weights, members: Sequence[int] | None = None) -> float:
        w = weights.parameters.astype(np.float64)
        each = 0.5 * (self.curvature * np.square(w - self.centre)).sum(axis=1)
        return float(self._mean(each[:, None], members)[0])

    def gradient(self, weights: Weights, members: Sequence[int] | None = None) -> np.ndarray:
        w = weights.parameters.astype(np.float64)
        found: np.ndarray = self._mean(self.curvature * (w - self.centre), members)
        return found.astype(np.float32)

    def _mean(self, rows: np.ndarray, members: Sequence[int] | None) -> np.ndarray:
        chosen = list(range(len(rows)) if members is None else members)
        found: np.ndarray = np.average(rows[chosen], axis=0, weights=self.samples[chosen])
        return found

    def evaluate(self, weights: Weights) -> Evaluation:
        return Evaluation(0.0, 0.0)

    def iterate(
        self, start: Any, jobs: Iterable[Job], round_number: int, deliver: Callable[..., Any]
    ) -> Iterator[Any]:
        own = list(jobs)
        starts = [start] * len(own) if isinstance(start, Weights) else start
        for number, (begin, job) in enumerate(zip(starts, own, strict=True)):
            w = begin.parameters.astype(np.float64)
            anchor, extra = w.copy(), 0.0 if job.correction is None else job.correction
            for _ in range(job.updates):
                new = np.zeros_like(w)
                for device, share in zip(job.members, job.weights, strict=True):
                    mine = w.copy()
                    for _ in range(job.rule.steps):
                        pull = job.rule.proximal * (mine - anchor)
                        slope = self.gradient_of(device, mine) + extra + pull
                        mine -= self.rate * job.rule.rate * slope
                    new += share * mine
                w = new
            trained = Trained(begin.with_parameters(w), float(np.square(w).sum()))
            yield deliver(number, trained)


def ends_at(world: World, scheme: Scheme) -> tuple[np.ndarray, Quadratics]:
    """The last model on quadratic losses, and the losses."""
    trainer = Quadratics(world)
    run = Run.new(world, plans.plan(scheme, world), trainer.initial)
    run_rounds(run, scheme, trainer)
    return run.weights.parameters, trainer
