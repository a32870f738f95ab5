"""Convolution with 2x2 max-pooling as a few large matrix products.

``ConvPoolStack`` computes what ``conv2d`` followed by ``max_pool2d`` computes, several times in a
row. The images are laid out with the sample as the last, contiguous index, so that cutting them
into windows is copying long runs. A window is as wide as the image and as high as the inputs of one
row of pooling cells; its columns come first, so the inputs of neighbouring cells are a slice of it
and one small matrix maps any such slice to the four candidates of its cells. A pooling cell is the
maximum of four planes of memory: no index tensor is kept, no zeros are filled, and the channels are
never padded to the width of a vector register.

Samples pass in chunks that fit the processor's second cache, each by one call into torch, and all
memory is used again in the next step.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The samples that pass through the stack at a time: few enough that windows and candidates stay
# in the processor's second cache, enough that Python's part stays small.
CHUNK_SAMPLES = 48
# Chunks are multiples of half a vector register.
CHUNK_STEP = 8
# Sizes of chunks whose views are kept; all sizes share the same memory.
CUTS_KEPT = 16

Function = TypeVar("Function", bound=Callable[..., Any])


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
    def blocks_in_row(self) -> int:
        """The matrix products for one row of cells."""
        return self.pooled[1] // self.block

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
            (self.blocks_in_row, self.block_taps, places),
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

    def folds(self, taps: Tensor, buffer: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Targets and sources whose additions carry gradients of windows back to the buffer.

        Two rows of all windows together never overlap, so each pair is one addition of views.
        """
        rows, columns = self.window
        pairs, shape = rows // 2, (columns, self.channels, 2, self.pooled[0])
        parts = taps.view(columns, self.channels, pairs, 2, self.pooled[0], buffer.shape[3])
        targets = [_rows_of_windows(buffer, shape, 2 * pair) for pair in range(pairs)]
        return targets, [parts[:, :, pair] for pair in range(pairs)]


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
    """Arrays that hold nothing between two chunks, with the views used on them, stage by stage."""

    def __init__(
        self, geometries: Sequence[_Geometry], samples: int, cut: Callable[..., Tensor]
    ) -> None:
        self.patches: list[Tensor] = []
        self.blocks: list[Tensor] = []
        self.blocks_transposed: list[list[Tensor]] = []
        self.candidates: list[Tensor] = []
        self.candidate_blocks: list[list[Tensor]] = []
        self.left: list[Tensor] = []
        self.right: list[Tensor] = []
        self.halves: list[Tensor] = []
        self.upper: list[Tensor] = []
        self.lower: list[Tensor] = []
        self.patch_gradients: list[Tensor] = []
        self.block_gradients: list[list[Tensor]] = []
        self.input_gradients: list[Tensor] = []
        self.targets: list[list[Tensor]] = []
        self.sources: list[list[Tensor]] = []
        for geometry in geometries:
            self._forward_arrays(geometry, samples, cut)
            self._backward_arrays(geometry, samples, cut)
        # What a stage hands back is the gradient of the pooled output of the one before it.
        self.gradients = [
            geometry.by_cell(following.interior(gradient))
            for geometry, following, gradient in zip(
                geometries, geometries[1:], self.input_gradients[1:], strict=False
            )
        ]

    def _forward_arrays(
        self, geometry: _Geometry, samples: int, cut: Callable[..., Tensor]
    ) -> None:
        _, outputs, rows = geometry.cells
        block, places = geometry.block, rows * samples
        patches = cut(geometry.taps, places)
        window = (geometry.window[1], geometry.channels, geometry.window[0])
        self.patches.append(patches.view(*window, rows, samples))
        self.blocks.append(geometry.blocks(patches))
        self.blocks_transposed.append(list(self.blocks[-1].transpose(1, 2)))
        self.candidates.append(cut(geometry.blocks_in_row, 4 * block * outputs, places))
        self.candidate_blocks.append(list(self.candidates[-1]))
        # (block, upper or lower, left or right, cell, channel, row, sample)
        planes = self.candidates[-1].view(
            geometry.blocks_in_row, 2, 2, block, outputs, rows, samples
        )
        self.left.append(planes[:, :, 0].transpose(0, 1))
        self.right.append(planes[:, :, 1].transpose(0, 1))
        self.halves.append(cut(2, geometry.blocks_in_row, block, outputs, rows, samples))
        upper, lower = self.halves[-1].view(2, *geometry.cells, samples)
        self.upper.append(upper)
        self.lower.append(lower)

    def _backward_arrays(
        self, geometry: _Geometry, samples: int, cut: Callable[..., Tensor]
    ) -> None:
        patch_gradients = cut(geometry.taps, geometry.pooled[0] * samples)
        self.patch_gradients.append(patch_gradients)
        self.block_gradients.append(list(geometry.blocks(patch_gradients)))
        self.input_gradients.append(cut(*geometry.buffer(samples)))
        targets, sources = geometry.folds(patch_gradients, self.input_gradients[-1])
        self.targets.append(targets)
        self.sources.append(sources)


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
            cut(2, g.blocks_in_row, g.block, *g.cells[1:], samples) for g in geometries
        ]
        self.upper_wins = [cut(*g.cells, samples) for g in geometries]


