"""Names and shapes of the built-in models' states, without torch, so that a plan loads none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

from camu.learning.cnn import CNN, Normalisation, full_shape
from camu.learning.weights import Entry, Layout

RESNET_CHANNELS = (16, 32, 64)
MLP_HIDDEN = 200  # units of each of its two layers
SERIES_CHANNELS, KERNEL_1D = (32, 64), 5
EMBEDDED, STATE = 8, 64  # numbers of a token and of the state


def built_in_layout(
    name: str,
    shape: tuple[int, ...],
    outputs: int,
    normalisation: str,
    vocabulary: int | None = None,
) -> Layout | None:
    """The layout of a built-in model for samples of a shape; None for another model."""
    if name == "cnn":
        norm = cast(Normalisation, normalisation)
        return CNN(full_shape(shape), outputs, norm).layout
    if name == "resnet8":
        entries = _resnet8(full_shape(shape)[0], outputs)
    elif name in ("logistic", "linear", "svm"):
        entries = _affine("linear", math.prod(shape), outputs)
    elif name == "mlp":
        entries = _mlp(math.prod(shape), outputs)
    elif name == "cnn1d":
        entries = _cnn1d(shape[0], outputs)
    elif name == "gru":
        entries = _gru(shape[0], outputs, vocabulary)
    else:
        return None
    return Layout(tuple(entries), ())


def _affine(name: str, inputs: int, outputs: int, *kernel: int) -> Iterator[Entry]:
    """Weights and biases of a linear layer, or of a convolution with a kernel."""
    yield Entry(f"{name}.weight", (outputs, inputs, *kernel))
    yield Entry(f"{name}.bias", (outputs,))


def _mlp(inputs: int, outputs: int) -> Iterator[Entry]:
    yield from _affine("hidden1", inputs, MLP_HIDDEN)
    yield from _affine("hidden2", MLP_HIDDEN, MLP_HIDDEN)
    yield from _affine("output", MLP_HIDDEN, outputs)


def _cnn1d(channels: int, outputs: int) -> Iterator[Entry]:
    first, second = SERIES_CHANNELS
    yield from _affine("conv1", channels, first, KERNEL_1D)
    yield from _affine("conv2", first, second, KERNEL_1D)
    yield from _affine("output", second, outputs)


def _gru(channels: int, outputs: int, vocabulary: int | None) -> Iterator[Entry]:
    """Three gates, each with weights of the input and of the state and two biases."""
    if vocabulary is not None:
        yield Entry("embedding.weight", (vocabulary, EMBEDDED))
    inputs = channels if vocabulary is None else EMBEDDED
    for kind, sizes in (("weight", (inputs, STATE)), ("bias", ())):
        for place, side in enumerate(("ih", "hh")):
            yield Entry(f"gru.{kind}_{side}_l0", (3 * STATE, *sizes[place : place + 1]))
    yield from _affine("output", STATE, outputs)


def _resnet8(channels: int, classes: int) -> Iterator[Entry]:
    """A convolution, three blocks of two and a shortcut, group norm after each."""
    before = RESNET_CHANNELS[0]
    yield Entry("stem.weight", (before, channels, 3, 3))
    yield from _norm("norm", before)
    for number, after in enumerate(RESNET_CHANNELS):
        block = f"blocks.{number}"
        yield Entry(f"{block}.conv1.weight", (after, before, 3, 3))
        yield from _norm(f"{block}.norm1", after)
        yield Entry(f"{block}.conv2.weight", (after, after, 3, 3))
        yield from _norm(f"{block}.norm2", after)
        if before != after:
            yield Entry(f"{block}.shortcut.0.weight", (after, before, 1, 1))
            yield from _norm(f"{block}.shortcut.1", after)
        before = after
    yield from _affine("output", before, classes)


def _norm(name: str, channels: int) -> Iterator[Entry]:
    yield Entry(f"{name}.weight", (channels,))
    yield Entry(f"{name}.bias", (channels,))
