"""The built-in models as torch modules; `layouts` has their names and shapes without torch."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import cast

import torch
from torch import Tensor, nn

from camu.learning.cnn import CHANNELS, CNN, FIRST_CHANNELS, HIDDEN, ImageShape, Normalisation
from camu.learning.layouts import (
    EMBEDDED,
    KERNEL_1D,
    MLP_HIDDEN,
    RESNET_CHANNELS,
    SERIES_CHANNELS,
    STATE,
)

RESNET_GROUPS = 8


class PaperCNN(nn.Sequential):
    """The paper's CNN as torch's layers; `CNN` describes it."""

    def __init__(
        self, image_shape: ImageShape, classes: int, normalisation: Normalisation = "batch"
    ) -> None:
        cnn = CNN(image_shape, classes, normalisation)
        kernel, padding = cnn.kernel, cnn.padding
        norms = {
            "batch": nn.BatchNorm2d(CHANNELS),
            "group": nn.GroupNorm(4, CHANNELS),  # as many parameters as batch norm
            "none": nn.Identity(),
        }
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(image_shape[0], FIRST_CHANNELS, kernel, padding=padding),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(FIRST_CHANNELS, CHANNELS, kernel, padding=padding),
                pool2=nn.MaxPool2d(2),
                norm=norms[normalisation],
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


class Linear(nn.Module):
    """One linear layer on all numbers of a sample: `logistic`, `linear` and `svm`.

    The loss tells them apart: cross-entropy, an error of numbers, or the smooth hinge. With
    `training.l2` each of them is strongly convex.
    """

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(shape), outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs for some samples."""
        return cast(Tensor, self.linear(inputs.flatten(1)))


class MLP(nn.Module):
    """Two hidden layers of 200 units with ReLU on all numbers of a sample, whatever its shape.

    The "2NN" of McMahan et al. (2017): 199 210 parameters on MNIST.
    """

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(math.prod(shape), MLP_HIDDEN)
        self.hidden2 = nn.Linear(MLP_HIDDEN, MLP_HIDDEN)
        self.output = nn.Linear(MLP_HIDDEN, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs for some samples."""
        hidden = torch.relu(self.hidden1(inputs.flatten(1)))
        return cast(Tensor, self.output(torch.relu(self.hidden2(hidden))))


class CNN1d(nn.Module):
    """Two convolutions along a series (channels, length), their mean over time, outputs.

    32 and 64 channels, kernels of 5 with padding, ReLU, and a pooling of 2 between them:
    11 556 parameters for 6 channels and 4 classes, whatever the length.
    """

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        first, second = SERIES_CHANNELS
        padding = KERNEL_1D // 2
        self.conv1 = nn.Conv1d(shape[0], first, KERNEL_1D, padding=padding)
        self.conv2 = nn.Conv1d(first, second, KERNEL_1D, padding=padding)
        self.output = nn.Linear(second, outputs)

    def forward(self, series: Tensor) -> Tensor:
        """The outputs for some series."""
        halved = nn.functional.max_pool1d(torch.relu(self.conv1(series)), 2, ceil_mode=True)
        return cast(Tensor, self.output(torch.relu(self.conv2(halved)).mean(2)))


class GRU(nn.Module):
    """A gated recurrent layer with a state of 64 numbers over a series or a text.

    Series (channels, length) are read place by place; tokens become 8 numbers each, as in McMahan
    et al. (2017). Outputs are of the last state, or `everywhere` of the state at each place, for
    the next token. 14 084 parameters for 6 channels and 4 classes, 18 880 for the next of 64
    characters.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        *,
        vocabulary: int | None = None,
        everywhere: bool = False,
    ) -> None:
        super().__init__()
        self.everywhere = everywhere
        self.embedding = None if vocabulary is None else nn.Embedding(vocabulary, EMBEDDED)
        self.gru = nn.GRU(shape[0] if vocabulary is None else EMBEDDED, STATE, batch_first=True)
        self.output = nn.Linear(STATE, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs for some samples: (n, outputs), or everywhere (n, length, outputs)."""
        places = inputs.transpose(1, 2) if self.embedding is None else self.embedding(inputs)
        states = self.gru(places)[0]
        return cast(Tensor, self.output(states if self.everywhere else states[:, -1]))
