"""Convolution with 2x2 max-pooling as a few large matrix products.

``ConvPoolStack`` computes what ``conv2d`` followed by ``max_pool2d`` computes, several times in a
row. The images are laid out with the sample as the last, contiguous index, so that cutting them
into windows is copying long runs. A window is as wide as the image and as high as the inputs of one
row of pooling cells; its columns come first, so the inputs of neighbouring cells are a slice of it
and one small matrix maps any such slice to the four candidates of its cells. A pooling cell is the
maximum of four planes of memory: no index tensor is kept, no zeros are filled, and the channels are
never padded to the width of a vector register.

Samples pass in chunks that fit the processor's second cache, and all memory is used again in the
next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The samples that pass through the stack at a time: few enough that windows and candidates stay
# in the processor's second cache, enough that Python's part stays small.
CHUNK_SAMPLES = 64
# Chunks are multiples of half a vector register.
CHUNK_STEP = 8
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
    def block(self) -> int:
        """The pooling cells that share a matrix product: two where it would be small else."""
        return 2 if self.channels == 1 and self.pooled[1] % 2 == 0 else 1

    @property
    def window(self) -> tuple[int, int]:
        """The rows and columns of the inputs of one row of cells."""
        return self.kernel + 1, 2 * self.pooled[1] + self.kernel - 1

    @property
    def column(self) -> int:
        """The inputs in one column of a window."""
        return self.channels * self.window[0]

    @property
    def taps(self) -> int:
        """The inputs of one window."""
        return self.window[1] * self.column

    @property
    def block_taps(self) -> int:
        """The inputs of one block of cells."""
        return (2 * self.block + self.kernel - 1) * self.column

    @property
    def cells(self) -> tuple[int, int, int]:
        """The shape of the pooled output of a sample: (column, channel, row)."""
        return self.pooled[1], self.outputs, self.pooled[0]

    def buffer(self, samples: int) -> tuple[int, ...]:
        """The shape of an input buffer (channel, row, column, sample); its border is padding."""
        return self.channels, *self.padded, samples

    def interior(self, buffer: Tensor) -> Tensor:
        """The part of an input buffer inside the padding."""
        pad = self.padding
        return buffer[:, pad : pad + self.height, pad : pad + self.width]

    def windows(self, buffer: Tensor) -> Tensor:
        """A view of all windows: (column, channel, row, row of cells, sample)."""
        rows, columns = self.window
        return _rows_of_windows(buffer, (columns, self.channels, rows, self.pooled[0]), 0)

    def blocks(self, taps: Tensor) -> Tensor:
        """View the inputs of each block of cells: overlapping slices (block, tap, place)."""
        places = taps.shape[1]
        return taps.as_strided(
            (self.pooled[1] // self.block, self.block_taps, places),
            (2 * self.block * self.column * places, places, 1),
        )

    def kernel_view(self, matrix: Tensor) -> Tensor:
        """The places of the kernel in the matrix of a block: (2, 2, cell, out, in, k, k)."""
        # Moving one candidate down, right or one cell on also moves the kernel in the window.
        plane = self.outputs * self.block_taps
        return matrix.as_strided(
            (2, 2, self.block, self.outputs, self.channels, self.kernel, self.kernel),
            (
                2 * self.block * plane + 1,
                self.block * plane + self.column,
                plane + 2 * self.column,
                self.block_taps,
                self.window[0],
                1,
                self.column,
            ),
        )

    def expand(self, weight: Tensor) -> Tensor:
        """The matrix that maps the inputs of a block to the four candidates of its cells."""
        matrix = torch.zeros(4 * self.block * self.outputs, self.block_taps)
        self.kernel_view(matrix).copy_(weight)
        return matrix

    def collapse(self, matrix: Tensor) -> Tensor:
        """The adjoint of ``expand``."""
        view = self.kernel_view(matrix)
        return view.reshape(4 * self.block, -1).sum(dim=0).view(view.shape[3:])

    def by_cell(self, image: Tensor) -> Tensor:
        """View the pooled output (channel, row, column, sample) in the order of ``cells``."""
        return image.permute(2, 0, 1, 3)

    def folds(self, taps: Tensor, buffer: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Pairs (target, source) whose additions carry gradients of windows back to the buffer.

        Two rows of all windows together never overlap, so each pair is one addition of views.
        """
        rows, columns = self.window
        pairs, shape = rows // 2, (columns, self.channels, 2, self.pooled[0])
        parts = taps.view(columns, self.channels, pairs, 2, self.pooled[0], buffer.shape[3])
        return [
            (_rows_of_windows(buffer, shape, 2 * pair), parts[:, :, pair]) for pair in range(pairs)
        ]