class _Workspace:
    """Memory of a stack, used again step after step; one per module, so one per worker.

    It is the memory of the largest chunks that were ever in use at the same time, whatever sizes
    the batches have.
    """

    def __init__(self, geometries: Sequence[_Geometry]) -> None:
        self.geometries = tuple(geometries)
        self._scratch: dict[int, _Scratch] = {}
        self._memory = _Memory(0)
        self._free: dict[int, list[_Chunk]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Workspace:
        # A copied module gets memory of its own: two workers must never share it.
        return _Workspace(self.geometries)

    def scratch(self, samples: int) -> _Scratch:
        """The scratch arrays for a chunk."""
        if samples not in self._scratch:
            if samples > self._memory.capacity:
                self._memory = _Memory(max(samples, CHUNK_SAMPLES))
                self._scratch.clear()
            if len(self._scratch) >= CUTS_KEPT:
                self._scratch.clear()
            self._scratch[samples] = _Scratch(
                self.geometries, samples, self._memory.cutter(samples)
            )
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
    keep: bool,
    windows: list[Tensor],
    patches: list[Tensor],
    blocks: list[Tensor],
    matrices: list[Tensor],
    candidates: list[Tensor],
    left: list[Tensor],
    right: list[Tensor],
    halves: list[Tensor],
    upper: list[Tensor],
    lower: list[Tensor],
    left_wins: list[Tensor],
    upper_wins: list[Tensor],
    biases: list[Tensor],
    results: list[Tensor],
) -> None:
    for n in range(len(windows)):
        patches[n].copy_(windows[n])
        torch.bmm(matrices[n], blocks[n], out=candidates[n])
        torch.maximum(left[n], right[n], out=halves[n])
        if keep:
            # "At least" gives a tie to the first candidate, as torch's max-pooling does.
            torch.ge(left[n], right[n], out=left_wins[n])
            torch.ge(upper[n], lower[n], out=upper_wins[n])
        # The bias is the same for all four candidates, so it may follow the maximum.
        torch.maximum(upper[n], lower[n], out=upper[n])
        torch.add(upper[n], biases[n], out=results[n])


