"""Convolution with 2x2 max-pooling as a few large matrix products.

``ConvPoolStack`` computes what ``conv2d`` followed by ``max_pool2d`` computes, several times in a
row; ``conv_geometry`` says how the arrays lie. A pooling cell is the maximum of four planes of
memory: no index tensor is kept, no zeros are filled, and the channels are never padded to the width
of a vector register.

Samples pass in chunks that fit the processor's second cache, and all memory is used again in the
next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.learning.conv_geometry import Geometry
from camu.learning.conv_pool_passes import (
    Adjoint,
    Stage,
    backward_pass,
    compiled,
    forward_pass,
)

# The most samples that pass through the stack at a time: few enough that windows and candidates
# stay in the processor's second cache, enough that the operations are worth their calls.
CHUNK_SAMPLES = 56
# Chunks are multiples of half a vector register.
CHUNK_STEP = 8


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


class _Chunk:
    """The arrays of all stages for a number of samples, cut from two memories.

    ``kept`` holds what the backward pass needs; ``scratch`` holds nothing between two chunks.
    """

    def __init__(
        self, geometries: Sequence[Geometry], samples: int, kept: _Memory, scratch: _Memory
    ) -> None:
        self.samples, self.kept = samples, kept
        keep, share = kept.cutter(samples), scratch.cutter(samples)
        # Zeroed, because the padding is never written to.
        inputs = [keep(*geometry.buffer(samples)).zero_() for geometry in geometries]
        input_gradients = [share(*geometry.buffer(samples)) for geometry in geometries]
        last = keep(*geometries[-1].cells, samples)
        results = [*_previous_cells(geometries, inputs), last]
        gradients = [*_previous_cells(geometries, input_gradients), last]
        self.stages = []
        self.adjoints = []
        for n, geometry in enumerate(geometries):
            stage = _stage(geometry, inputs[n], results[n], keep, share)
            adjoint = _adjoint(geometry, stage, gradients[n], input_gradients[n], share)
            self.stages.append(stage)
            self.adjoints.append(adjoint)


def _previous_cells(geometries: Sequence[Geometry], buffers: Sequence[Tensor]) -> list[Tensor]:
    """View the input buffers of the later stages as the pooled outputs of those before them."""
    return [
        geometry.by_cell(following.interior(buffer))
        for geometry, following, buffer in zip(
            geometries, geometries[1:], buffers[1:], strict=False
        )
    ]


def _stage(
    geometry: Geometry,
    buffer: Tensor,
    result: Tensor,
    keep: Callable[..., Tensor],
    share: Callable[..., Tensor],
) -> Stage:
    columns, outputs, rows = geometry.cells
    samples, block, blocks = buffer.shape[3], geometry.block, geometry.blocks_in_row
    patches = share(geometry.taps, rows * samples)
    candidates = share(blocks, 4 * block * outputs, rows * samples)
    # (block, upper or lower, left or right, cell, channel, row, sample)
    planes = candidates.view(blocks, 2, 2, block, outputs, rows, samples).transpose(0, 1)
    halves = share(2, blocks, block, outputs, rows, samples)
    upper, lower = halves.view(2, columns, outputs, rows, samples)
    windows = geometry.windows(buffer)
    return Stage(
        interior=geometry.interior(buffer),
        windows=windows,
        patches=patches.view(windows.shape),
        blocks=geometry.blocks(patches),
        candidates=candidates,
        left=planes[:, :, 0],
        right=planes[:, :, 1],
        halves=halves,
        upper=upper,
        lower=lower,
        left_wins=keep(*halves.shape),
        upper_wins=keep(*upper.shape),
        result=result,
    )


def _adjoint(
    geometry: Geometry,
    stage: Stage,
    gradient: Tensor,
    input_gradient: Tensor,
    share: Callable[..., Tensor],
) -> Adjoint:
    patch_gradients = share(geometry.taps, geometry.pooled[0] * gradient.shape[3])
    targets, sources = geometry.folds(patch_gradients, input_gradient)
    return Adjoint(
        gradient=gradient,
        blocks_transposed=list(stage.blocks.transpose(1, 2)),
        candidates=list(stage.candidates),
        patch_gradients=patch_gradients,
        block_gradients=list(geometry.blocks(patch_gradients)),
        input_gradient=input_gradient,
        targets=targets,
        sources=sources,
    )


class _Workspace:
    """Memory of a stack, used again step after step; one per module, so one per worker.

    It is the memory of the largest chunks that were ever in use at the same time, whatever sizes
    the batches have.
    """

    def __init__(self, geometries: Sequence[Geometry]) -> None:
        self.geometries = tuple(geometries)
        self._scratch = _Memory(CHUNK_SAMPLES)
        self._free: dict[int, list[_Chunk]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Workspace:
        # A copied module gets memory of its own: two workers must never share it.
        return _Workspace(self.geometries)

    def take(self, samples: int) -> _Chunk:
        """An unused chunk: one of this size, one cut from another's memory, or a new one."""
        if self._free.get(samples):
            return self._free[samples].pop()
        free = next((chunks for chunks in self._free.values() if chunks), None)
        kept = free.pop().kept if free else _Memory(CHUNK_SAMPLES)
        return _Chunk(self.geometries, samples, kept, self._scratch)

    def give(self, chunks: Sequence[_Chunk]) -> None:
        """Hand chunks back for the next pass."""
        for chunk in chunks:
            self._free.setdefault(chunk.samples, []).append(chunk)


def _sizes(samples: int) -> list[int]:
    """Cut a batch into chunks of nearly equal size, multiples of ``CHUNK_STEP``."""
    steps, chunks = math.ceil(samples / CHUNK_STEP), math.ceil(samples / CHUNK_SAMPLES)
    ends = [min(samples, (n + 1) * steps // chunks * CHUNK_STEP) for n in range(chunks)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


class _ConvPool(torch.autograd.Function):
    """Convolution and pooling, stage after stage, with the gradients of weights and biases."""

    @staticmethod
    def forward(
        ctx: Any, work: _Workspace, keep: bool, images: Tensor, *parameters: Tensor
    ) -> Tensor:
        geometries = work.geometries
        pairs = list(zip(geometries, parameters[::2], strict=True))
        matrices = [geometry.expand(weight) for geometry, weight in pairs]
        last = geometries[-1]
        output = torch.empty(len(images), last.outputs, *last.pooled)
        sizes = _sizes(len(images))
        chunks = [work.take(size) for size in sizes]
        compiled(forward_pass)(
            list(torch.split(images.permute(1, 2, 3, 0), sizes, dim=3)),
            [chunk.stages for chunk in chunks],
            [m.expand(g.blocks_in_row, -1, -1) for g, m in zip(geometries, matrices, strict=True)],
            [bias.view(-1, 1, 1) for bias in parameters[1::2]],
            keep,
            list(torch.split(last.by_cell(output.permute(1, 2, 3, 0)), sizes, dim=3)),
        )
        if not keep:
            work.give(chunks)
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
        compiled(backward_pass)(
            list(torch.split(by_cell, [chunk.samples for chunk in chunks], dim=3)),
            [chunk.stages for chunk in chunks],
            [chunk.adjoints for chunk in chunks],
            [matrix.t() for matrix in matrices],
            matrix_gradients,
            bias_gradients,
        )
        work.give(chunks)
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
            geometry = Geometry(channels, features, kernel, padding, height, width)
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
        for function in (forward_pass, backward_pass):
            compiled(function)  # here, before there are workers who would all do it

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
