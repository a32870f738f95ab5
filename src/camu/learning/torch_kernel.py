"""Training on torch's layers: for any model, and wherever there are no compiled kernels.

All parameters are views of one flat tensor and all gradients views of another, so loading a state
and taking a step are single operations whatever the number of layers.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.arrays import Float32
from camu.data.batches import Schedule, Schedules
from camu.errors import CamuError
from camu.learning.cnn import SeededCNN
from camu.learning.job import Job, Trained, training_of
from camu.learning.kernel import (
    Data,
    DeviceBatch,
    Kernels,
    Optimiser,
    Tested,
    micro_batches,
)
from camu.learning.layers import SeededDropout, SegmentBatchNorm, prepare
from camu.learning.losses import find_loss
from camu.learning.method import check_private
from camu.learning.models import as_module, one_tensor
from camu.learning.networks import PaperCNN, ResNet8
from camu.learning.pool import failure
from camu.learning.private_steps import add_noise, clip, private_gradient
from camu.learning.task import Task
from camu.learning.torch_setup import (
    Tensors,
    as_tensors,
    channels_last,
    check_loss,
    check_outputs,
    make_repeatable,
    torch_provenance,
    unchanged_global_generators,
)
from camu.learning.torch_steps import Steps
from camu.learning.weights import Layout, Weights, weighted_mean
from camu.plugins import user_code
from camu.seeding import Stream, derive


class TorchKernel:
    """A private copy of the model with flat parameters and gradients, and the data to train on."""

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        optimiser: Optimiser,
        train: Tensors | None,
        test: Tensors | None,
        seed: int,
        task: Task,
        stop: ctypes.c_int32,
        fused: bool = True,
    ) -> None:
        self.module = prepare(copy.deepcopy(model)).to(device=device, dtype=torch.float32)
        self._device, self._optimiser, self._seed = device, optimiser, seed
        self._train, self._test, self._stop, self._fused = train, test, stop, fused
        self._task, self._losses = task, find_loss(task.loss)
        self.layout = Layout.of(self.module)
        count = self.layout.parameter_count
        self.parameters = torch.zeros(count, device=device)
        self.gradient = torch.zeros(count, device=device)
        named = dict(self.module.named_parameters())
        start = 0
        for entry in self.layout.parameters:
            parameter = named[entry.name]
            view = slice(start, start + entry.size)
            self.parameters[view].copy_(parameter.detach().reshape(-1))
            parameter.data = self.parameters[view].view(entry.shape)
            parameter.grad = self.gradient[view].view(entry.shape)
            start += entry.size
        layers = list(self.module.modules())
        self._norms = [layer for layer in layers if isinstance(layer, SegmentBatchNorm)]
        self._dropouts = [layer for layer in layers if isinstance(layer, SeededDropout)]
        self._carried = self._find_carried()
        self.mixes_samples = bool(self._norms)
        # A user's module may rely on the usual order of a tensor in memory.
        self._built_in = type(model) in (PaperCNN, ResNet8)

    def train(
        self,
        jobs: Sequence[tuple[Weights, Job]],
        schedules: Schedules,
        round_number: int,
    ) -> list[Trained]:
        return [
            self.train_one(*own, schedule, round_number)
            for own, schedule in zip(jobs, schedules.apart(), strict=True)
        ]

    def train_one(self, start: Weights, job: Job, schedule: Schedule, round_number: int) -> Trained:
        """Train one job; an error in the user's module names the unit, not the whole task."""
        try:
            return self._train_job(start, job, schedule, round_number)
        except (CamuError, CancelledError):
            raise
        except Exception as error:
            raise failure(training_of(job.members, round_number), error) from error

    def _train_job(
        self, start: Weights, job: Job, schedule: Schedule, round_number: int
    ) -> Trained:
        self._load(start)
        optimiser, batches = self._optimiser, iter(schedule.batches)
        moves = Steps.of(optimiser.method, optimiser.l2, job, self.parameters)
        rates = optimiser.rates(job, round_number, schedule.steps)
        kept = job.states or (None,) * len(job.members)

        def step(devices: Sequence[tuple[int, float]], number: int, rate: float) -> float:
            def stream(device: int) -> Stream:
                return derive(self._seed, "dropout", round_number, device, number)

            if self._stop.value:
                raise CancelledError
            parts = [DeviceBatch(device, next(batches), share) for device, share in devices]
            return self._step(parts, rate, stream, moves, partial(noise, devices[0][0], number))

        def noise(device: int, number: int) -> Stream:
            return derive(self._seed, "privacy", round_number, device, number)

        members = list(zip(job.members, job.shares, strict=True))
        together, state, losses = optimiser.together(job), start, []
        leaves = moves.method.dp_unit == "update"  # clipped and with noise whenever it leaves
        own = [moves.begin(one) for one in (kept[:1] if together else kept)]
        moves.state = own[0]
        for number, update in enumerate(job.numbers):
            if together:  # one step on the mean loss of all members
                losses.append(step(members, update, float(rates[0][number])))
                continue
            # Members take several steps each from the same state, then average.
            loss, states = 0.0, []
            for m, ((device, share), steps) in enumerate(
                zip(members, schedule.steps.tolist(), strict=True)
            ):
                self._load(state)
                moves.state = own[m]
                numbers = range(update * steps, (update + 1) * steps)
                theirs = rates[m][number * steps : (number + 1) * steps].tolist()
                each = [step([(device, 1.0)], *one) for one in zip(numbers, theirs, strict=True)]
                loss += share * float(np.mean(each))
                if leaves and len(members) > 1:
                    self._protect(state, moves, noise(device, update))
                states.append((share, self._save()))
            state = states[0][1] if len(states) == 1 else weighted_mean(states)
            losses.append(loss)
        if leaves and len(members) == 1:
            self._protect(start, moves, noise(job.members[0], job.numbers[-1]))
            state = self._save()
        keeps = job.states is not None and moves.method.has_state
        return Trained(
            self._save() if together else state,
            float(np.mean(losses)),
            tuple(one.cpu().numpy() for one in own) if keeps else (),
        )

    def evaluate(self, weights: Weights, span: slice, outputs: bool = False) -> Tested:
        assert self._test is not None
        self._load(weights)
        self.module.eval()
        inputs, targets = self._batch(self._test, span)
        with torch.no_grad():
            with user_code("the model's forward in evaluation", self.module):
                said = self.module(inputs)
            right = 0
            if self._task.target != "numbers":
                single = said.shape[-1] == 1
                named = (said[..., 0] > 0).long() if single else said.argmax(dim=-1)
                right = int((named == targets).sum())
            if self._task.loss == "cross-entropy" and targets.dim() == 1:
                loss = float(F.cross_entropy(said, targets, reduction="sum"))
            else:
                loss = float(self._losses(said, targets).double().sum())
            return Tested(right, loss, said.cpu().numpy() if outputs else None)

    def full_pass(
        self, weights: Weights, parts: Sequence[DeviceBatch], backward: bool
    ) -> tuple[Float32, float]:
        self._load(weights)
        self.gradient.zero_()
        with torch.set_grad_enabled(backward):
            loss = self._loss(parts, derive(self._seed, "full-pass-dropout", parts[0].device))
        if backward:
            loss.backward()  # type: ignore[no-untyped-call]
        for norm in self._norms:
            norm.begin()
        return self.gradient.cpu().numpy().copy(), float(loss.detach())

    def _protect(self, begin: Weights, moves: Steps, stream: Stream) -> None:
        """Clip what was learned since these weights, and add noise to it."""
        before = torch.from_numpy(begin.parameters.copy()).to(self._device)
        change = clip(self.parameters - before, moves.method.dp_clip)
        self.parameters.copy_(before.add_(add_noise(change, moves.method, stream)))

    def _load(self, weights: Weights) -> None:
        self.parameters.copy_(torch.from_numpy(weights.parameters.copy()))
        self._set_buffers(torch.from_numpy(weights.buffers.copy()))

    def _save(self) -> Weights:
        return Weights(self.parameters.cpu().numpy(), self._buffers().cpu().numpy(), self.layout)

    def _buffers(self) -> Tensor:
        flat = [tensor.reshape(-1) for tensor in self._bufferas_tensors()]
        return torch.cat(flat) if flat else torch.zeros(0, device=self._device)

    def _set_buffers(self, flat: Tensor) -> None:
        start = 0
        for tensor in self._bufferas_tensors():
            tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()

    def _bufferas_tensors(self) -> list[Tensor]:
        return [held[name].detach() for held, name in self._carried]

    def _find_carried(self) -> list[tuple[dict[str, Any], str]]:
        """Where the modules keep the buffers of the layout; a model may put new tensors there."""
        found = []
        for entry in self.layout.buffers:
            owner, _, name = entry.name.rpartition(".")
            module = self.module.get_submodule(owner)
            held = module._parameters if name in module._parameters else module._buffers
            found.append((held, name))
        return found

    def _loss(self, parts: Sequence[DeviceBatch], stream: Stream) -> Tensor:
        if not self.module.training:
            self.module.train()
        for norm in self._norms:
            norm.divide([len(part.indices) for part in parts], [part.weight for part in parts])
        for dropout in self._dropouts:
            dropout.generator = stream.torch(self._device.type)
        indices = torch.from_numpy(np.concatenate([part.indices for part in parts]))
        scale = np.repeat(
            np.array([part.weight / len(part.indices) for part in parts], dtype=np.float32),
            [len(part.indices) for part in parts],
        )
        assert self._train is not None
        inputs, targets = self._batch(self._train, indices.to(self._device))
        losses = self._losses(self.module(inputs), targets)
        return torch.dot(losses, torch.from_numpy(scale).to(self._device))

    def _step(
        self,
        parts: Sequence[DeviceBatch],
        learning_rate: float,
        stream: Callable[[int], Stream],
        moves: Steps,
        noise: Callable[[], Stream],
    ) -> float:
        """One gradient step on the parts' weighted mean loss, batch statistics per device.

        Returns that loss before the step, without penalty terms.
        """
        if moves.method.dp_unit == "sample":
            value = private_gradient(
                *(parts[0], self.gradient),
                lambda part: self._loss([part], stream(part.device)),
                *(moves.method, noise()),
            )
            moves.move(self.parameters, self.gradient, learning_rate)
            return value
        self.gradient.zero_()
        value = 0.0
        for norm in self._norms:
            norm.begin()
        before = None if self._fused else self._buffers()
        total = None if before is None else torch.zeros_like(before, dtype=torch.float64)
        for group in micro_batches(parts, self._fused, self.mixes_samples):
            if before is not None:
                self._set_buffers(before)
            loss = self._loss(group, stream(group[0].device))
            loss.backward()  # type: ignore[no-untyped-call]
            value += float(loss.detach())
            if total is not None:
                total.add_(self._buffers().double(), alpha=sum(part.weight for part in group))
        if total is not None:
            self._set_buffers(total.float())
        for norm in self._norms:
            norm.finish()
        moves.move(self.parameters, self.gradient, learning_rate)
        return value

    def _batch(self, data: Tensors, which: Tensor | slice) -> Tensors:
        """The inputs and targets of some samples, as the model and the loss take them."""
        inputs = data[0][which] if isinstance(which, slice) else data[0].index_select(0, which)
        return self._inputs(inputs), data[1][which]

    def _inputs(self, inputs: Tensor) -> Tensor:
        """Images as floats in [0, 1], numbers in single precision, tokens as they are."""
        if self._task.inputs == "tokens":
            return inputs
        if self._task.inputs == "numbers":
            return inputs.to(torch.float32)
        images = inputs.to(torch.float32).div_(255)
        return channels_last(images) if self._built_in else images

    def can_fuse(self, data: Tensors) -> bool:
        """Find out whether devices may share a pass, and refuse what breaks reproducibility.

        Two small made-up devices must give the same logits together as alone, and leave buffers
        other than batch norm's untouched; otherwise devices are computed one by one. So are
        devices with dropout, because what a device drops must not depend on who shares the pass.
        """
        inputs, targets = data[0][:8], data[1]
        if self._task.inputs == "images":
            inputs = inputs.to(torch.float32).div_(255)
        elif self._task.inputs == "numbers":
            inputs = inputs.to(torch.float32)
        fewer = inputs.flip(0)[: max(1, len(inputs) // 2)]
        halves = [inputs, fewer if self._task.inputs == "tokens" else fewer * 0.5]
        with unchanged_global_generators(self._device), torch.no_grad():
            self.module.train()
            others = self._other_buffers()
            together = self._probe_pass(halves)
            alone = torch.cat([self._probe_pass([half]) for half in halves])
            unchanged = all(map(torch.equal, others, self._other_buffers()))
        check_outputs(self._task, tuple(together.shape), targets, sum(map(len, halves)))
        check_loss(self._task.loss, self._losses, together[: len(inputs)], targets[: len(inputs)])
        same = torch.allclose(together, alone, rtol=1e-3, atol=1e-4)
        return same and unchanged and not self._dropouts

    def _probe_pass(self, parts: list[Tensor]) -> Tensor:
        for norm in self._norms:
            norm.begin()
            norm.divide([len(part) for part in parts], [1 / len(parts)] * len(parts))
        for dropout in self._dropouts:
            dropout.generator = derive(0, "probe").torch(self._device.type)
        with user_code("the model's forward", self.module, "(self, inputs)"):
            outputs = one_tensor(self.module(torch.cat(parts)))
        for norm in self._norms:
            norm.begin()
        return outputs

    def _other_buffers(self) -> list[Tensor]:
        """All buffers but the running statistics of batch norm."""
        norms = {id(own) for norm in self._norms for own in norm.buffers()}
        return [own.clone() for own in self.module.buffers() if id(own) not in norms]


def torch_kernels(
    model: nn.Module | SeededCNN,
    device: str,
    optimiser: Optimiser,
    train: Data | None,
    test: Data | None,
    seed: int,
    task: Task,
    kind: type[TorchKernel] = TorchKernel,
) -> Kernels:
    """Kernels of torch's layers; a model that cannot be trained is refused."""
    if device == "cuda":
        make_repeatable()
    where = torch.device(device)
    held = as_tensors(train, where), as_tensors(test, where)
    given = held[0] or held[1]
    if given is None:
        raise CamuError("an engine needs training or test samples")
    kernel = partial(kind, as_module(model), where, optimiser, *held, seed, task)
    probe = kernel(ctypes.c_int32(0))
    check_private(optimiser.method, probe.layout)
    fused = probe.can_fuse(given)
    return Kernels(
        provenance=torch_provenance(device, "torch"),
        fused=fused,
        whole_devices=probe.mixes_samples,
        make=partial(kernel, fused=fused),
    )
