"""One worker's copy of the model: the arithmetic of a local update, on flat parameters.

All parameters are views of one flat tensor and all gradients views of another, so loading a state
and taking a step are single operations whatever the number of layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.arrays import Float32
from camu.errors import CamuError, InputError
from camu.learning.data import Data, DeviceBatch, micro_batches
from camu.learning.layers import SeededDropout, SegmentBatchNorm, prepare
from camu.learning.models import PaperCNN
from camu.learning.weights import Layout, Weights
from camu.plugins import user_code
from camu.seeding import Stream, derive


@dataclass(frozen=True, eq=False)
class Tensors:
    """Images and labels on the training device."""

    images: Tensor
    labels: Tensor

    @classmethod
    def of(cls, data: Data, device: torch.device) -> Tensors:
        """The samples on a device."""
        return cls(_tensor(data.images).to(device), _tensor(data.labels).to(device))

    def batch(self, indices: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Float images in [0, 1] and labels of some samples."""
        if isinstance(indices, slice):
            images, labels = self.images[indices], self.labels[indices]
        else:
            images, labels = self.images.index_select(0, indices), self.labels[indices]
        return images.to(torch.float32).div_(255), labels


class Replica:
    """A private copy of the model with flat parameters and gradients."""

    def __init__(self, model: nn.Module, device: torch.device, fused: bool = True) -> None:
        self.module = prepare(copy.deepcopy(model)).to(device=device, dtype=torch.float32)
        self.device = device
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
        self.fused = fused
        self._proximal = 0.0
        self._anchor: Tensor | None = None
        self._correction: Tensor | None = None
        self.mixes_samples = bool(self._norms)
        # A user's module may rely on the usual order of a tensor in memory.
        self._built_in = type(model) is PaperCNN
        self._normalised = {
            f"{name}.{buffer}"
            for name, layer in self.module.named_modules()
            if isinstance(layer, SegmentBatchNorm) and layer.track
            for buffer in ("running_mean", "running_var")
        }

    def load(self, weights: Weights) -> None:
        """Take over a state."""
        if weights.layout is not self.layout and weights.layout != self.layout:
            raise InputError("weights: they belong to a model with other layers or shapes.")
        self.parameters.copy_(torch.from_numpy(weights.parameters.copy()))
        self.set_buffers(torch.from_numpy(weights.buffers.copy()))

    def prepare_rule(
        self, proximal: float, anchor: Float32 | None, correction: Float32 | None
    ) -> None:
        """Set the extra gradient terms of the next steps; call it after ``load``.

        The proximal term pulls to ``anchor``, or to the state that was loaded.
        """
        self._proximal = proximal
        self._anchor = self._correction = None
        if proximal:
            at = self.parameters.clone() if anchor is None else torch.from_numpy(anchor.copy())
            self._anchor = at.to(self.device)
        if correction is not None:
            self._correction = torch.from_numpy(correction.copy()).to(self.device)

    def save(self) -> Weights:
        """The present state."""
        buffers = self.buffers().cpu().numpy()
        return Weights(self.parameters.cpu().numpy(), buffers, self.layout)

    def buffers(self) -> Tensor:
        """A flat copy of the buffers."""
        tensors = self._buffer_tensors()
        flat = [tensor.reshape(-1) for tensor in tensors]
        return torch.cat(flat) if flat else torch.zeros(0, device=self.device)

    def set_buffers(self, flat: Tensor) -> None:
        """Take over buffers from a flat tensor."""
        start = 0
        for tensor in self._buffer_tensors():
            tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()

    def _buffer_tensors(self) -> list[Tensor]:
        return [held[name].detach() for held, name in self._carried]

    def _find_carried(self) -> list[tuple[dict[str, Any], str]]:
        """Where the modules keep the buffers of the layout; a model may put new tensors there."""
        found = []
        for entry in self.layout.buffers:
            owner, _, name = entry.name.rpartition(".")
            module = self.module.get_submodule(owner)
            found.append(
                (module._parameters if name in module._parameters else module._buffers, name)
            )
        return found

    def full_pass(
        self, data: Tensors, parts: Sequence[DeviceBatch], stream: Stream, backward: bool
    ) -> float:
        """The parts' weighted mean loss in training mode, and its gradient in ``gradient``."""
        self.gradient.zero_()
        with torch.set_grad_enabled(backward):
            loss = self._loss(data, parts, stream)
        if backward:
            loss.backward()  # type: ignore[no-untyped-call]
        for norm in self._norms:
            norm.begin()
        return float(loss.detach())

    def _loss(self, data: Tensors, parts: Sequence[DeviceBatch], stream: Stream) -> Tensor:
        if not self.module.training:
            self.module.train()
        for norm in self._norms:
            norm.divide([len(part.indices) for part in parts], [part.weight for part in parts])
        for dropout in self._dropouts:
            dropout.generator = stream.torch(self.device.type)
        indices = torch.from_numpy(np.concatenate([part.indices for part in parts]))
        scale = np.repeat(
            np.array([part.weight / len(part.indices) for part in parts], dtype=np.float32),
            [len(part.indices) for part in parts],
        )
        images, labels = self._batch(data, indices.to(self.device))
        losses = F.cross_entropy(self.module(images), labels, reduction="none")
        return torch.dot(losses, torch.from_numpy(scale).to(self.device))

    def step(
        self,
        data: Tensors,
        parts: Sequence[DeviceBatch],
        learning_rate: float,
        l2: float,
        stream: Callable[[int], Stream],
    ) -> float:
        """One gradient step on the parts' weighted mean loss, batch statistics per device.

        Returns that loss before the step, without penalty terms.
        """
        self.gradient.zero_()
        value = 0.0
        for norm in self._norms:
            norm.begin()
        before = None if self.fused else self.buffers()
        total = None if before is None else torch.zeros_like(before, dtype=torch.float64)
        for group in micro_batches(parts, self.fused, self.mixes_samples):
            if before is not None:
                self.set_buffers(before)
            loss = self._loss(data, group, stream(group[0].device))
            loss.backward()  # type: ignore[no-untyped-call]
            value += float(loss.detach())
            if total is not None:
                total.add_(self.buffers().double(), alpha=sum(part.weight for part in group))
        if total is not None:
            self.set_buffers(total.float())
        for norm in self._norms:
            norm.finish()
        if l2:
            self.gradient.add_(self.parameters, alpha=l2)
        if self._anchor is not None:
            self.gradient.add_(self.parameters - self._anchor, alpha=self._proximal)
        if self._correction is not None:
            self.gradient.add_(self._correction)
        self.parameters.add_(self.gradient, alpha=-learning_rate)
        return value

    def evaluate(self, data: Tensors, span: slice) -> tuple[int, float]:
        """How many of some samples are classified rightly, and the sum of their losses."""
        self.module.eval()
        images, labels = self._batch(data, span)
        with torch.no_grad():
            with user_code("the model's forward in evaluation", self.module):
                logits = self.module(images)
            right = int((logits.argmax(dim=1) == labels).sum())
            return right, float(F.cross_entropy(logits, labels, reduction="sum"))

    def _batch(self, data: Tensors, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        images, labels = data.batch(which)
        return (_channels_last(images) if self._built_in else images), labels

    def can_fuse(self, data: Tensors) -> bool:
        """Find out whether devices may share a pass, and refuse what breaks reproducibility.

        Two small made-up devices must give the same logits together as alone, and leave buffers
        other than batch norm's untouched; otherwise devices are computed one by one. So are
        devices with dropout, because what a device drops must not depend on who shares the pass.
        """
        images, _ = data.batch(slice(0, min(8, len(data.images))))
        halves = [images, images.flip(0)[: max(1, len(images) // 2)] * 0.5]
        with _unchanged_global_generator(), torch.no_grad():
            self.module.train()
            others = self._other_buffers()
            together = self._probe_pass(torch.cat(halves), [len(half) for half in halves])
            alone = torch.cat([self._probe_pass(half, [len(half)]) for half in halves])
            changed = any(
                not torch.equal(one, two)
                for one, two in zip(others, self._other_buffers(), strict=True)
            )
        classes = int(data.labels.max()) + 1
        if together.dim() != 2 or together.shape[1] < classes:
            raise InputError(
                f"model: for {len(together)} images it gives an array of shape "
                f"{tuple(together.shape)}; it must be (images, classes) with {classes} classes."
            )
        same = torch.allclose(together, alone, rtol=1e-3, atol=1e-4)
        return same and not changed and not self._dropouts

    def _probe_pass(self, images: Tensor, sizes: list[int]) -> Tensor:
        for norm in self._norms:
            norm.begin()
            norm.divide(sizes, [1 / len(sizes)] * len(sizes))
        for dropout in self._dropouts:
            dropout.generator = derive(0, "probe").torch(self.device.type)
        with user_code("the model's forward", self.module, "(self, images)"):
            logits: Tensor = self.module(images)
        for norm in self._norms:
            norm.begin()
        return logits

    def _other_buffers(self) -> list[Tensor]:
        named = self.module.named_buffers()
        return [tensor.clone() for name, tensor in named if name not in self._normalised]


def _channels_last(images: Tensor) -> Tensor:
    """The images with channels as the last index in memory, which is quicker to convolve."""
    _, channels, height, width = images.shape
    if channels > 1:
        return images.contiguous(memory_format=torch.channels_last)
    # With one channel both orders are the same in memory, and torch goes by the strides.
    return images.as_strided(images.shape, (height * width, 1, width, 1))


def _tensor(array: npt.NDArray[np.generic]) -> Tensor:
    # torch warns about read-only memory such as memory maps, so it is copied.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


@contextmanager
def _unchanged_global_generator() -> Iterator[None]:
    before = torch.random.get_rng_state()
    try:
        yield
    except CamuError:
        raise
    except Exception as error:
        raise CamuError(
            f"model: a pass over a few training images failed: {type(error).__name__}: {error}"
        ) from error
    if not torch.equal(before, torch.random.get_rng_state()):
        torch.random.set_rng_state(before)
        raise InputError(
            "model: it draws from torch's global generator in training, so its runs could not be "
            "repeated; use nn.Dropout layers, which are given a derived generator."
        )
