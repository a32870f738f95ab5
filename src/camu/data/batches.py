"""Mini-batches: how many samples they have, and which samples a device takes in which local step.

The batches of (seed, round, device) are a permutation of the device's samples, cut into chunks;
local step n takes the n-th chunk, and a further permutation follows when one is used up. They are
the same for every scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Int32, Int64
from camu.errors import InputError
from camu.seeding import Stream, derive


def batch_fault(batch: int | float) -> str:
    """What is wrong with a mini-batch, as the end of a sentence; "" if it is one."""
    if isinstance(batch, int | np.integer):
        return "" if batch >= 1 else f"{batch} samples; give at least 1"
    return "" if 0 < batch <= 1 else f"{batch}: a float is a fraction of a device's data in (0, 1]"


def batch_samples(batch: int | float, samples: npt.ArrayLike) -> Int64:
    """Samples in one mini-batch of each device, for training and for its costs alike.

    An int is a number of samples. A float is a fraction of the device's own data, rounded up, so
    that a fraction 1/n cuts the data into n batches and none of them is a small rest. A device
    takes at least one sample and never more than it holds.
    """
    if fault := batch_fault(batch):
        raise InputError(f"batch = {fault}; a whole number (int) is a number of samples")
    held = np.asarray(samples, dtype=np.int64)
    number = isinstance(batch, int | np.integer)
    wanted = np.asarray(batch if number else np.ceil(batch * held - 1e-9)).astype(np.int64)
    return np.minimum(np.maximum(wanted, 1), held)


class Wanted(NamedTuple):
    """The mini-batches of some local updates of a unit: `steps` of each member per update.

    With `epochs` they are that many passes over the member's data instead.
    """

    members: Sequence[int]
    updates: range
    steps: int = 1
    epochs: bool = False
    batch: int | float | None = None  # replaces the configured one


class Schedule(NamedTuple):
    """All mini-batches that a unit trains on, in the order local update, member, step."""

    indices: Int64  # the training samples of all mini-batches, one after another
    sizes: Int32  # of the mini-batches
    steps: Int32  # mini-batches of each member per local update

    @property
    def batches(self) -> list[Int64]:
        """The training samples of each mini-batch."""
        return np.split(self.indices, np.cumsum(self.sizes)[:-1])


class Schedules(NamedTuple):
    """The schedules of some units, one after another."""

    indices: Int64
    sizes: Int32
    steps: Int32
    counts: Int64  # (units, 3): mini-batches, samples and members of each unit

    @classmethod
    def of(cls, units: Sequence[Schedule]) -> Schedules:
        """These schedules."""
        counts = [(len(own.sizes), len(own.indices), len(own.steps)) for own in units]
        return cls(
            np.concatenate([own.indices for own in units]),
            np.concatenate([own.sizes for own in units]),
            np.concatenate([own.steps for own in units]),
            np.array(counts, dtype=np.int64),
        )

    def apart(self) -> list[Schedule]:
        """The schedule of each unit."""
        batches, samples, members = np.cumsum(self.counts, axis=0)[:-1].T
        indices, sizes = np.split(self.indices, samples), np.split(self.sizes, batches)
        return list(map(Schedule, indices, sizes, np.split(self.steps, members)))


Draw = Callable[[Stream, Sequence[Wanted]], Schedules]


class Batches:
    """The mini-batches of all devices under one seed.

    `draw` may be replaced by quicker code that draws the same.
    """

    def __init__(
        self, seed: int, device_indices: Sequence[npt.ArrayLike], batch: int | float
    ) -> None:
        self.seed = seed
        self.device_indices = [
            np.ascontiguousarray(held, dtype=np.int64) for held in device_indices
        ]
        self._held = [len(indices) for indices in self.device_indices]
        self._sizes: list[int] = batch_samples(batch, self._held).tolist()
        self.draw: Draw = self.draw_by_numpy

    def check(self, samples: int) -> None:
        """Refuse indices beyond so many training samples."""
        for device, held in enumerate(self.device_indices):
            if len(held) and (held.min() < 0 or held.max() >= samples):
                raise InputError(
                    f"device_indices: device {device} refers to samples beyond the {samples} there "
                    "are."
                )

    def samples(self, device: int) -> int:
        """How many samples a device holds."""
        return len(self.device_indices[device])

    def size(self, device: int, batch: int | float | None = None) -> int:
        """The size of a device's mini-batch; `batch` replaces the configured one."""
        if batch is None:
            return self._sizes[device]
        return int(batch_samples(batch, self._held[device]))

    def sizes(self, members: Sequence[int], batch: int | float | None = None) -> list[int]:
        """The sizes of some devices' mini-batches."""
        return [self.size(device, batch) for device in members]

    def per_epoch(self, device: int, batch: int | float | None = None) -> int:
        """How many mini-batches one pass over a device's data takes."""
        return -(-self.samples(device) // self.size(device, batch))

    def epoch(self, round_number: int, device: int, pass_number: int) -> list[Int64]:
        """All mini-batches of one pass over a device's data, as indices of training samples."""
        wanted = Wanted((device,), range(pass_number, pass_number + 1), epochs=True)
        return self.schedules(round_number, [wanted]).apart()[0].batches

    def step(
        self, round_number: int, device: int, step: int, batch: int | float | None = None
    ) -> Int64:
        """The mini-batch of one local step of a round, as indices of training samples."""
        wanted = Wanted((device,), range(step, step + 1), batch=batch)
        return self.schedules(round_number, [wanted]).apart()[0].batches[0]

    def schedules(self, round_number: int, units: Sequence[Wanted]) -> Schedules:
        """The mini-batches of some units."""
        return self.draw(derive(self.seed, "batch", round_number), units)

    def draw_by_numpy(self, stream: Stream, units: Sequence[Wanted]) -> Schedules:
        """The mini-batches of some units; the stream has a branch for each device and pass."""
        return Schedules.of([self._schedule(stream, unit) for unit in units])

    def _schedule(self, stream: Stream, unit: Wanted) -> Schedule:
        orders: dict[tuple[int, int], Int64] = {}  # by device and number of the pass
        batches = []
        per_pass = [self.per_epoch(device, unit.batch) for device in unit.members]
        steps = [unit.steps * (count if unit.epochs else 1) for count in per_pass]
        for update in unit.updates:
            for device, in_pass, count in zip(unit.members, per_pass, steps, strict=True):
                size = self.size(device, unit.batch)
                for step in range(update * count, (update + 1) * count):
                    number, chunk = divmod(step, in_pass)
                    if (device, number) not in orders:
                        generator = stream.numpy(device, number)
                        order = generator.permutation(self.device_indices[device])
                        orders[device, number] = order
                    batches.append(orders[device, number][chunk * size : (chunk + 1) * size])
        sizes = np.array([len(batch) for batch in batches], dtype=np.int32)
        return Schedule(np.concatenate(batches), sizes, np.array(steps, dtype=np.int32))
