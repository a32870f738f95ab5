"""The models: the paper's CNN, l2-regularised logistic regression, or the user's own module.

A model maps float images ``(n, channels, height, width)`` in [0, 1] to ``(n, classes)`` logits.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Literal, cast

import torch
from torch import Tensor, nn

from camu.config import Config
from camu.data import dataset_spec
from camu.errors import InputError
from camu.learning.weights import Layout
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream, derive

Normalisation = Literal["batch", "group", "none"]
ImageShape = tuple[int, int, int]

# Below this many pixels a side, two 5x5 convolutions with pooling would leave nothing over.
SMALL_IMAGE_PIXELS = 16
CHANNELS = 20  # of the second convolution


class PaperCNN(nn.Sequential):
    """Convolution 10, pool, convolution 20, pool, normalisation, 50 hidden units, classes.

    On 28x28 images the kernels are 5x5 without padding: 21 880 parameters with batch norm. Images
    of less than 16 pixels a side get 3x3 kernels with padding, so that only pooling shrinks them.
    """

    def __init__(
        self, image_shape: ImageShape, classes: int, normalisation: Normalisation = "batch"
    ) -> None:
        channels, *sides = image_shape
        if min(sides) < 4:
            raise InputError(
                f"model: the CNN needs images of at least 4x4 pixels, these have "
                f'{image_shape[1]}x{image_shape[2]}; use model "logistic".'
            )
        kernel, padding = (3, 1) if min(sides) < SMALL_IMAGE_PIXELS else (5, 0)
        for _ in range(2):
            sides = [(side + 2 * padding - kernel + 1) // 2 for side in sides]
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(channels, 10, kernel, padding=padding),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(10, CHANNELS, kernel, padding=padding),
                pool2=nn.MaxPool2d(2),
                norm=_normalisation(normalisation, CHANNELS),
                flatten=nn.Flatten(),
                hidden=nn.Linear(CHANNELS * math.prod(sides), 50),
                relu=nn.ReLU(),
                output=nn.Linear(50, classes),
            )
        )
        self.image_shape, self.classes, self.normalisation = image_shape, classes, normalisation
        self.kernel, self.padding = kernel, padding


class LogisticRegression(nn.Module):
    """One linear layer on the pixels; with the engine's l2 term the loss is strongly convex."""

    def __init__(self, image_shape: ImageShape, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(image_shape), classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images."""
        return cast(Tensor, self.linear(images.flatten(1)))


def build_model(
    name: str,
    image_shape: tuple[int, ...],
    classes: int,
    normalisation: str,
    stream: Stream,
) -> nn.Module:
    """The model ``cnn``, ``logistic`` or ``module:Class``; initial weights come from the stream.

    ``image_shape`` is (height, width) or (channels, height, width). A user's class is constructed
    as ``Class((channels, height, width), classes)``; the current directory is searched too.
    """
    shape = _full_shape(image_shape)
    # torch initialises from its global generator: lend it our seed, then give it back untouched.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream.torch().initial_seed())
        if name == "cnn":
            if normalisation not in ("batch", "group", "none"):
                raise InputError(
                    f'normalisation: {normalisation!r} is unknown; use "batch", "group" or "none".'
                )
            return PaperCNN(shape, classes, cast(Normalisation, normalisation))
        if name == "logistic":
            return LogisticRegression(shape, classes)
        return _own_model(name, shape, classes)


def _own_model(name: str, shape: ImageShape, classes: int) -> nn.Module:
    if not is_plugin(name):
        raise InputError(
            f'training.model: {name!r} is unknown; use "cnn", "logistic" or "module:Class".'
        )
    kind = import_object(name, "training.model")
    if not callable(kind):
        raise InputError(f"training.model = {name}: this is not a class")
    with user_code(f"training.model = {name}", kind, "(self, image_shape, classes)"):
        model = kind(shape, classes)
    if not isinstance(model, nn.Module):
        raise InputError(f"training.model = {name}: this is not a torch.nn.Module")
    return model


def seeded_model(config: Config) -> nn.Module:
    """The configured model with the weights that every scheme starts from under its seed."""
    training, spec = config.training, dataset_spec(config.data)
    stream = derive(config.run.seed, "model")
    return build_model(
        training.model, spec.image_shape, spec.classes, training.normalisation, stream
    )


def input_shape(config: Config) -> ImageShape:
    """(channels, height, width) of the configured data set's images."""
    return _full_shape(dataset_spec(config.data).image_shape)


def model_layout(config: Config) -> Layout:
    """The names and shapes of the configured model's state."""
    return Layout.of(seeded_model(config))


def _full_shape(image_shape: tuple[int, ...]) -> ImageShape:
    if len(image_shape) == 2:
        return (1, int(image_shape[0]), int(image_shape[1]))
    if len(image_shape) == 3:
        return (int(image_shape[0]), int(image_shape[1]), int(image_shape[2]))
    raise InputError(
        f"image_shape: {image_shape} is neither (height, width) nor (channels, height, width)."
    )


def _normalisation(kind: Normalisation, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    # Four groups of five channels: the same number of parameters as batch norm.
    return nn.GroupNorm(4, channels) if kind == "group" else nn.Identity()
