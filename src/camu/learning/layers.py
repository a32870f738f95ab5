"""The two layers that make training fast: fused convolution + pooling, and batch norm per device.

``ConvPoolStack`` computes what ``conv2d`` followed by a 2x2 ``max_pool2d`` computes, several times
in a row, but as a few large matrix products. The images are laid out with the sample as the last,
contiguous index, so that cutting them into windows is copying long runs. One window yields all
four candidates of a pooling cell, for ``group`` neighbouring cells at once, so a pooling cell is
the maximum of four planes of memory: no index tensor is kept, no zeros are filled, and the
channels are never padded to the width of a vector register. Samples pass in chunks that fit the
processor's cache, and all memory is used again in the next step.

``SegmentBatchNorm`` normalises each device's part of a batch by its own statistics, so that many
devices can share one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.errors import InputError

# The samples that pass through the stack at a time: enough that Python's part is small, few enough
# that windows and candidates stay in the processor's caches.
CHUNK_SAMPLES = 208
# Sizes of chunks whose views are kept; all sizes share the same memory.
CUTS_KEPT = 16


@dataclass(frozen=True)
class _Geometry:
    """The sizes of one convolution + pooling stage."""

    channels: int
    outputs: int
    kernel: int
    padding: int
    height: int
    width: int

    @property
    def padded(self) -> tuple[int, int]:
        return self.height + 2 * self.padding, self.width + 2 * self.padding

    @property
    def pooled(self) -> tuple[int, int]:
        rows, columns = self.padded
        return (rows - self.kernel + 1) // 2, (columns - self.kernel + 1) // 2

    @property
    def group(self) -> int:
        """The pooling cells that share a window: two where the width allows."""
        return 2 if self.pooled[1] % 2 == 0 else 1

    @property
    def window(self) -> tuple[int, int]:
        return self.kernel + 1, 2 * self.group + self.kernel - 1

    @property
    def taps(self) -> int:
        """The inputs of one window."""
        return self.channels * self.window[0] * self.window[1]

    @property
    def cells(self) -> tuple[int, int, int, int]:
        """The shape of the pooled output of a sample: (column in group, channel, row, group)."""
        return self.group, self.outputs, self.pooled[0], self.pooled[1] // self.group

    def buffer(self, samples: int) -> tuple[int, ...]:
        """The shape of an input buffer (channel, row, column, sample); its border is padding."""
        return self.channels, *self.padded, samples

    def interior(self, buffer: Tensor) -> Tensor:
        """The part of an input buffer inside the padding."""
        pad = self.padding
        return buffer[:, pad : pad + self.height, pad : pad + self.width]

    def windows(self, buffer: Tensor) -> Tensor:
        """A view of all windows: (channel, row, column, cell row, group of cells, sample)."""
        samples = buffer.shape[3]
        row = self.padded[1] * samples
        return buffer.as_strided(
            (self.channels, *self.window, self.cells[2], self.cells[3], samples),
            (self.padded[0] * row, row, samples, 2 * row, 2 * self.group * samples, 1),
        )

    def kernel_view(self, expanded: Tensor) -> Tensor:
        """The places of the kernel in the matrix of a window: (2, 2, group, out, in, k, k)."""
        wide = self.window[1]
        block = self.outputs * self.taps
        return expanded.as_strided(
            (2, 2, self.group, self.outputs, self.channels, self.kernel, self.kernel),
            # Moving one candidate down, right or one cell on also moves the kernel in the window.
            (
                2 * self.group * block + wide,
                self.group * block + 1,
                block + 2,
                self.taps,
                self.window[0] * wide,
                wide,
                1,
            ),
        )

    def expand(self, weight: Tensor) -> Tensor:
        """The matrix that maps a window to the four candidates of each of its cells."""
        expanded = torch.zeros(4 * self.group * self.outputs, self.taps)
        self.kernel_view(expanded).copy_(weight)
        return expanded

    def collapse(self, expanded: Tensor) -> Tensor:
        """The adjoint of ``expand``."""
        return self.kernel_view(expanded).sum(dim=(0, 1, 2))

    def by_cell(self, image: Tensor) -> Tensor:
        """View the pooled output (channel, row, column, sample) in the order of ``cells``."""
        # Only the width is split, so this is a view whatever the strides are.
        split = torch.unflatten(image, 2, (self.cells[3], self.group))
        return split.permute(3, 0, 1, 2, 4)

    def folds(self, taps: Tensor, buffer: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Pairs (target, source) whose additions carry gradients of windows back to the buffer.

        Within a pair no two windows overlap, so each is one addition of views.
        """
        samples = buffer.shape[3]
        row = self.padded[1] * samples
        rows, columns = self.window
        step = 2 * self.group
        parts = taps.view(self.channels, rows // 2, 2, columns, *self.cells[2:], samples)
        pairs = []
        for a in range(rows // 2):
            for b in range(0, columns, step):
                width = min(step, columns - b)
                target = buffer.as_strided(
                    (self.channels, 2, width, self.cells[2], self.cells[3], samples),
                    (self.padded[0] * row, row, samples, 2 * row, step * samples, 1),
                    2 * a * row + b * samples,
                )
                pairs.append((target, parts[:, a, :, b : b + width]))
        return pairs


class _Memory:
    """Flat tensors from which the same list of arrays is cut for any number of samples."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._flats: list[Tensor] = []

    def cutter(self, samples: int) -> Callable[..., Tensor]:
        """A function that gives the next array of the list; every size is linear in samples."""
        numbers = count()

        def cut(*shape: int) -> Tensor:
            number, size = next(numbers), math.prod(shape)
            if number == len(self._flats):
                self._flats.append(torch.empty(size // samples * self.capacity))
            return self._flats[number][:size].view(shape)

        return cut


class _Scratch:
    """The arrays of one stage that hold nothing between two chunks, with the views used on them."""

    def __init__(
        self,
        geometry: _Geometry,
        samples: int,
        before: _Geometry | None,
        cut: Callable[..., Tensor],
    ) -> None:
        cells = geometry.cells
        places = cells[2] * cells[3] * samples
        self.patches = cut(geometry.taps, places)
        self.patches_transposed = self.patches.t()
        self.patch_view = self.patches.view(
            geometry.channels, *geometry.window, cells[2], cells[3], samples
        )
        self.candidates = cut(4 * cells[0] * cells[1], places)
        self.planes = tuple(self.candidates.view(4, *cells, samples))
        self.upper = cut(*cells, samples)
        self.lower = cut(*cells, samples)
        self.patch_gradients = cut(geometry.taps, places)
        self.input_gradient = cut(*geometry.buffer(samples))
        self.folds = geometry.folds(self.patch_gradients, self.input_gradient)
        interior = geometry.interior(self.input_gradient)
        self.previous_gradient = before.by_cell(interior) if before else interior


class _Chunk:
    """What the backward pass needs of one chunk: inputs and winners of every stage."""

    def __init__(self, geometries: Sequence[_Geometry], samples: int, memory: _Memory) -> None:
        cut = memory.cutter(samples)
        self.memory = memory
        # Zeroed, because the padding is never written to.
        self.inputs = [cut(*geometry.buffer(samples)).zero_() for geometry in geometries]
        self.images = geometries[0].interior(self.inputs[0])
        self.windows = [g.windows(x) for g, x in zip(geometries, self.inputs, strict=True)]
        self.output = cut(*geometries[-1].cells, samples)
        self.targets = [
            geometry.by_cell(following.interior(buffer))
            for geometry, following, buffer in zip(
                geometries, geometries[1:], self.inputs[1:], strict=False
            )
        ] + [self.output]
        # Three comparisons name the winner of four, as 0/1 in float32: a product applies them.
        self.winners = [tuple(cut(3, *g.cells, samples)) for g in geometries]


class _Workspace:
    """Memory of a stack, used again step after step; one per module, so one per worker.

    It is the memory of the largest chunks that were ever in use at the same time, whatever sizes
    the batches have.
    """

    def __init__(self, geometries: Sequence[_Geometry]) -> None:
        self.geometries = tuple(geometries)
        self._scratch: dict[int, list[_Scratch]] = {}
        self._memories = [_Memory(0) for _ in geometries]
        self._free: dict[int, list[_Chunk]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Workspace:
        # A copied module gets memory of its own: two workers must never share it.
        return _Workspace(self.geometries)

    def scratch(self, samples: int) -> list[_Scratch]:
        """The scratch arrays of all stages for a chunk."""
        if samples not in self._scratch:
            if samples > self._memories[0].capacity:
                self._memories = [_Memory(max(samples, CHUNK_SAMPLES)) for _ in self.geometries]
                self._scratch.clear()
            if len(self._scratch) >= CUTS_KEPT:
                self._scratch.clear()
            before = (None, *self.geometries[:-1])
            self._scratch[samples] = [
                _Scratch(geometry, samples, previous, memory.cutter(samples))
                for geometry, previous, memory in zip(
                    self.geometries, before, self._memories, strict=True
                )
            ]
        return self._scratch[samples]

    def take(self, samples: int) -> _Chunk:
        """A chunk nobody uses: one of this size, one cut from another's memory, or a new one."""
        if self._free.get(samples):
            return self._free[samples].pop()
        for chunks in self._free.values():
            if chunks and chunks[-1].memory.capacity >= samples:
                return _Chunk(self.geometries, samples, chunks.pop().memory)
        return _Chunk(self.geometries, samples, _Memory(max(samples, CHUNK_SAMPLES)))

    def give(self, samples: int, chunk: _Chunk) -> None:
        """Hand a chunk back for the next pass."""
        self._free.setdefault(samples, []).append(chunk)


def _spans(samples: int) -> list[tuple[int, int]]:
    """Cut a batch into chunks of nearly equal size, multiples of half a vector register."""
    chunks = math.ceil(samples / CHUNK_SAMPLES)
    size = math.ceil(samples / chunks / 8) * 8
    return [(begin, min(begin + size, samples)) for begin in range(0, samples, size)]


def _forward_chunk(
    scratches: list[_Scratch],
    chunk: _Chunk,
    matrices: list[Tensor],
    biases: list[Tensor],
    keep: bool,
) -> None:
    for stage, scratch in enumerate(scratches):
        scratch.patch_view.copy_(chunk.windows[stage])
        torch.mm(matrices[stage], scratch.patches, out=scratch.candidates)
        first, second, third, fourth = scratch.planes
        upper, lower = scratch.upper, scratch.lower
        torch.maximum(first, second, out=upper)
        torch.maximum(third, fourth, out=lower)
        if keep:
            left, right, up = chunk.winners[stage]
            # "At least" gives a tie to the first candidate, as torch's max-pooling does.
            torch.ge(first, second, out=left)
            torch.ge(third, fourth, out=right)
            torch.ge(upper, lower, out=up)
        # The bias is the same for all four candidates, so it may follow the maximum.
        torch.maximum(upper, lower, out=upper)
        torch.add(upper, biases[stage], out=chunk.targets[stage])


def _backward_chunk(
    scratches: list[_Scratch],
    chunk: _Chunk,
    matrices: list[Tensor],
    matrix_gradients: list[Tensor],
    bias_gradients: list[Tensor],
) -> None:
    gradient = chunk.output
    for stage in reversed(range(len(scratches))):
        scratch = scratches[stage]
        left, right, up = chunk.winners[stage]
        first, second, third, fourth = scratch.planes
        upper, lower = scratch.upper, scratch.lower
        torch.mul(gradient, up, out=upper)
        torch.sub(gradient, upper, out=lower)
        torch.mul(upper, left, out=first)
        torch.sub(upper, first, out=second)
        torch.mul(lower, right, out=third)
        torch.sub(lower, third, out=fourth)
        bias_gradients[stage] += gradient.sum(dim=(0, 2, 3, 4))
        # Cutting the windows again is cheaper than fetching them from main memory.
        scratch.patch_view.copy_(chunk.windows[stage])
        matrix_gradients[stage].addmm_(scratch.candidates, scratch.patches_transposed)
        if stage:
            torch.mm(matrices[stage].t(), scratch.candidates, out=scratch.patch_gradients)
            scratch.input_gradient.zero_()
            for target, source in scratch.folds:
                target.add_(source)
            gradient = scratch.previous_gradient


class _ConvPool(torch.autograd.Function):
    """Convolution and pooling, stage after stage, with the gradients of weights and biases."""

    @staticmethod
    def forward(
        ctx: Any, work: _Workspace, keep: bool, images: Tensor, *parameters: Tensor
    ) -> Tensor:
        geometries = work.geometries
        pairs = list(zip(geometries, parameters[::2], strict=True))
        matrices = [geometry.expand(weight) for geometry, weight in pairs]
        biases = [bias.view(-1, 1, 1, 1) for bias in parameters[1::2]]
        last = geometries[-1]
        output = torch.empty(len(images), last.outputs, *last.pooled)
        chunks = []
        for begin, end in _spans(len(images)):
            chunk = work.take(end - begin)
            chunk.images.copy_(images[begin:end].permute(1, 2, 3, 0))
            _forward_chunk(work.scratch(end - begin), chunk, matrices, biases, keep)
            last.by_cell(output[begin:end].permute(1, 2, 3, 0)).copy_(chunk.output)
            if keep:
                chunks.append(chunk)
            else:
                work.give(end - begin, chunk)
        ctx.work, ctx.matrices, ctx.chunks = work, matrices, chunks
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        work, chunks, matrices = ctx.work, ctx.chunks, ctx.matrices
        if chunks is None:
            raise RuntimeError("the convolution stack keeps its activations for one backward pass")
        ctx.chunks = None
        geometries = work.geometries
        matrix_gradients = [torch.zeros_like(matrix) for matrix in matrices]
        bias_gradients = [torch.zeros(geometry.outputs) for geometry in geometries]
        for (begin, end), chunk in zip(_spans(len(gradient)), chunks, strict=True):
            part = geometries[-1].by_cell(gradient[begin:end].permute(1, 2, 3, 0))
            chunk.output.copy_(part)
            _backward_chunk(
                work.scratch(end - begin), chunk, matrices, matrix_gradients, bias_gradients
            )
            work.give(end - begin, chunk)
        result: list[Any] = [None, None, None]
        for geometry, matrix, bias in zip(
            geometries, matrix_gradients, bias_gradients, strict=True
        ):
            result += [geometry.collapse(matrix), bias]
        return tuple(result)


class ConvPoolStack(nn.Module):
    """Convolutions, each followed by 2x2 max-pooling: ``(n, channels, h, w)`` to pooled features.

    The parameters are those of ordinary ``nn.Conv2d`` layers. On a CPU with float32 the fused
    computation is used; elsewhere, and where the gradient of the images is asked for, torch's own
    layers give the same result.
    """

    def __init__(
        self, image_shape: tuple[int, int, int], outputs: Sequence[int], kernel: int, padding: int
    ) -> None:
        super().__init__()
        channels, height, width = image_shape
        geometries = []
        convolutions: list[nn.Module] = []
        for features in outputs:
            geometry = _Geometry(channels, features, kernel, padding, height, width)
            if min(geometry.pooled) < 1:
                raise ValueError(
                    f"images of {image_shape[1]}x{image_shape[2]} pixels are too small"
                )
            convolutions.append(nn.Conv2d(channels, features, kernel, padding=padding))
            geometries.append(geometry)
            channels, (height, width) = features, geometry.pooled
        self.convolutions = nn.ModuleList(convolutions)
        self.output_shape = (channels, height, width)
        self._work = _Workspace(geometries)

    def forward(self, images: Tensor) -> Tensor:
        """Pooled features ``(n, channels, h, w)``."""
        plain = images.device.type != "cpu" or images.dtype != torch.float32
        if plain or images.requires_grad or len(images) == 0:
            for convolution in self.convolutions:
                images = F.max_pool2d(convolution(images), 2)
            return images
        parameters = [p for layer in self.convolutions for p in (layer.weight, layer.bias)]
        keep = torch.is_grad_enabled()
        result = _ConvPool.apply(self._work, keep, images, *parameters)  # type: ignore[no-untyped-call]
        return cast(Tensor, result)


class SegmentBatchNorm(nn.Module):
    """Batch norm whose training batch is a sequence of devices, each normalised by its own samples.

    It takes over an ``nn.BatchNorm*d`` with its parameters and buffers. ``divide`` says how many
    samples each device has in the next pass and what weight its statistics get. The statistics of
    all passes since ``begin`` enter the running ones at ``finish``, once, as if each device had
    updated its own and the results had been averaged.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.eps, self.momentum = norm.eps, norm.momentum
        self.track = norm.running_mean is not None
        if self.track:
            self.register_buffer("running_mean", norm.running_mean)
            self.register_buffer("running_var", norm.running_var)
        self.channels = norm.num_features
        self._sizes: Sequence[int] = ()
        self._shares: Sequence[float] = ()
        self._seen: list[tuple[Tensor, Tensor]] = []
        self._call = 0

    def begin(self) -> None:
        """Forget the statistics of unfinished passes."""
        self._seen = []

    def divide(self, sizes: Sequence[int], shares: Sequence[float]) -> None:
        """Say which devices, in order, the next pass consists of."""
        self._sizes, self._shares, self._call = sizes, shares, 0

    def finish(self) -> None:
        """Move the running statistics by what was seen since ``begin``."""
        assert self.momentum is not None
        # A layer that a model calls several times is moved as often. The shares of all devices of
        # a step sum to one, so the old value keeps 1 - momentum each time.
        for mean, variance in self._seen:
            self.running_mean.mul_(1 - self.momentum).add_(mean, alpha=self.momentum)
            self.running_var.mul_(1 - self.momentum).add_(variance, alpha=self.momentum)
        self.begin()

    def forward(self, batch: Tensor) -> Tensor:
        """The batch, normalised per device in training, by running statistics in evaluation."""
        if not self.training and self.track:
            return F.batch_norm(
                batch, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        # A model may cut each sample into several rows before it normalises them.
        rows, rest = divmod(len(batch), max(1, sum(self._sizes)))
        if rest or not rows:
            raise ValueError(f"batch norm got {len(batch)} rows for {sum(self._sizes)} samples")
        sizes, shares = [size * rows for size in self._sizes], self._shares
        outputs, start, row = [], 0, 0
        # Devices with equally many samples share one call, in which (device, channel) is a channel.
        for size, devices in _runs(sizes):
            part = batch[row : row + size * devices]
            outputs.append(self._normalise(part, devices, shares[start : start + devices]))
            start, row = start + devices, row + size * devices
        self._call += 1
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _normalise(self, part: Tensor, devices: int, shares: Sequence[float]) -> Tensor:
        size = len(part) // devices
        shape = part.shape[1:]
        folded = part.view(devices, size, *shape).transpose(0, 1) if devices > 1 else part
        folded = folded.reshape(size, devices * self.channels, *shape[1:])
        mean = torch.zeros(devices * self.channels, device=part.device, dtype=part.dtype)
        variance = torch.zeros_like(mean)
        weight = (
            self.weight.repeat(devices) if devices > 1 and self.weight is not None else self.weight
        )
        bias = self.bias.repeat(devices) if devices > 1 and self.bias is not None else self.bias
        # With momentum 1 the "running" statistics are those of this batch.
        result = torch.batch_norm(
            folded, weight, bias, mean, variance, True, 1.0, self.eps, torch.backends.cudnn.enabled
        )
        values = folded.numel() // (devices * self.channels)
        if self.training and self.track:
            self._collect(mean, variance if values > 1 else torch.zeros_like(mean), shares)
        if devices > 1:
            result = result.view(size, devices, *shape).transpose(0, 1).reshape(part.shape)
        return result

    def _collect(self, mean: Tensor, variance: Tensor, shares: Sequence[float]) -> None:
        factors = torch.tensor(shares, dtype=mean.dtype, device=mean.device)
        mean = factors @ mean.view(len(shares), -1)
        variance = factors @ variance.view(len(shares), -1)
        if self._call == len(self._seen):
            self._seen.append((mean, variance))
        else:
            earlier = self._seen[self._call]
            self._seen[self._call] = (earlier[0] + mean, earlier[1] + variance)


def _runs(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring equal sizes as (size, how many)."""
    return [(size, len(list(group))) for size, group in groupby(sizes)]


class SeededDropout(nn.Module):
    """Dropout that draws from a generator the engine derives, never from torch's global one."""

    def __init__(self, dropout: nn.modules.dropout._DropoutNd) -> None:
        super().__init__()
        self.probability = dropout.p
        # Dropout1d, 2d and 3d drop whole channels.
        self.by_channel = not isinstance(dropout, nn.Dropout)
        self.generator: torch.Generator | None = None

    def forward(self, batch: Tensor) -> Tensor:
        """The batch with a part of its values set to zero in training."""
        if not self.training or self.probability == 0:
            return batch
        if self.probability >= 1:
            return batch * 0
        shape = batch.shape[:2] + (1,) * (batch.dim() - 2) if self.by_channel else batch.shape
        keep = torch.empty(shape, dtype=batch.dtype, device=batch.device)
        keep.bernoulli_(1 - self.probability, generator=self.generator)
        return batch * keep / (1 - self.probability)


def prepare(module: nn.Module) -> nn.Module:
    """Put the engine's layers in the place of every batch norm and dropout of a module."""
    replaced: dict[int, nn.Module] = {}  # a layer used in two places stays one layer
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            if child is not None:
                if id(child) not in replaced:
                    replaced[id(child)] = _replacement(child)
                parent._modules[name] = replaced[id(child)]
    return module


def _replacement(layer: nn.Module) -> nn.Module:
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        if layer.momentum is None:
            raise InputError(
                "model: a batch norm with momentum=None (a cumulative average) cannot be averaged "
                "over devices; give it a momentum, for example 0.1."
            )
        return SegmentBatchNorm(layer)
    if type(layer) in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        return SeededDropout(cast(nn.modules.dropout._DropoutNd, layer))
    return layer
