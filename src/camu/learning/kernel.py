"""What computes on a worker: the training of a unit, evaluation, and passes over all data."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from camu.arrays import Float32
from camu.data.batches import Schedules
from camu.learning.data import DeviceBatch
from camu.learning.job import Job, Trained, brief
from camu.learning.weights import Weights


class Training(NamedTuple):
    """The training of one unit, with everything that the configuration decides."""

    start: Weights
    job: Job
    rate: float
    l2: float
    epochs: bool  # one local update is passes over the members' data, not mini-batches
    round_number: int

    @property
    def what(self) -> str:
        """It, for a message."""
        return training_of(self.job.members, self.round_number)

    @property
    def shares(self) -> list[float]:
        """The members' weights, with sum 1."""
        total = sum(self.job.weights)
        return [weight / total for weight in self.job.weights]

    @property
    def together(self) -> bool:
        """Whether a local update is one step on the mean loss of all members."""
        return not self.epochs and self.job.rule.steps == 1


def training_of(members: Sequence[int], round_number: int) -> str:
    """The training of some devices, for a message."""
    return f"Training devices {brief(members)} in round {round_number}"


@dataclass(frozen=True)
class Kernels:
    """How the workers of an engine compute."""

    name: str  # decides the last bits: `torch`, `native avx2` or `native avx512`
    fused: bool  # devices may share a pass
    whole_devices: bool  # a device's samples see each other, so they stay in one pass
    make: Callable[[ctypes.c_int32], Kernel]  # a worker's kernel; the flag stops it


class Kernel(Protocol):
    """One worker's means of computing; a thread uses it alone."""

    def train(
        self, trainings: Sequence[Training], schedules: Schedules, go_on: Callable[[], None]
    ) -> list[Trained]:
        """Train some units, each from its own start and on its own mini-batches.

        `go_on` is called between steps and raises when the work shall end.
        """
        ...

    def evaluate(self, weights: Weights, span: slice) -> tuple[int, float]:
        """How many of some test samples are classified rightly, and the sum of their losses."""
        ...

    def full_pass(
        self, weights: Weights, parts: Sequence[DeviceBatch], backward: bool
    ) -> tuple[Float32, float]:
        """Gradient (zeros unless `backward`) and loss of some devices' data, in training mode."""
        ...
