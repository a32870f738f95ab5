"""Made-up data on a few devices, for the tests of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from camu.learning.engine import Engine
from camu.learning.models import build_model
from camu.seeding import derive


@dataclass(frozen=True)
class Toy:
    """A small made-up task: digits of 28x28 pixels on devices with unequal amounts of data."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    devices: list[npt.NDArray[np.int64]]

    def engine(
        self, model: str | nn.Module = "cnn", normalisation: str = "batch", **options: Any
    ) -> Engine:
        if isinstance(model, str):
            model = build_model(model, self.images.shape[1:], 10, normalisation, derive(3, "model"))
        settings = {"learning_rate": 0.1, "workers": 2, "seed": 5, **options}
        return Engine(
            model, self.images, self.labels, self.devices, self.images, self.labels, **settings
        )


def make_toy(side: int, sizes: tuple[int, ...]) -> Toy:
    generator = derive(1, "own-toy", side).numpy()
    count = sum(sizes)
    labels = generator.integers(0, 10, count)
    images = generator.integers(0, 256, (count, side, side))
    # A bright row tells the class, so there is something to learn; a dark border makes ties.
    images[np.arange(count), labels % side] = 255
    images[:, :, -2:] = 0
    ends = np.cumsum(sizes)
    devices = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return Toy(images.astype(np.uint8), labels, devices)