def _rows_of_windows(buffer: Tensor, shape: tuple[int, int, int, int], first: int) -> Tensor:
    """View some rows, from ``first`` on, of all windows: neighbouring windows are two rows apart.

    The shape is (column, channel, row of the window, window).
    """
    channel, row, column, _ = buffer.stride()
    strides = (column, channel, row, 2 * row, 1)
    return buffer.as_strided((*shape, buffer.shape[3]), strides, first * row)


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
        columns, outputs, rows = geometry.cells
        block, places = geometry.block, rows * samples
        patches = cut(geometry.taps, places)
        self.patches = patches.view(
            geometry.window[1], geometry.channels, geometry.window[0], rows, samples
        )
        self.blocks = geometry.blocks(patches)
        self.blocks_transposed = self.blocks.transpose(1, 2)
        self.candidates = cut(columns // block, 4 * block * outputs, places)
        # (block, upper or lower, left or right, cell, channel, row, sample)
        planes = self.candidates.view(columns // block, 2, 2, block, outputs, rows, samples)
        self.left = planes[:, :, 0].transpose(0, 1)
        self.right = planes[:, :, 1].transpose(0, 1)
        self.halves = cut(2, columns // block, block, outputs, rows, samples)
        self.upper, self.lower = self.halves.view(2, *geometry.cells, samples)
        self.patch_gradients = cut(geometry.taps, places)
        # Gradients of neighbouring blocks overlap, so they are added one after another.
        block_gradients = geometry.blocks(self.patch_gradients)
        self.blocks_and_gradients = list(zip(self.candidates, block_gradients, strict=True))
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
        self.results = [
            geometry.by_cell(following.interior(buffer))
            for geometry, following, buffer in zip(
                geometries, geometries[1:], self.inputs[1:], strict=False
            )
        ] + [self.output]
        # Three comparisons name the winner of four, as 0/1 in float32: a product applies them.
        self.left_wins = [
            cut(2, g.cells[0] // g.block, g.block, *g.cells[1:], samples) for g in geometries
        ]
        self.upper_wins = [cut(*g.cells, samples) for g in geometries]


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
    """Cut a batch into chunks of nearly equal size, multiples of ``CHUNK_STEP``."""
    steps = math.ceil(samples / CHUNK_STEP)
    chunks = max(1, round(samples / CHUNK_SAMPLES))
    ends = [min(samples, (n + 1) * steps // chunks * CHUNK_STEP) for n in range(chunks)]
    return list(zip([0, *ends], ends, strict=False))


def _forward_chunk(
    scratches: list[_Scratch],
    chunk: _Chunk,
    matrices: list[Tensor],
    biases: list[Tensor],
    keep: bool,
) -> None:
    for stage, scratch in enumerate(scratches):
        scratch.patches.copy_(chunk.windows[stage])
        blocks = scratch.blocks
        torch.bmm(matrices[stage].expand(len(blocks), -1, -1), blocks, out=scratch.candidates)
        left, right, upper, lower = scratch.left, scratch.right, scratch.upper, scratch.lower
        torch.maximum(left, right, out=scratch.halves)
        if keep:
            # "At least" gives a tie to the first candidate, as torch's max-pooling does.
            torch.ge(left, right, out=chunk.left_wins[stage])
            torch.ge(upper, lower, out=chunk.upper_wins[stage])
        # The bias is the same for all four candidates, so it may follow the maximum.
        torch.maximum(upper, lower, out=upper)
        torch.add(upper, biases[stage], out=chunk.results[stage])


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
        left, right, upper, lower = scratch.left, scratch.right, scratch.upper, scratch.lower
        torch.mul(gradient, chunk.upper_wins[stage], out=upper)
        torch.sub(gradient, upper, out=lower)
        torch.mul(scratch.halves, chunk.left_wins[stage], out=left)
        torch.sub(scratch.halves, left, out=right)
        bias_gradients[stage] += gradient.sum(dim=(0, 2, 3))
        # Cutting the windows again is cheaper than fetching them from main memory.
        scratch.patches.copy_(chunk.windows[stage])
        matrix_gradients[stage].addbmm_(scratch.candidates, scratch.blocks_transposed)
        if stage:
            scratch.patch_gradients.zero_()
            transposed = matrices[stage].t()
            for block, block_gradient in scratch.blocks_and_gradients:
                block_gradient.addmm_(transposed, block)
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
        biases = [bias.view(-1, 1, 1) for bias in parameters[1::2]]
        last = geometries[-1]
        output = torch.empty(len(images), last.outputs, *last.pooled)
        by_cell = last.by_cell(output.permute(1, 2, 3, 0))
        samples_last = images.permute(1, 2, 3, 0)
        chunks = []
        for begin, end in _spans(len(images)):
            chunk = work.take(end - begin)
            chunk.images.copy_(samples_last[..., begin:end])
            _forward_chunk(work.scratch(end - begin), chunk, matrices, biases, keep)
            by_cell[..., begin:end].copy_(chunk.output)
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
        by_cell = geometries[-1].by_cell(gradient.permute(1, 2, 3, 0))
        for (begin, end), chunk in zip(_spans(len(gradient)), chunks, strict=True):
            chunk.output.copy_(by_cell[..., begin:end])
            scratches = work.scratch(end - begin)
            _backward_chunk(scratches, chunk, matrices, matrix_gradients, bias_gradients)
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
