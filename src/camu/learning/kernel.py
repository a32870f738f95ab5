"""The samples that a worker trains on, and the contract of the code that computes there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from camu.arrays import AnyArray, Float32, Float64, Int32, Int64
from camu.data.batches import Schedules
from camu.errors import InputError
from camu.learning.job import Job, Trained
from camu.learning.method import PLAIN_METHOD, Method
from camu.learning.weights import Weights

# A fused pass takes devices until it holds this many samples; one device is never divided, unless
# the model's samples do not see each other.
MICRO_BATCH_SAMPLES = 512
BATCHED = "torch batched"  # many units at once on torch's layers, as results name it


@dataclass(frozen=True, eq=False)
class Data:
    """Contiguous samples, and their targets.

    Inputs are images as uint8 ``(n, channels, height, width)``, floats ``(n, ...)``, or tokens as
    int64 ``(n, length)``; targets are int64 ``(n,)`` or ``(n, length)``, or float32 ``(n, width)``.
    """

    inputs: AnyArray
    targets: AnyArray

    @classmethod
    def of(
        cls, what: str, inputs: npt.ArrayLike | None, targets: npt.ArrayLike | None
    ) -> Data | None:
        """Checked samples; None if there are none."""
        if inputs is None or targets is None:
            return None
        given = np.ascontiguousarray(inputs)
        if given.dtype == np.uint8 and given.ndim not in (3, 4):
            raise InputError(
                f"{what}_inputs: uint8 of shape {given.shape} was given; images are uint8 "
                "(n, height, width) or (n, channels, height, width), other samples are floats."
            )
        if given.dtype != np.uint8 and np.issubdtype(given.dtype, np.integer):
            given = given.astype(np.int64, copy=False)
        elif given.dtype not in (np.uint8, np.float32, np.float64) or given.ndim < 2:
            raise InputError(
                f"{what}_inputs: {given.dtype} of shape {given.shape} was given; give uint8 "
                "images, floats (n, ...), or whole numbers (n, length)."
            )
        wanted = _checked_targets(what, np.asarray(targets), len(given))
        images = given.dtype == np.uint8 and given.ndim == 3
        return cls(given[:, None] if images else given, wanted)

    @property
    def labels(self) -> Int64 | None:
        """The class of each sample; None where targets are something else."""
        classes = self.targets.ndim == 1 and self.targets.dtype == np.int64
        return self.targets if classes else None


def _checked_targets(what: str, targets: AnyArray, samples: int) -> AnyArray:
    """Classes and tokens as int64, numbers as float32 (n, width)."""
    if targets.shape[:1] != (samples,) or not samples:
        raise InputError(
            f"{what}_targets: {targets.shape} targets were given for {samples} samples; give one "
            "per sample, and at least one sample."
        )
    if np.issubdtype(targets.dtype, np.floating):
        return np.ascontiguousarray(targets.reshape(samples, -1), dtype=np.float32)
    if not np.issubdtype(targets.dtype, np.integer) or targets.min() < 0:
        raise InputError(
            f"{what}_targets: {targets.dtype}, from {targets.min()}; give whole numbers from 0, or "
            "floats."
        )
    return np.ascontiguousarray(targets, dtype=np.int64)


class Tested(NamedTuple):
    """What some test samples say of a model."""

    right: int  # classes, or tokens, that it names rightly
    loss: float  # the sum over the samples
    outputs: AnyArray | None = None  # of each sample, if they were asked for


@dataclass(frozen=True)
class DeviceBatch:
    """One device's samples in a step, and the weight of their mean in the step's gradient."""

    device: int
    indices: Int64
    weight: float


def micro_batches(
    parts: Sequence[DeviceBatch], fused: bool, mixes_samples: bool
) -> list[list[DeviceBatch]]:
    """Cut the parts of a step into passes of bounded size, devices whole where that matters."""
    if not fused:
        return [[part] for part in parts]
    if not mixes_samples:
        # Pieces of a device whose weighted means add up to its own.
        parts = [
            DeviceBatch(part.device, piece, part.weight * len(piece) / len(part.indices))
            for part in parts
            for piece in np.split(
                part.indices, range(MICRO_BATCH_SAMPLES, len(part.indices), MICRO_BATCH_SAMPLES)
            )
        ]
    else:
        # Batch norm is quickest where devices with equally many samples are neighbours.
        parts = sorted(parts, key=lambda part: -len(part.indices))
    groups: list[list[DeviceBatch]] = []
    room = 0
    for part in parts:
        if not groups or len(part.indices) > room:
            groups.append([])
            room = MICRO_BATCH_SAMPLES
        groups[-1].append(part)
        room -= len(part.indices)
    return groups


class Optimiser(NamedTuple):
    """How the jobs of an engine train, unless their rules say more."""

    learning_rate: float
    l2: float = 0.0
    epochs: bool = False  # one local update is passes over the members' data, not mini-batches
    method: Method = PLAIN_METHOD

    def together(self, job: Job) -> bool:
        """Whether a local update of a job is one step on the mean loss of all its members.

        Clipping and Adam of the mean gradient are not the mean of the members', and a velocity that
        a device keeps is its own.
        """
        if self.epochs or job.rule.steps != 1:
            return False
        method = self.method.under(job.rule)
        keeps = job.states is not None and method.has_state
        return len(job.members) == 1 or (method.is_linear and not keeps)

    def rate(self, job: Job, round_number: int) -> float:
        """The rate of a job in a round, or at its first step."""
        factor = float(self.method.rate_factors(round_number, 0, 1, 1)[0])
        return self.learning_rate * job.rule.rate * factor

    def rates(self, job: Job, round_number: int, steps: Int32) -> list[Float64]:
        """The rate at each step of each member; `steps` is how many each takes per update."""
        rate = self.learning_rate * job.rule.rate
        return [
            rate
            * self.method.rate_factors(
                round_number, job.first * own, job.updates * own, job.round_updates * own
            )
            for own in steps.tolist()
        ]


@dataclass(frozen=True)
class Provenance:
    """What decides the last bits of training, besides camu's version and the configuration.

    `dataclasses.asdict` gives it as JSON takes it. What has no part in a result is empty.
    """

    kernel: str  # `torch`, `torch batched`, `native avx2` or `native avx512`
    device: str = "cpu"  # or `cuda` with the names of the card and of CUDA's version
    instructions: str = ""  # instruction set of the processor that the kernel uses
    compiler: str = ""  # of the compiled kernels
    torch: str = ""  # version of torch, if it trains


@dataclass(frozen=True)
class Kernels:
    """How the workers of an engine compute."""

    provenance: Provenance
    fused: bool  # devices may share a pass
    whole_devices: bool  # a device's samples see each other, so they stay in one pass
    make: Callable[
        [ctypes.c_int32], Kernel
    ]  # a worker's kernel; the flag ends its work between two steps
    at_once: int = 0  # jobs that it trains together, which decides their last bits; 0: each alone


class Kernel(Protocol):
    """One worker's means of computing; a thread uses it alone."""

    def train(
        self,
        jobs: Sequence[tuple[Weights, Job]],
        schedules: Schedules,
        round_number: int,
    ) -> list[Trained]:
        """Train some jobs, each from its own start and on its own mini-batches."""
        ...

    def evaluate(self, weights: Weights, span: slice, outputs: bool = False) -> Tested:
        """What some test samples say of a model; with its outputs if they are asked for."""
        ...

    def full_pass(
        self, weights: Weights, parts: Sequence[DeviceBatch], backward: bool
    ) -> tuple[Float32, float]:
        """Gradient (zeros unless `backward`) and loss of some devices' data, in training mode."""
        ...
