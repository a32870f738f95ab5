"""The loops that the engine is compared with: a plain one, and a tuned one, both of torch alone.

Plain is the obvious way: torch's layers, its default threads and layout, an optimiser, a state dict
per device. Tuned is the best simple loop that we know: one process per core with one torch thread,
channels-last images, parameters and gradients in flat tensors, in-place steps, updates added up
where they are computed. Both take one device after another. Their batches are drawn before the
clock starts; the engine's are drawn while it runs.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.arrays import Float32
from camu.bench.workloads import LEARNING_RATE, Samples, Share, Workload
from camu.learning.pool import available_cores
from camu.learning.weights import Weights
from camu.work import end_with_parent

EVALUATION_BATCH = 500


class PlainLoop:
    """The obvious way: torch's layers, its default threads, one device after another."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.threads = workload, torch.get_num_threads()
        self.model = workload.build_model()
        (self.images, self.labels), self.test = map(_as_tensors, workload.samples())

    def round(
        self, shares: Sequence[Share], round_number: int, start: Weights
    ) -> tuple[float, Float32]:
        """The seconds to train these devices, and the weighted sum of their states."""
        batches = self.workload.batches(shares, round_number)
        # The engine's workers set the threads of matrix products for the whole process.
        torch.set_num_threads(self.threads)
        self.model.train()
        begin = time.perf_counter()
        first = {key: torch.from_numpy(array.copy()) for key, array in start.tensors().items()}
        total = {key: torch.zeros_like(value) for key, value in first.items()}
        for share, chosen in zip(shares, batches, strict=True):
            self.model.load_state_dict(first, strict=False)
            optimiser = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
            for indices in chosen:
                images = self.images[indices].float() / 255
                optimiser.zero_grad()
                F.cross_entropy(self.model(images), self.labels[indices]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            state = self.model.state_dict()
            for key in total:
                total[key] += share.weight * state[key]
        seconds = time.perf_counter() - begin
        return seconds, torch.cat([value.reshape(-1) for value in total.values()]).numpy()

    def evaluate(self, start: Weights) -> tuple[float, float, float]:
        """Seconds, accuracy and mean loss of a model on the test samples."""
        torch.set_num_threads(self.threads)
        start.load_into(self.model)
        begin = time.perf_counter()
        right, loss = _evaluate(self.model, *self.test, torch.contiguous_format)
        count = len(self.test[1])
        return time.perf_counter() - begin, right / count, loss / count


class TunedLoop:
    """The tuned way, on worker processes that stay for all workloads; a context manager."""

    def __init__(self, workers: int = 0) -> None:
        context = multiprocessing.get_context("spawn")  # forks of a process with threads may hang
        self.workers = [
            ProcessPoolExecutor(1, context, _begin_worker, (os.getpid(),))
            for _ in range(workers or available_cores())
        ]

    def __enter__(self) -> TunedLoop:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.shutdown()

    def use(self, workload: Workload) -> None:
        """Let the next rounds be those of a workload."""
        self.workload = workload

    def round(
        self, shares: Sequence[Share], round_number: int, start: Weights
    ) -> tuple[float, Float32]:
        """The seconds to train these devices, and the weighted sum of their states."""
        count = len(self.workers)
        self._ask_all("draw", [(shares[number::count], round_number) for number in range(count)])
        begin = time.perf_counter()
        state = np.concatenate([start.parameters, start.buffers])
        totals = self._ask_all("train", [(state,)] * count)
        result: Float32 = np.sum(totals, axis=0)
        return time.perf_counter() - begin, result

    def evaluate(self, start: Weights) -> tuple[float, float, float]:
        """Seconds, accuracy and mean loss of a model on the test samples."""
        count = len(self.workers)
        begin = time.perf_counter()
        state = np.concatenate([start.parameters, start.buffers])
        parts = self._ask_all("evaluate", [(state, number, count) for number in range(count)])
        right, loss, samples = (sum(values) for values in zip(*parts, strict=True))
        return time.perf_counter() - begin, right / samples, loss / samples

    def _ask_all(self, what: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers of all workers, which compute at the same time."""
        asked = zip(self.workers, arguments, strict=True)
        answers = [one.submit(_answer, self.workload, what, *values) for one, values in asked]
        return [answer.result() for answer in answers]


def _begin_worker(parent: int) -> None:
    end_with_parent(parent)
    torch.set_num_threads(1)


def _answer(workload: Workload, what: str, *values: Any) -> Any:
    return getattr(_worker(workload), what)(*values)


class _TunedWorker:
    """The data and the model of one worker process."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        (self.images, self.labels), self.test = map(_as_tensors, workload.samples())
        self.module = workload.build_model()
        self.state, self.gradient = _flattened(self.module)
        self.work: list[tuple[float, list[Tensor]]] = []

    def draw(self, shares: Sequence[Share], round_number: int) -> None:
        """Draw the batches of the next round."""
        drawn = self.workload.batches(shares, round_number)
        self.work = [
            (share.weight, [torch.from_numpy(indices) for indices in batches])
            for share, batches in zip(shares, drawn, strict=True)
        ]

    def train(self, state: Float32) -> Float32:
        """The weighted sum of the devices' trained states."""
        self.module.train()
        start, parameters = torch.from_numpy(state), self.state[: len(self.gradient)]
        total = torch.zeros_like(start)
        for weight, batches in self.work:
            self.state.copy_(start)
            for indices in batches:
                images = _floats(self.images[indices], torch.channels_last)
                self.gradient.zero_()
                F.cross_entropy(self.module(images), self.labels[indices]).backward()  # type: ignore[no-untyped-call]
                parameters.add_(self.gradient, alpha=-LEARNING_RATE)
            total.add_(self.state, alpha=weight)
        return cast(Float32, total.numpy())

    def evaluate(self, state: Float32, number: int, count: int) -> tuple[int, float, int]:
        """Right answers, sum of losses and number of samples in this worker's part of the test."""
        self.state.copy_(torch.from_numpy(state))
        images, labels = (part.tensor_split(count)[number] for part in self.test)
        # Forward alone is faster with the kernels channels-last too; training is not.
        module = deepcopy(self.module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return (*_evaluate(module, images, labels, torch.channels_last), len(labels))


_worker = lru_cache(maxsize=1)(_TunedWorker)  # of this process, for the present workload


def _flattened(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Flat tensors for the state of a module and for its gradient, which it uses from now on."""
    parameters = list(module.parameters())
    buffers = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
    tensors = [*parameters, *(b for _, b in buffers)]
    sizes = [tensor.numel() for tensor in tensors]
    state = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    gradient = torch.zeros(sum(sizes[: len(parameters)]))
    views = iter(torch.split(state, sizes))
    slopes = torch.split(gradient, sizes[: len(parameters)])
    for parameter, slope in zip(parameters, slopes, strict=True):
        parameter.data = next(views).view(parameter.shape)
        parameter.grad = slope.view(parameter.shape)  # autograd adds to it in place
    for name, buffer in buffers:
        owner, _, short = name.rpartition(".")
        setattr(module.get_submodule(owner), short, next(views).view(buffer.shape))
    return state, gradient


def _evaluate(
    module: nn.Module, images: Tensor, labels: Tensor, layout: torch.memory_format
) -> tuple[int, float]:
    """Right answers and the sum of the losses."""
    module.eval()
    right, loss = 0, 0.0
    with torch.inference_mode():
        for first in range(0, len(labels), EVALUATION_BATCH):
            part = images[first : first + EVALUATION_BATCH]
            wanted = labels[first : first + EVALUATION_BATCH]
            logits = module(_floats(part, layout))
            right += int((logits.argmax(1) == wanted).sum())
            loss += float(F.cross_entropy(logits, wanted, reduction="sum"))
    return right, loss


def _floats(images: Tensor, layout: torch.memory_format) -> Tensor:
    return images.float().mul_(1 / 255).contiguous(memory_format=layout)


def _as_tensors(samples: Samples) -> tuple[Tensor, Tensor]:
    images, labels = samples
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)
