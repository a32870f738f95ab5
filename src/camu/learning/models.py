"""The models: the paper's CNN, a small ResNet, logistic regression, or the user's own module.

A model maps float images ``(n, channels, height, width)`` in [0, 1] to ``(n, classes)`` logits.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import cast

import torch
from torch import Tensor, nn

from camu.config import Config
from camu.data import dataset_spec
from camu.errors import InputError
from camu.learning.cnn import (
    CHANNELS,
    CNN,
    FIRST_CHANNELS,
    HIDDEN,
    ImageShape,
    Normalisation,
    SeededCNN,
    full_shape,
    model_stream,
)
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream

RESNET_CHANNELS, RESNET_GROUPS = (16, 32, 64), 8


class PaperCNN(nn.Sequential):
    """The paper's CNN as torch's layers; `CNN` describes it."""

    def __init__(
        self, image_shape: ImageShape, classes: int, normalisation: Normalisation = "batch"
    ) -> None:
        cnn = CNN(image_shape, classes, normalisation)
        kernel, padding = cnn.kernel, cnn.padding
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(image_shape[0], FIRST_CHANNELS, kernel, padding=padding),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(FIRST_CHANNELS, CHANNELS, kernel, padding=padding),
                pool2=nn.MaxPool2d(2),
                norm=_normalisation(normalisation, CHANNELS),
                flatten=nn.Flatten(),
                hidden=nn.Linear(cnn.features, HIDDEN),
                relu=nn.ReLU(),
                output=nn.Linear(HIDDEN, classes),
            )
        )
        self.cnn = cnn


class ResNet8(nn.Module):
    """A ResNet of eight layers for colour images: He et al. (2016), with group norm.

    A convolution to 16 channels, three blocks of two 3x3 convolutions with 16, 32 and 64 channels,
    the last two at half the width, the mean over all places, classes. Group norm (Wu and He, 2018)
    has no running statistics, which differ between devices with different data.
    """

    def __init__(self, image_shape: ImageShape, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(image_shape[0], RESNET_CHANNELS[0], 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(RESNET_GROUPS, RESNET_CHANNELS[0])
        before = (RESNET_CHANNELS[0], *RESNET_CHANNELS)
        self.blocks = nn.Sequential(
            *(_Block(*pair) for pair in zip(before, RESNET_CHANNELS, strict=False))
        )
        self.output = nn.Linear(RESNET_CHANNELS[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images."""
        features = self.blocks(torch.relu(self.norm(self.stem(images))))
        return cast(Tensor, self.output(features.mean((2, 3))))


class _Block(nn.Module):
    """Two convolutions and a shortcut, which is a 1x1 convolution where the channels change."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        wider = before != after
        stride = 2 if wider else 1
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(RESNET_GROUPS, after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(RESNET_GROUPS, after)
        self.shortcut: nn.Module = nn.Identity()
        if wider:
            narrow = nn.Conv2d(before, after, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.GroupNorm(RESNET_GROUPS, after))

    def forward(self, images: Tensor) -> Tensor:
        """The block's features."""
        inner = torch.relu(self.norm1(self.conv1(images)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(images))


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
    """The model ``cnn``, ``resnet8``, ``logistic`` or ``module:Class``, with weights by the stream.

    ``image_shape`` is (height, width) or (channels, height, width). A user's class is constructed
    as ``Class((channels, height, width), classes)``; the current directory is searched too.
    """
    shape = full_shape(image_shape)
    # torch initialises from its global generator: lend it our seed, then give it back untouched.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream.torch_seed)
        if name == "cnn":
            return PaperCNN(shape, classes, cast(Normalisation, normalisation))
        if name == "resnet8":
            return ResNet8(shape, classes)
        if name == "logistic":
            return LogisticRegression(shape, classes)
        return _own_model(name, shape, classes)


def _own_model(name: str, shape: ImageShape, classes: int) -> nn.Module:
    if not is_plugin(name):
        raise InputError(
            f'training.model: {name!r} is unknown; use "cnn", "resnet8", "logistic" or '
            '"module:Class".'
        )
    kind = import_object(name, "training.model")
    if not callable(kind):
        raise InputError(f"training.model = {name}: this is not a class")
    with user_code(f"training.model = {name}", kind, "(self, image_shape, classes)"):
        model = kind(shape, classes)
    if not isinstance(model, nn.Module):
        raise InputError(f"training.model = {name}: this is not a torch.nn.Module")
    if not hasattr(model, "_parameters"):
        raise InputError(
            f"training.model = {name}: its __init__ must call super().__init__() first"
        )
    return model


def seeded_model(config: Config) -> nn.Module:
    """The configured model with the weights that every scheme starts from under its seed."""
    training, spec = config.training, dataset_spec(config.data)
    return build_model(
        training.model,
        spec.image_shape,
        spec.classes,
        training.normalisation,
        model_stream(config),
    )


def input_shape(config: Config) -> ImageShape:
    """(channels, height, width) of the configured data set's images."""
    return full_shape(dataset_spec(config.data).image_shape)


def as_module(model: nn.Module | SeededCNN) -> nn.Module:
    """The module of a model that may be given by its description."""
    if isinstance(model, nn.Module):
        return model
    cnn = model.cnn
    return build_model("cnn", cnn.image_shape, cnn.classes, cnn.normalisation, model.stream)


def _normalisation(kind: Normalisation, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    # Four groups of five channels: the same number of parameters as batch norm.
    return nn.GroupNorm(4, channels) if kind == "group" else nn.Identity()
