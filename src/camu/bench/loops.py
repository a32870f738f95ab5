"""The loops that the engine is compared with: a plain one, and a tuned one, both of torch alone.

Plain is the obvious way: torch's layers, its default threads and layout, an optimiser, a state dict
per device. Tuned is the best simple loop that we know: one process per core with one torch thread,
channels-last layout, parameters and gradients in flat tensors, in-place steps, updates added up
where they are computed. Both take one device after another. Their batches are drawn before the
clock starts; the engine's are drawn while it runs.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.arrays import Float32, Int64, UInt8
from camu.bench.workloads import LEARNING_RATE, Samples, Share, Workload
from camu.learning.pool import available_cores
from camu.learning.weights import Weights
from camu.work import end_with_parent

EVALUATION_BATCH = 500


class PlainLoop:
    """The obvious way: torch's layers, its default threads, one device after another."""

    def __init__(self, workload: Workload, initial: Weights, train: Samples, test: Samples) -> None:
        self.workload = workload
        self.threads = torch.get_num_threads()
        model = workload.build_model()
        initial.load_into(model)
        self.model = copy.deepcopy(model)
        self.start = {key: value.clone() for key, value in self.model.state_dict().items()}
        self.train, self.test = _as_tensors(*train), _as_tensors(*test)

    def round(self, shares: Sequence[Share], round_number: int) -> float:
        """The seconds to train these devices; `result` is their weighted sum."""
        batches = self.workload.batches(shares, round_number)
        # The engine's workers set the threads of matrix products for the whole process.
        torch.set_num_threads(self.threads)
        self.model.train()
        begin = time.perf_counter()
        total = {key: torch.zeros_like(value) for key, value in self.start.items()}
        for share, chosen in zip(shares, batches, strict=True):
            self._train_device(chosen)
            for key, value in self.model.state_dict().items():
                if value.is_floating_point():
                    total[key] += share.weight * value
        seconds = time.perf_counter() - begin
        self.result = np.concatenate([total[key].reshape(-1).numpy() for key in _keys(self.model)])
        return seconds

    def _train_device(self, batches: Sequence[Int64]) -> None:
        all_images, all_labels = self.train
        self.model.load_state_dict(self.start)
        optimiser = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
        for indices in batches:
            images = all_images[indices].float() / 255
            optimiser.zero_grad()
            F.cross_entropy(self.model(images), all_labels[indices]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    def evaluate(self) -> tuple[float, float, float]:
        """Seconds, accuracy and mean loss of the initial model on the test samples."""
        torch.set_num_threads(self.threads)
        self.model.load_state_dict(self.start)
        begin = time.perf_counter()
        right, loss = _evaluate(self.model, *self.test, torch.contiguous_format)
        count = len(self.test[1])
        return time.perf_counter() - begin, right / count, loss / count


class TunedLoop:
    """The tuned way, on worker processes that stay for all workloads; a context manager."""

    def __init__(self, workers: int = 0) -> None:
        context = multiprocessing.get_context("spawn")  # forks of a process with threads may hang
        self.connections: list[Connection] = []
        self.processes = []
        for _ in range(workers or available_cores()):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self.connections.append(mine)
            self.processes.append(process)

    def __enter__(self) -> TunedLoop:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.connections:
            connection.close()  # ends the worker
        for process in self.processes:
            process.join()

    def use(self, workload: Workload) -> None:
        """Let the workers make the workload's data and model."""
        self._ask_all("use", [(workload,)] * len(self.connections))

    def round(
        self, shares: Sequence[Share], round_number: int, start: Weights
    ) -> tuple[float, Float32]:
        """The seconds to train these devices, and the weighted sum of their states."""
        count = len(self.connections)
        self._ask_all("draw", [(shares[number::count], round_number) for number in range(count)])
        begin = time.perf_counter()
        state = np.concatenate([start.parameters, start.buffers])
        totals = self._ask_all("train", [(state,)] * count)
        result: Float32 = np.sum(totals, axis=0)
        return time.perf_counter() - begin, result

    def evaluate(self, start: Weights) -> tuple[float, float, float]:
        """Seconds, accuracy and mean loss of a model on the test samples."""
        count = len(self.connections)
        begin = time.perf_counter()
        state = np.concatenate([start.parameters, start.buffers])
        parts = self._ask_all("evaluate", [(state, number, count) for number in range(count)])
        right, loss, samples = (sum(values) for values in zip(*parts, strict=True))
        return time.perf_counter() - begin, right / samples, loss / samples

    def _ask_all(self, what: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        for connection, values in zip(self.connections, arguments, strict=True):
            connection.send((what, values))
        return [connection.recv() for connection in self.connections]


def _serve(connection: Connection, parent: int) -> None:
    """A worker process of the tuned loop: answer questions until the other side is closed."""
    end_with_parent(parent)
    torch.set_num_threads(1)
    worker: _TunedWorker | None = None
    while True:
        try:
            what, values = connection.recv()
        except EOFError:
            return
        if what == "use":
            worker = _TunedWorker(*values)
            connection.send(None)
        else:
            connection.send(getattr(worker, what)(*values))


class _TunedWorker:
    """The data and the model of one worker process."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.images, self.labels = _as_tensors(*workload.train_samples())
        self.test = _as_tensors(*workload.held_out_samples())
        self.model = FlatModel(workload.build_model())
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
        model = self.model
        model.module.train()
        start = model.from_natural(state)
        total = torch.zeros_like(start)
        for weight, batches in self.work:
            model.state.copy_(start)
            for indices in batches:
                images = _floats(self.images[indices], torch.channels_last)
                model.gradient.zero_()
                F.cross_entropy(model.module(images), self.labels[indices]).backward()  # type: ignore[no-untyped-call]
                model.parameters.add_(model.gradient, alpha=-LEARNING_RATE)
            total.add_(model.state, alpha=weight)
        return model.to_natural(total)

    def evaluate(self, state: Float32, number: int, count: int) -> tuple[int, float, int]:
        """Right answers, sum of losses and number of samples in this worker's part of the test."""
        self.model.state.copy_(self.model.from_natural(state))
        images, labels = (part.tensor_split(count)[number] for part in self.test)
        return (
            *_evaluate(self.model.module, images, labels, torch.channels_last),
            len(labels),
        )


class FlatModel:
    """A channels-last module whose state is one flat tensor, and whose gradient is another."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        parameters = list(self.module.parameters())
        named = [(n, b) for n, b in self.module.named_buffers() if b.is_floating_point()]
        self.shapes = [tensor.shape for tensor in (*parameters, *(b for _, b in named))]
        count = sum(parameter.numel() for parameter in parameters)
        self.state = torch.zeros(sum(shape.numel() for shape in self.shapes))
        self.parameters = self.state[:count]
        self.gradient = torch.zeros(count)
        views = self._views(self.state)
        own_views, gradients = views[: len(parameters)], self._views(self.gradient)
        for parameter, own, gradient in zip(parameters, own_views, gradients, strict=True):
            parameter.data = own
            parameter.grad = gradient  # autograd adds to it in place
        for (name, _), own in zip(named, views[len(parameters) :], strict=True):
            owner, _, short = name.rpartition(".")
            setattr(self.module.get_submodule(owner), short, own)

    def _views(self, flat: Tensor) -> list[Tensor]:
        """The tensors inside a flat one, as many as fit; kernels of convolutions channels-last."""
        views, first = [], 0
        for shape in self.shapes:
            part = flat[first : first + shape.numel()]
            first += shape.numel()
            if len(part) < shape.numel():
                break
            if len(shape) == 4:
                outputs, inputs, height, width = shape
                part = part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
            views.append(part.view(shape))
        return views

    def from_natural(self, state: Float32) -> Tensor:
        """A state of the engine's order in the order of this model."""
        flat = torch.empty_like(self.state)
        ends = np.cumsum([shape.numel() for shape in self.shapes])[:-1]
        for view, part in zip(self._views(flat), np.split(state.copy(), ends), strict=True):
            view.copy_(torch.from_numpy(part).view(view.shape))
        return flat

    def to_natural(self, flat: Tensor) -> Float32:
        """A state of this model's order in the engine's order."""
        natural: Float32 = torch.cat([view.reshape(-1) for view in self._views(flat)]).numpy()
        return natural


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


def _as_tensors(images: UInt8, labels: Int64) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)


def _keys(module: nn.Module) -> list[str]:
    """The names of a module's floating-point state, parameters first, as the engine orders it."""
    parameters = [name for name, _ in module.named_parameters()]
    return parameters + [n for n, b in module.named_buffers() if b.is_floating_point()]
