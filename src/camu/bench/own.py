"""The networks of the bench that a user may have written; the engine does not know them."""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn

from camu.learning.cnn import full_shape


class OwnNetwork(nn.Module):
    """Two convolutions with batch norm."""

    def __init__(self, image_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = full_shape(image_shape)
        self.first = nn.Conv2d(channels, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.hidden = nn.Linear(16 * (-(-height // 4)) * (-(-width // 4)), 32)
        self.output = nn.Linear(32, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images."""
        features = self.norm(self.first(images)).relu()
        features = self.second(features).relu()
        return cast(Tensor, self.output(self.hidden(features.flatten(1)).relu()))


class OwnPerceptron(nn.Module):
    """Two hidden layers."""

    def __init__(self, image_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(math.prod(image_shape), 64)
        self.second = nn.Linear(64, 64)
        self.output = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images."""
        hidden = self.second(self.first(images.flatten(1)).relu()).relu()
        return cast(Tensor, self.output(hidden))


class OwnRecurrent(nn.Module):
    """A GRU over the rows of an image."""

    def __init__(self, image_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.GRU(image_shape[-1], 32, batch_first=True)
        self.output = nn.Linear(32, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images."""
        states, _ = self.layer(images.flatten(1, -2))
        return cast(Tensor, self.output(states[:, -1]))
