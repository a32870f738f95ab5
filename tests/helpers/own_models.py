"""A model of a user's, for tests that compute it again in numpy."""

from __future__ import annotations

import math

import torch
from torch import nn


class Hidden(nn.Module):
    """One hidden layer of eight units."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(math.prod(image_shape), 8)
        self.out = nn.Linear(8, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(images.flatten(1))))
