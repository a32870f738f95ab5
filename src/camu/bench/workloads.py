"""What is measured: rounds of training on made-up images of MNIST's shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from camu.arrays import Int64, UInt8
from camu.data.batches import Batches
from camu.learning.job import Job
from camu.seeding import derive

if TYPE_CHECKING:
    from torch import nn

    from camu.learning.engine import LocalUpdate

LEARNING_RATE = 0.05
SEED = 0
IMAGE = (28, 28)
CLASSES = 10
OWN_MODELS = {
    "own": "camu.bench.own:OwnNetwork",
    "mlp": "camu.bench.own:OwnPerceptron",
    "gru": "camu.bench.own:OwnRecurrent",
    "resnet8": "resnet8",
}
MADE_UP_MNIST = "camu.bench.workloads:mnist_sized"  # a value of data.dataset

Samples = tuple[UInt8, Int64]  # images and labels


class Share(NamedTuple):
    """A device's part in the mean over all units."""

    device: int
    weight: float


@dataclass(frozen=True)
class Workload:
    """One round of training: devices with equally many samples, divided into units.

    The loops take one device after another, so their time for a round follows from some of the
    devices; each repetition takes the next ones.
    """

    devices: int
    samples_per_device: int
    batch: int
    units: int
    local_update: LocalUpdate = "step"
    model: str = "cnn"
    test_samples: int = 500
    plain_devices: int = 30  # that the plain loop trains in one repetition
    tuned_devices: int = 30  # that the tuned loop trains in one repetition

    @property
    def trained_samples(self) -> int:
        """The samples that one round passes forward and backward."""
        return self.devices * (
            self.batch if self.local_update == "step" else self.samples_per_device
        )

    def jobs(self) -> list[Job]:
        """The units: devices dealt out in turn, all with the same weight."""
        members = [tuple(range(unit, self.devices, self.units)) for unit in range(self.units)]
        return [Job(group, (1.0 / len(group),) * len(group)) for group in members]

    def shares(self) -> list[Share]:
        """All devices with their parts in the mean over the units."""
        return [
            Share(device, weight / self.units)
            for job in self.jobs()
            for device, weight in zip(job.members, job.weights, strict=True)
        ]

    def some(self, count: int, repetition: int) -> list[Share]:
        """The devices that a loop trains in one repetition."""
        shares = self.shares()
        return [shares[(repetition * count + n) % len(shares)] for n in range(count)]

    def shrunk(self) -> Workload:
        """The same kind of work, small enough for a first look."""
        devices = max(4, self.devices // 25)
        return replace(
            self,
            devices=devices,
            units=devices if self.units == self.devices else max(2, self.units // 15),
            batch=max(4, self.batch // 10),
            samples_per_device=max(20, self.samples_per_device // 10),
            test_samples=max(500, self.test_samples // 10),
            plain_devices=min(4, self.plain_devices),
            tuned_devices=min(4, self.tuned_devices),
        )

    def build_model(self) -> nn.Module:
        """The model with its initial weights."""
        from camu.learning.models import build_model  # imports torch, which a run does without

        return build_model(self.model, IMAGE, CLASSES, "batch", derive(SEED, "bench-model"))

    def samples(self) -> tuple[Samples, Samples]:
        """Made-up training and test samples; the same in every process."""
        return made_up(self.devices, self.samples_per_device), made_up(1, self.test_samples)

    def device_indices(self) -> list[Int64]:
        """The samples of each device."""
        count = self.devices * self.samples_per_device
        return list(np.split(np.arange(count), self.devices))

    def batches(self, shares: Sequence[Share], round_number: int) -> list[list[Int64]]:
        """The mini-batches of these devices in a round, as the engine draws them."""
        drawn = Batches(SEED, self.device_indices(), self.batch)
        if self.local_update == "step":
            return [[drawn.step(round_number, share.device, 0)] for share in shares]
        return [drawn.epoch(round_number, share.device, 0) for share in shares]


_LARGE = Workload(devices=30, samples_per_device=2000, batch=400, units=30)
_MANY = Workload(1000, 60, 12, units=30, plain_devices=300, tuned_devices=500)
# Some of these take long, so that a loop trains few devices.
_OWN = replace(_LARGE, plain_devices=4, tuned_devices=8)
_OWN_MANY = replace(_MANY, units=1000, plain_devices=60, tuned_devices=60)
WORKLOADS = {
    "W1": _LARGE,
    "W2": replace(_LARGE, local_update="epoch", plain_devices=10, tuned_devices=10),
    "W3": _MANY,
    "W3d": replace(_MANY, units=1000),
    **{name: replace(_OWN, model=model) for name, model in OWN_MODELS.items()},
    **{f"{name}-many": replace(_OWN_MANY, model=model) for name, model in OWN_MODELS.items()},
}
EVALUATION = Workload(
    devices=4, samples_per_device=20, batch=10, units=4, test_samples=10_000, plain_devices=4
)


def made_up(devices: int, samples_per_device: int) -> Samples:
    """Random images and labels; labels come equally often."""
    count = devices * samples_per_device
    generator = derive(SEED, "bench-data", devices, samples_per_device).numpy()
    # Eight pixels at once: a run that these stand for reads its images as quickly.
    eights = generator.integers(0, 2**64, count * math.prod(IMAGE) // 8, dtype=np.uint64)
    images = eights.view(np.uint8).reshape(count, *IMAGE)
    return images, generator.permutation(np.arange(count) % CLASSES)


def mnist_sized() -> tuple[Samples, Samples]:
    """Made-up training and test samples, as many as MNIST has."""
    return made_up(60, 1000), made_up(1, 10_000)