def _backward_chunk(
    gradients: list[Tensor],
    windows: list[Tensor],
    patches: list[Tensor],
    blocks_transposed: list[list[Tensor]],
    transposed: list[Tensor],
    candidates: list[list[Tensor]],
    left: list[Tensor],
    right: list[Tensor],
    halves: list[Tensor],
    upper: list[Tensor],
    lower: list[Tensor],
    left_wins: list[Tensor],
    upper_wins: list[Tensor],
    matrix_gradients: list[Tensor],
    bias_gradients: list[Tensor],
    patch_gradients: list[Tensor],
    block_gradients: list[list[Tensor]],
    input_gradients: list[Tensor],
    targets: list[list[Tensor]],
    sources: list[list[Tensor]],
) -> None:
    for n in range(len(windows) - 1, -1, -1):
        torch.mul(gradients[n], upper_wins[n], out=upper[n])
        torch.sub(gradients[n], upper[n], out=lower[n])
        torch.mul(halves[n], left_wins[n], out=left[n])
        torch.sub(halves[n], left[n], out=right[n])
        bias_gradients[n].add_(gradients[n].sum(dim=[0, 2, 3]))
        # Cutting the windows again is cheaper than fetching them from main memory.
        patches[n].copy_(windows[n])
        for block in range(len(candidates[n])):
            matrix_gradients[n].addmm_(candidates[n][block], blocks_transposed[n][block])
        if n > 0:
            patch_gradients[n].zero_()
            # Gradients of neighbouring blocks overlap, so they are added one after another.
            for block in range(len(candidates[n])):
                block_gradients[n][block].addmm_(transposed[n], candidates[n][block])
            input_gradients[n].zero_()
            for pair in range(len(targets[n])):
                targets[n][pair].add_(sources[n][pair])


@cache
def _compiled(function: Function) -> Function:
    """The function as one call into torch, or itself where torch cannot compile it any more.

    Both do the same operations in the same order, so results do not depend on it. What it brings
    is that Python's lock is taken once per chunk instead of after every operation: workers who
    wait for it, however briefly, are put to sleep and woken by the operating system.
    """
    with warnings.catch_warnings():
        # torch prefers another compiler, which needs a C++ compiler on the user's machine.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return cast(Function, torch.jit.script(function))
        except (AttributeError, RuntimeError):
            return function


class _ConvPool(torch.autograd.Function):
    """Convolution and pooling, stage after stage, with the gradients of weights and biases."""

    @staticmethod
    def forward(
        ctx: Any, work: _Workspace, keep: bool, images: Tensor, *parameters: Tensor
    ) -> Tensor:
        geometries = work.geometries
        pairs = list(zip(geometries, parameters[::2], strict=True))
        matrices = [geometry.expand(weight) for geometry, weight in pairs]
        repeated = [
            matrix.expand(geometry.blocks_in_row, -1, -1)
            for geometry, matrix in zip(geometries, matrices, strict=True)
        ]
        biases = [bias.view(-1, 1, 1) for bias in parameters[1::2]]
        last = geometries[-1]
        output = torch.empty(len(images), last.outputs, *last.pooled)
        by_cell = last.by_cell(output.permute(1, 2, 3, 0))
        samples_last = images.permute(1, 2, 3, 0)
        chunks, run = [], _compiled(_forward_chunk)
        for begin, end in _spans(len(images)):
            chunk = work.take(end - begin)
            chunk.images.copy_(samples_last[..., begin:end])
            scratch = work.scratch(end - begin)
            run(
                keep,
                chunk.windows,
                scratch.patches,
                scratch.blocks,
                repeated,
                scratch.candidates,
                scratch.left,
                scratch.right,
                scratch.halves,
                scratch.upper,
                scratch.lower,
                chunk.left_wins,
                chunk.upper_wins,
                biases,
                chunk.results,
            )
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
        transposed = [matrix.t() for matrix in matrices]
        run = _compiled(_backward_chunk)
        for (begin, end), chunk in zip(_spans(len(gradient)), chunks, strict=True):
            chunk.output.copy_(by_cell[..., begin:end])
            scratch = work.scratch(end - begin)
            run(
                [*scratch.gradients, chunk.output],
                chunk.windows,
                scratch.patches,
                scratch.blocks_transposed,
                transposed,
                scratch.candidate_blocks,
                scratch.left,
                scratch.right,
                scratch.halves,
                scratch.upper,
                scratch.lower,
                chunk.left_wins,
                chunk.upper_wins,
                matrix_gradients,
                bias_gradients,
                scratch.patch_gradients,
                scratch.block_gradients,
                scratch.input_gradients,
                scratch.targets,
                scratch.sources,
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
        for function in (_forward_chunk, _backward_chunk):
            _compiled(function)  # here, before there are workers who would all do it

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
