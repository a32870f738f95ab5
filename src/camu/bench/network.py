"""The network of the workload `own`."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn


class OwnNetwork(nn.Module):
    """A small network as a user may write it; the engine knows nothing about it."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape
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
