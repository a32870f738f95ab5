"""What a package can bring to camu: a scheme, a model, a data set and a channel."""

from dataclasses import dataclass

import numpy as np
from torch import nn

import camu


@dataclass(frozen=True)
class Quickest(camu.Scheme):
    """Only the quickest devices take part, by what a round of theirs takes."""

    share: float = 0.5

    def plan(self, world: camu.World) -> camu.Plan:
        """Each counts by its samples."""
        devices = camu.single_devices(world)
        most = max(1, round(self.share * len(devices)))
        chosen = np.argsort(devices.step_seconds, kind="stable")[:most]
        weights = np.zeros(len(devices))
        weights[chosen] = devices.samples[chosen]
        return camu.make_plan(self, devices, weights / weights.sum())


class Wide(nn.Module):
    """One hidden layer of 64."""

    def __init__(self, shape, outputs):
        super().__init__()
        inputs = int(np.prod(shape))
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs)
        )

    def forward(self, images):
        return self.layers(images)


def bars():
    """Images of 8x8 pixels with a bright bar at the top or at the left."""
    generator = np.random.default_rng(0)
    labels = np.arange(2400) % 2
    images = generator.integers(0, 100, (2400, 1, 8, 8), dtype=np.uint8)
    images[labels == 0, :, :2] += 100
    images[labels == 1, :, :, :2] += 100
    return (images[:2000], labels[:2000]), (images[2000:], labels[2000:])


def hall_gain(ground_m, upper_m, lower_m, sight):
    """Free space at 2.4 GHz, and 6 dB for the shelves between."""
    metres = np.maximum(np.hypot(ground_m, upper_m - lower_m), 1)
    return 10 ** (-(40.05 + 20 * np.log10(metres) + 6) / 10)
