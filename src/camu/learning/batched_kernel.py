"""Training many units as one program on torch's layers: a stack of models takes a step at once.

A small step takes longer to hand to torch than to compute. `vmap` of the gradient turns each layer
of some units into one call, on their parameters side by side. Which units share a stack follows
from the order of the jobs alone, never from the number of workers or from a clock.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import logging
import math
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import cache, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils.flop_counter import FlopCounterMode

from camu.data.batches import Schedules
from camu.errors import CamuError, InputError
from camu.learning.cnn import SeededCNN
from camu.learning.grouped import grouped_forward
from camu.learning.job import Job, Trained, training_of
from camu.learning.kernel import Data, DeviceBatch, Kernels, Optimiser
from camu.learning.layers import SegmentBatchNorm
from camu.learning.pool import failure
from camu.learning.stack import Given, Layers, Seen, Stack, UnitBatchNorm, layered, padded, stacked
from camu.learning.task import Task
from camu.learning.torch_kernel import TorchKernel, torch_kernels
from camu.learning.torch_setup import keep_memory, torch_provenance, unchanged_global_generators
from camu.learning.weights import Weights

log = logging.getLogger(__name__)

# Jobs that a worker is given at once, and numbers in the models that take a step at once: more
# gain little, and drive each other out of the processor's caches.
UNITS, NUMBERS = 64, 1 << 22
# Steps of a unit with more FLOPs are quicker one by one: grouped convolutions are slower than as
# many single ones, and products of matrices as fast. Measured: see docs/engine-speed.md.
MOST_FLOPS, MOST_FLOPS_OF_CONVOLUTIONS = 1e8, 2e7
_PROBED = 4  # samples of a unit in the comparison with the ordinary kernel
_TOLERANCE = 1e-3  # a larger difference, relative to the largest entry, cannot be rounding error


class BatchedKernel(TorchKernel):
    """The kernel of torch's layers, which trains units with steps of one kind together."""

    def __init__(self, *arguments: Any, most_samples: float = 0.0, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._most_samples = most_samples  # of a unit in a step that is batched
        self._units, self._unit_norms = _for_units(self.module)
        self._unit_losses = vmap(self._unit_loss)

    def train(
        self,
        jobs: Sequence[tuple[Weights, Job]],
        schedules: Schedules,
        round_number: int,
    ) -> list[Trained]:
        tasks = [(*own, part) for own, part in zip(jobs, schedules.apart(), strict=True)]
        kinds: dict[Hashable, list[int]] = {}
        for number, task in enumerate(tasks):
            kind = self._kind(task)
            kinds.setdefault(number if kind is None else kind, []).append(number)
        results: dict[int, Trained] = {}
        for kind, numbers in kinds.items():
            chosen = [tasks[number] for number in numbers]
            models = sum(self._models(job) for _, job, _ in chosen)
            if models == 1 or isinstance(kind, int):
                trained = [self.train_one(*task, round_number) for task in chosen]
            else:
                trained = self._train_together(chosen, round_number)
            results.update(zip(numbers, trained, strict=True))
        return [results[number] for number in range(len(tasks))]

    def _models(self, job: Job) -> int:
        """How many models a job trains side by side."""
        return 1 if self._optimiser.together(job) else len(job.members)

    def _kind(self, task: Given) -> Hashable:
        """What jobs have in common whose steps can be batched; None: those of this job cannot."""
        _, job, schedule = task
        method, together = self._optimiser.method.under(job.rule), self._optimiser.together(job)
        several = together and len(job.members) > 1
        sizes = schedule.sizes.reshape(-1, len(job.members)).sum(1) if several else schedule.sizes
        most = int(sizes.max())
        if most > self._most_samples or not method.is_linear or method.dp_unit != "none":
            return None
        unlike = int(sizes.min()) < most and self._models(job) > 1
        if self._unit_norms and (several or unlike):
            return None  # each member has statistics of its own, and its batches are not filled up
        # Smaller batches are filled up, to at most 1.4 times their size; not where samples see each
        # other.
        exact = schedule.sizes.tobytes(), schedule.steps.tobytes()
        by_step = method.schedule != "constant" and method.schedule_by == "step"
        return (
            *(job.rule, job.numbers, job.round_updates, together),
            *(job.anchor is None, job.correction is None, job.states is None),
            exact if self._unit_norms else math.ceil(2 * math.log2(most)),
            schedule.steps.tobytes() if by_step else None,
        )

    def _train_together(self, tasks: Sequence[Given], round_number: int) -> list[Trained]:
        try:
            return self._train_stack(tasks, round_number)
        except (CamuError, CancelledError):
            raise
        except Exception as error:  # in the user's module
            members = [device for _, job, _ in tasks for device in job.members]
            raise failure(training_of(members, round_number), error) from error

    def _train_stack(self, tasks: Sequence[Given], round_number: int) -> list[Trained]:
        stack, first = Stack(self.layout, tasks, self._optimiser, self._device), tasks[0][1]
        # Rates are the same for all models: where steps count, all take as many.
        most = np.array([stack.steps], dtype=np.int32)
        rates = self._optimiser.rates(first, round_number, most)[0]
        at_once = max(2, min(UNITS, NUMBERS // max(1, self.layout.parameter_count)))
        losses = np.zeros(len(stack.rows))
        for update in range(first.updates):
            for begin in range(0, len(stack.rows), at_once):
                rows = stack.rows[begin : begin + at_once]
                for step in range(rows[0].steps):
                    part = slice(begin, begin + sum(row.steps > step for row in rows))
                    rate = float(rates[update * stack.steps + step])
                    losses[part] += self._step_of(stack, part, update, step, rate)
            stack.average()
        counts = np.array([first.updates * row.steps for row in stack.rows])
        return stack.results((losses / counts).tolist())

    def _step_of(
        self, stack: Stack, part: slice, update: int, step: int, rate: float
    ) -> list[float]:
        """Let some models of a stack take a step; their losses before it."""
        if self._stop.value:
            raise CancelledError
        indices, scales = padded([row.batch(update * row.steps + step) for row in stack.rows[part]])
        begun = update + step > 0
        parameters, buffers = (
            {name: layer[part] for name, layer in layers.items()}
            for layers in (stack.parameters(begun), stack.buffers)
        )
        gradients, losses, seen = self._pass(
            parameters, buffers, torch.from_numpy(indices), torch.from_numpy(scales)
        )
        stack.move(part, gradients, rate, begun)
        for (name, norm), calls in zip(self._unit_norms, seen, strict=True):
            for mean, variance in calls:
                for own, now in (("running_mean", mean), ("running_var", variance)):
                    buffers[f"{name}.{own}"].lerp_(now, cast(float, norm.momentum))
        return cast(list[float], losses.tolist())

    def _pass(
        self, parameters: Layers, buffers: Layers, indices: Tensor, scales: Tensor
    ) -> tuple[Layers, Tensor, Seen]:
        """Gradients and losses of models, each on its row of samples, and what batch norms saw."""
        assert self._train is not None
        if not self._units.training:
            self._units.train()
        inputs, targets = (
            own.view(*indices.shape, *own.shape[1:])
            for own in self._batch(self._train, indices.flatten().to(self._device))
        )
        # Each loss depends on its own model alone, so the gradient of their sum is that of each.
        wanted = {name: layer.detach().requires_grad_() for name, layer in parameters.items()}
        losses, seen = self._unit_losses(wanted, buffers, inputs, targets, scales.to(self._device))
        found = torch.autograd.grad(losses.sum(), list(wanted.values()), materialize_grads=True)
        return dict(zip(wanted, found, strict=True)), losses.detach(), seen

    def _unit_loss(
        self, parameters: Layers, buffers: Layers, inputs: Tensor, targets: Tensor, scales: Tensor
    ) -> tuple[Tensor, Seen]:
        """The loss of one model, and what its batch norms saw."""
        for _, norm in self._unit_norms:
            norm.seen = []
        outputs = functional_call(self._units, (parameters, buffers), (inputs,))
        loss = torch.dot(self._losses(outputs, targets), scales)
        return loss, [norm.seen for _, norm in self._unit_norms]

    @property
    def most_flops(self) -> float:
        """The FLOPs of a unit's step up to which batching pays on a processor."""
        layers = map(type, self.module.modules())
        convolves = any(issubclass(kind, nn.modules.conv._ConvNd) for kind in layers)
        return MOST_FLOPS_OF_CONVOLUTIONS if convolves else MOST_FLOPS

    def probe(self, fused: bool) -> float:
        """FLOPs of a step per sample; fails for a model whose gradients cannot be batched."""
        assert self._train is not None
        if self._dropouts:
            raise RuntimeError("dropout draws for each device by itself")
        if not fused:
            raise RuntimeError("the model's samples see each other, or it changes its buffers")
        count = min(_PROBED, len(self._train[0]))
        indices = torch.arange(count).repeat(2, 1)
        indices[1] = indices[1].flip(0)
        start = self._save()
        starts = [start, start.with_parameters(start.parameters * np.float32(1.125))]
        flops, wanted = 0, []
        for own, chosen in zip(starts, indices.numpy(), strict=True):
            with FlopCounterMode(display=False) as counter:
                gradient, _ = self.full_pass(own, [DeviceBatch(0, chosen, 1.0)], backward=True)
            wanted.append(torch.from_numpy(gradient))
            flops = counter.get_total_flops()
        parameters, buffers = (
            layered(stacked(flat, self._device), entries)
            for flat, entries in (
                ([own.parameters for own in starts], self.layout.parameters),
                ([own.buffers for own in starts], self.layout.buffers),
            )
        )
        scales = torch.full(indices.shape, 1 / count)
        with _without_fallback(), unchanged_global_generators(self._device):
            gradients, _, _ = self._pass(parameters, buffers, indices, scales)
        found = torch.cat([own.flatten(1) for own in gradients.values()], 1).cpu()
        error = float((found - torch.stack(wanted)).abs().max() / torch.stack(wanted).abs().max())
        if not error <= _TOLERANCE:
            raise RuntimeError(f"their gradients differ from those one by one by {error:.1g}")
        return flops / count


def kernels_of_layers(
    wanted: str,
    model: nn.Module | SeededCNN,
    device: str,
    optimiser: Optimiser,
    train: Data | None,
    test: Data | None,
    seed: int,
    task: Task,
) -> Kernels:
    """Kernels of torch's layers, which batch units where that is wanted and the model allows it."""
    if wanted == "torch":
        return torch_kernels(model, device, optimiser, train, test, seed, task)
    made = torch_kernels(model, device, optimiser, train, test, seed, task, BatchedKernel)
    made = replace(made, provenance=torch_provenance(device, wanted))
    if train is None:
        return made
    probe = cast(BatchedKernel, made.make(ctypes.c_int32(0)))
    try:
        flops = probe.probe(made.fused)
    except Exception as error:  # of torch, in the user's module
        reason = str(error).strip().partition("\n")[0]
        if wanted == "batched":
            raise InputError(f'machine.kernel = "batched": {reason}; use "auto"') from error
        _mention(reason)
        return made
    # Of a step that a processor or a card computes: on a card even large ones leave it idle.
    most = math.inf if device == "cuda" else probe.most_flops / max(1.0, flops)
    if most < 1:
        return made
    keep_memory()
    return replace(made, make=partial(cast(Any, made.make), most_samples=most), at_once=UNITS)


@cache
def _mention(reason: str) -> None:
    log.warning("units train one after another, not batched: %s", reason)


def _for_units(module: nn.Module) -> tuple[nn.Module, list[tuple[str, UnitBatchNorm]]]:
    """A module for one unit, with the names of its batch norms."""
    own = copy.deepcopy(module)
    replaced: dict[int, tuple[str, UnitBatchNorm]] = {}
    for name, layer in list(own.named_modules(remove_duplicate=False)):
        if isinstance(layer, SegmentBatchNorm):
            _, norm = replaced.setdefault(id(layer), (name, UnitBatchNorm(layer)))
            own.set_submodule(name, norm)
        elif (forward := grouped_forward(layer)) is not None:
            layer.forward = forward  # hooks and what the model reads of its layers stay as they are
    return own, [one for one in replaced.values() if one[1].track]


@contextlib.contextmanager
def _without_fallback() -> Iterator[None]:
    """Refuse operations that torch would batch by a loop, which is slower than one by one."""
    functorch: Any = torch._C._functorch
    enabled = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(enabled)
