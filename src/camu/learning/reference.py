"""The gradient of the built-in CNN in plain numpy, in double precision: kernels must agree.

It is slow and short. The compiled kernels are compared with it on every machine, so that no node
needs torch for that.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from camu.arrays import Float64, Int64, UInt8
from camu.learning.cnn import CHANNELS, CNN
from camu.learning.weights import Weights

GROUPS, EPSILON = 4, 1e-5  # of the norms, as torch has them


def reference_gradient(cnn: CNN, weights: Weights, images: UInt8, labels: Int64) -> Float64:
    """The gradient of the mean cross-entropy of images (n, channels, height, width), flat."""
    value = {name: array.astype(np.float64) for name, array in weights.tensors().items()}
    pixels = images.astype(np.float64) / 255
    first, winners1 = _pool(_convolve(pixels, value, "conv1", cnn.padding))
    conv2 = _convolve(first, value, "conv2", cnn.padding)
    second, winners2 = _pool(conv2)
    normed, standard, deviation, axes = _normalise(cnn, second, value)
    flat = normed.reshape(len(images), -1)
    before = flat @ value["hidden.weight"].T + value["hidden.bias"]
    hidden = np.maximum(before, 0)
    logits = hidden @ value["output.weight"].T + value["output.bias"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    back = (shares - np.eye(cnn.classes)[labels]) / len(images)
    found = {"output.weight": back.T @ hidden, "output.bias": back.sum(0)}
    back = (back @ value["output.weight"]) * (before > 0)
    found |= {"hidden.weight": back.T @ flat, "hidden.bias": back.sum(0)}
    back = (back @ value["hidden.weight"]).reshape(normed.shape)
    if axes:
        found["norm.weight"] = (back * standard).sum((0, 2, 3))
        found["norm.bias"] = back.sum((0, 2, 3))
        back = back * value["norm.weight"][:, None, None]
        back = _through_norm(back, standard, deviation, axes)
    back = _unpool(back, winners2, conv2.shape)
    _weigh(found, "conv2", back, first, cnn)
    back = _through_convolution(back, value["conv2.weight"], cnn.padding)
    sides = [side + 2 * cnn.padding - cnn.kernel + 1 for side in pixels.shape[2:]]
    back = _unpool(back, winners1, (*back.shape[:2], *sides))
    _weigh(found, "conv1", back, pixels, cnn)
    return np.concatenate([found[entry.name].reshape(-1) for entry in cnn.layout.parameters])


def _patches(values: Float64, kernel: int, padding: int) -> Float64:
    padded = np.pad(values, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    return np.asarray(sliding_window_view(padded, (kernel, kernel), axis=(2, 3)))


def _convolve(values: Float64, value: dict[str, Float64], name: str, padding: int) -> Float64:
    weight = value[f"{name}.weight"]
    patches = _patches(values, weight.shape[-1], padding)
    outputs: Float64 = np.einsum("nchwij,ocij->nohw", patches, weight, optimize=True)
    return outputs + value[f"{name}.bias"][:, None, None]


def _weigh(found: dict[str, Float64], name: str, back: Float64, values: Float64, cnn: CNN) -> None:
    """The gradients of a convolution's weights and biases."""
    patches = _patches(values, cnn.kernel, cnn.padding)
    found[f"{name}.weight"] = np.einsum("nohw,nchwij->ocij", back, patches, optimize=True)
    found[f"{name}.bias"] = back.sum((0, 2, 3))


def _through_convolution(back: Float64, weight: Float64, padding: int) -> Float64:
    kernel = weight.shape[-1]
    patches = _patches(back, kernel, kernel - 1 - padding)
    turned = weight[:, :, ::-1, ::-1]
    return np.asarray(np.einsum("nohwij,ocij->nchw", patches, turned, optimize=True))


def _pool(values: Float64) -> tuple[Float64, Int64]:
    """The largest of each 2x2 cell, and which of its four it is."""
    count, channels, height, width = values.shape
    rows, columns = height // 2, width // 2
    cells = values[:, :, : 2 * rows, : 2 * columns].reshape(count, channels, rows, 2, columns, 2)
    four = cells.transpose(0, 1, 2, 4, 3, 5).reshape(count, channels, rows, columns, 4)
    return four.max(-1), four.argmax(-1)


def _unpool(back: Float64, winners: Int64, shape: tuple[int, ...]) -> Float64:
    count, channels, rows, columns = back.shape
    four = np.eye(4)[winners] * back[..., None]
    cells = four.reshape(count, channels, rows, columns, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    whole = np.zeros(shape)
    whole[:, :, : 2 * rows, : 2 * columns] = cells.reshape(count, channels, 2 * rows, 2 * columns)
    return whole


def _normalise(
    cnn: CNN, values: Float64, value: dict[str, Float64]
) -> tuple[Float64, Float64, Float64, tuple[int, ...]]:
    """Normed values, the standardised ones, their deviations, and the axes of the statistics."""
    if cnn.normalisation == "none":
        return values, values, np.ones(1), ()
    axes = (0, 3, 4) if cnn.normalisation == "batch" else (2, 3, 4)
    grouped = _grouped(values, axes)
    deviation = np.sqrt(grouped.var(axes, keepdims=True) + EPSILON)
    standard = ((grouped - grouped.mean(axes, keepdims=True)) / deviation).reshape(values.shape)
    scale, shift = (value[f"norm.{name}"][:, None, None] for name in ("weight", "bias"))
    return standard * scale + shift, standard, deviation, axes


def _grouped(values: Float64, axes: tuple[int, ...]) -> Float64:
    """Values with their channels in groups: of one for batch norm, of several for group norm."""
    groups = CHANNELS if axes[0] == 0 else GROUPS
    count, channels, *sides = values.shape
    return values.reshape(count, groups, channels // groups, *sides)


def _through_norm(
    back: Float64, standard: Float64, deviation: Float64, axes: tuple[int, ...]
) -> Float64:
    outer, inner = _grouped(back, axes), _grouped(standard, axes)
    mean, slope = (array.mean(axes, keepdims=True) for array in (outer, outer * inner))
    return np.asarray(((outer - mean - inner * slope) / deviation).reshape(back.shape))
