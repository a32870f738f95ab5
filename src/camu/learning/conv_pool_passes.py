"""The arithmetic of the convolution stack: both passes over all chunks of a batch.

Each pass is one call into torch (``torch.jit.script``), so that Python's lock is taken once per
pass and not after each of its hundreds of operations: workers who wait for it, however briefly,
are put to sleep and woken by the operating system. Where torch can no longer compile them, the
same functions run as they are, with the same operations in the same order.

Annotations are evaluated here, because the compiler reads those of a named tuple.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


class Stage(NamedTuple):
    """The arrays of one convolution + pooling stage for one chunk, and the views used on them.

    Kept from the forward to the backward pass are the input, of which ``windows`` and ``interior``
    are views, and the winners. All others are scratch memory that the chunks share.
    """

    interior: Tensor
    windows: Tensor
    patches: Tensor
    blocks: Tensor
    candidates: Tensor
    left: Tensor
    right: Tensor
    halves: Tensor
    upper: Tensor
    lower: Tensor
    # Three comparisons name the winner of four, as 0/1 in float32: a product applies them.
    left_wins: Tensor
    upper_wins: Tensor
    result: Tensor


class Adjoint(NamedTuple):
    """What the backward pass of a stage uses beside the arrays of its forward pass."""

    gradient: Tensor
    blocks_transposed: list[Tensor]
    candidates: list[Tensor]
    patch_gradients: Tensor
    block_gradients: list[Tensor]
    input_gradient: Tensor
    targets: list[Tensor]
    sources: list[Tensor]


def forward_pass(
    images: list[Tensor],
    chunks: list[list[Stage]],
    matrices: list[Tensor],
    biases: list[Tensor],
    keep: bool,
    outputs: list[Tensor],
) -> None:
    """Write the pooled features of the images to the outputs, chunk by chunk."""
    for number in range(len(chunks)):
        chunks[number][0].interior.copy_(images[number])
        for n, stage in enumerate(chunks[number]):
            stage.patches.copy_(stage.windows)
            torch.bmm(matrices[n], stage.blocks, out=stage.candidates)
            torch.maximum(stage.left, stage.right, out=stage.halves)
            if keep:
                # "At least" gives a tie to the first candidate, as torch's max-pooling does.
                torch.ge(stage.left, stage.right, out=stage.left_wins)
                torch.ge(stage.upper, stage.lower, out=stage.upper_wins)
            # The bias is the same for all four candidates, so it may follow the maximum.
            torch.maximum(stage.upper, stage.lower, out=stage.upper)
            torch.add(stage.upper, biases[n], out=stage.result)
        outputs[number].copy_(chunks[number][-1].result)


def backward_pass(
    gradients: list[Tensor],
    chunks: list[list[Stage]],
    adjoints: list[list[Adjoint]],
    transposed: list[Tensor],
    matrix_gradients: list[Tensor],
    bias_gradients: list[Tensor],
) -> None:
    """Add up the gradients of the stages' matrices and biases over all chunks."""
    for number in range(len(chunks)):
        adjoints[number][-1].gradient.copy_(gradients[number])
        for n in range(len(transposed) - 1, -1, -1):
            stage, adjoint = chunks[number][n], adjoints[number][n]
            torch.mul(adjoint.gradient, stage.upper_wins, out=stage.upper)
            torch.sub(adjoint.gradient, stage.upper, out=stage.lower)
            torch.mul(stage.halves, stage.left_wins, out=stage.left)
            torch.sub(stage.halves, stage.left, out=stage.right)
            bias_gradients[n].add_(adjoint.gradient.sum(dim=[0, 2, 3]))
            # Cutting the windows again is cheaper than fetching them from main memory.
            stage.patches.copy_(stage.windows)
            for block, inputs in zip(adjoint.candidates, adjoint.blocks_transposed):  # noqa: B905
                matrix_gradients[n].addmm_(block, inputs)
            if n > 0:
                adjoint.patch_gradients.zero_()
                # Gradients of neighbouring blocks overlap, so they are added one after another.
                for block, gradient in zip(adjoint.candidates, adjoint.block_gradients):  # noqa: B905
                    gradient.addmm_(transposed[n], block)
                adjoint.input_gradient.zero_()
                for target, source in zip(adjoint.targets, adjoint.sources):  # noqa: B905
                    target.add_(source)


@cache
def compiled(function: Function) -> Function:
    """The function as one call into torch, or itself where torch cannot compile it any more."""
    with warnings.catch_warnings():
        # torch prefers another compiler, which needs a C++ compiler on the user's machine.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return cast(Function, torch.jit.script(function))
        except (AttributeError, RuntimeError):
            return function
