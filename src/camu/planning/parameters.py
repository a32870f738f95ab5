"""How many parameters a model has, without building the built-in ones."""

from __future__ import annotations

import math
from functools import lru_cache

from camu.data import dataset_spec
from camu.seeding import derive
from camu.world import World

SMALLEST_IMAGE_PIXELS = 4  # a side of the smallest images that the CNN takes


def parameter_count(world: World) -> int:
    """q, the number of trainable parameters of the configured model."""
    training, data = world.config.training, dataset_spec(world.config.data)
    return _count(training.model, data.image_shape, data.classes, training.normalisation)


@lru_cache
def _count(name: str, shape: tuple[int, ...], classes: int, normalisation: str) -> int:
    """Parameters of a model: by formula for the built-in ones, so that a plan loads no torch."""
    if name == "logistic":
        return (math.prod(shape) + 1) * classes
    if name == "cnn" and min(shape[-2:]) >= SMALLEST_IMAGE_PIXELS:
        return _cnn_parameters(shape, classes, normalisation)
    if name == "resnet8":
        return _resnet8_parameters(1 if len(shape) == 2 else shape[0], classes)
    from camu.learning.models import build_model

    model = build_model(name, shape, classes, normalisation, derive(0, "count"))
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _cnn_parameters(shape: tuple[int, ...], classes: int, normalisation: str) -> int:
    """Two convolutions with pooling (10 and 20 channels), normalisation, 50 hidden units."""
    channels, sides = 1 if len(shape) == 2 else shape[0], shape[-2:]
    kernel, padding = (3, 1) if min(sides) < 16 else (5, 0)
    total = 0
    for outputs in (10, 20):
        total += (channels * kernel**2 + 1) * outputs
        channels, sides = outputs, tuple((side + 2 * padding - kernel + 1) // 2 for side in sides)
    total += 0 if normalisation == "none" else 2 * channels
    return total + (channels * math.prod(sides) + 1) * 50 + (50 + 1) * classes


def _resnet8_parameters(channels: int, classes: int) -> int:
    """A convolution, three blocks of two and a shortcut, two numbers per normalised channel."""
    total, before = channels * 9 * 16 + 2 * 16, 16
    for after in (16, 32, 64):
        total += (before + after) * 9 * after + 4 * after
        total += 0 if before == after else before * after + 2 * after
        before = after
    return total + (before + 1) * classes
