"""How many parameters a model has, without building the built-in ones."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import cast

from camu.data import dataset_spec
from camu.learning.cnn import CNN, Normalisation, full_shape
from camu.seeding import derive
from camu.world import World


def parameter_count(world: World) -> int:
    """q, the number of trainable parameters of the configured model."""
    training, data = world.config.training, dataset_spec(world.config.data)
    return _count(training.model, data.image_shape, data.classes, training.normalisation)


@lru_cache
def _count(name: str, shape: tuple[int, ...], classes: int, normalisation: str) -> int:
    """Parameters of a model: by formula for the built-in ones, so that a plan loads no torch."""
    if name == "logistic":
        return (math.prod(shape) + 1) * classes
    if name == "cnn":
        norm = cast(Normalisation, normalisation)
        return CNN(full_shape(shape), classes, norm).layout.parameter_count
    if name == "resnet8":
        return _resnet8_parameters(1 if len(shape) == 2 else shape[0], classes)
    from camu.learning.models import build_model

    model = build_model(name, shape, classes, normalisation, derive(0, "count"))
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _resnet8_parameters(channels: int, classes: int) -> int:
    """A convolution, three blocks of two and a shortcut, two numbers per normalised channel."""
    total, before = channels * 9 * 16 + 2 * 16, 16
    for after in (16, 32, 64):
        total += (before + after) * 9 * after + 4 * after
        total += 0 if before == after else before * after + 2 * after
        before = after
    return total + (before + 1) * classes
