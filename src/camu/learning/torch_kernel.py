"""Training on torch's layers: for any model, and wherever there are no compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError

import numpy as np
import torch
from torch import nn

from camu.arrays import Float32, Int64
from camu.data.batches import Schedule, Schedules
from camu.errors import CamuError
from camu.learning.cnn import SeededCNN
from camu.learning.data import Data, DeviceBatch
from camu.learning.job import Trained
from camu.learning.kernel import Kernels, Training
from camu.learning.models import as_module
from camu.learning.pool import failure
from camu.learning.replica import Replica, Tensors
from camu.learning.weights import Weights, weighted_mean
from camu.seeding import Stream, derive


class TorchKernel:
    """A replica of the model, and the data it computes on."""

    def __init__(
        self, replica: Replica, train: Tensors | None, test: Tensors | None, seed: int
    ) -> None:
        self.replica, self._train, self._test, self._seed = replica, train, test, seed

    def train(
        self, trainings: Sequence[Training], schedules: Schedules, go_on: Callable[[], None]
    ) -> list[Trained]:
        pairs = zip(trainings, schedules.apart(), strict=True)
        return [self._train_named(*pair, go_on) for pair in pairs]

    def evaluate(self, weights: Weights, span: slice) -> tuple[int, float]:
        assert self._test is not None
        self.replica.load(weights)
        return self.replica.evaluate(self._test, span)

    def full_pass(
        self, weights: Weights, parts: Sequence[DeviceBatch], backward: bool
    ) -> tuple[Float32, float]:
        assert self._train is not None
        self.replica.load(weights)
        stream = derive(self._seed, "full-pass-dropout", parts[0].device)
        loss = self.replica.full_pass(self._train, parts, stream, backward)
        return self.replica.gradient.cpu().numpy().copy(), loss

    def _train_named(
        self, training: Training, schedule: Schedule, go_on: Callable[[], None]
    ) -> Trained:
        """An error in the user's module names the unit, not all units of the task."""
        try:
            return self._train_unit(training, schedule, go_on)
        except (CamuError, CancelledError):
            raise
        except Exception as error:
            raise failure(training.what, error) from error

    def _train_unit(
        self, training: Training, schedule: Schedule, go_on: Callable[[], None]
    ) -> Trained:
        job = training.job
        self.replica.load(training.start)
        self.replica.prepare_rule(job.rule.proximal, job.anchor, job.correction)
        updates = range(job.first, job.first + job.updates)
        batches = iter(schedule.batches)
        if training.together:
            losses = [self._step_together(training, n, batches, go_on) for n in updates]
            return Trained(self.replica.save(), float(np.mean(losses)))
        state, losses, steps = training.start, [], schedule.steps.tolist()
        for update in updates:
            state, loss = self._update_apart(training, state, update, steps, batches, go_on)
            losses.append(loss)
        return Trained(state, float(np.mean(losses)))

    def _step_together(
        self,
        training: Training,
        update: int,
        batches: Iterator[Int64],
        go_on: Callable[[], None],
    ) -> float:
        go_on()
        parts = [
            DeviceBatch(device, next(batches), share)
            for device, share in zip(training.job.members, training.shares, strict=True)
        ]
        return self._step(training, parts, update)

    def _update_apart(
        self,
        training: Training,
        state: Weights,
        update: int,
        counts: Sequence[int],
        batches: Iterator[Int64],
        go_on: Callable[[], None],
    ) -> tuple[Weights, float]:
        """Members take several steps each from the same state, then average."""
        results: list[tuple[float, Weights]] = []
        loss = 0.0
        members = training.job.members
        for device, share, steps in zip(members, training.shares, counts, strict=True):
            self.replica.load(state)
            losses = []
            for step in range(update * steps, (update + 1) * steps):
                go_on()
                losses.append(self._step(training, [DeviceBatch(device, next(batches), 1.0)], step))
            results.append((share, self.replica.save()))
            loss += share * float(np.mean(losses))
        return (results[0][1] if len(results) == 1 else weighted_mean(results)), loss

    def _step(self, training: Training, parts: Sequence[DeviceBatch], step: int) -> float:
        def stream(device: int) -> Stream:
            return derive(self._seed, "dropout", training.round_number, device, step)

        assert self._train is not None
        return self.replica.step(self._train, parts, training.rate, training.l2, stream)


def torch_kernels(
    model: nn.Module | SeededCNN, device: str, train: Data | None, test: Data | None, seed: int
) -> Kernels:
    """Kernels of torch's layers; a model that cannot be trained is refused."""
    module, where = as_module(model), torch.device(device)
    held = [None if data is None else Tensors.of(data, where) for data in (train, test)]
    given = next((data for data in held if data is not None), None)
    if given is None:
        raise CamuError("an engine needs training or test samples")
    probe = Replica(module, where)
    fused = probe.can_fuse(given)
    return Kernels(
        name="torch",
        fused=fused,
        whole_devices=probe.mixes_samples,
        make=lambda _: TorchKernel(Replica(module, where, fused), held[0], held[1], seed),
    )
