"""Mini-batches: how many samples they have, and which samples a device takes in which local step.

The batches of (seed, round, device) are a permutation of the device's samples, cut into chunks;
local step n takes the n-th chunk, and a further permutation follows when one is used up. They are
the same for every scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Int64
from camu.errors import InputError
from camu.seeding import derive


def batch_samples(batch: float, samples: npt.ArrayLike) -> Int64:
    """Samples in one mini-batch of each device, for training and for its costs alike.

    `batch` up to 1 is a fraction of the device's own data, rounded up, so that a fraction 1/n cuts
    the data into n batches and none of them is a small rest; above 1 it is a number of samples. A
    device takes at least one sample and never more than it holds.
    """
    if not batch > 0 or not math.isfinite(batch):
        raise InputError(
            f"training.batch = {batch}: give a fraction of a device's data in (0, 1] or a number "
            "of samples above 1"
        )
    held = np.asarray(samples, dtype=np.int64)
    wanted = np.ceil(batch * held - 1e-9) if batch <= 1 else np.rint(np.minimum(batch, held))
    return np.minimum(np.maximum(wanted.astype(np.int64), 1), held)


@dataclass(frozen=True, eq=False)
class Schedule:
    """All mini-batches that a unit trains on, in the order local update, member, step."""

    batches: list[Int64]  # indices of training samples
    steps: list[int]  # mini-batches of each member per local update


class Batches:
    """The mini-batches of all devices under one seed."""

    def __init__(self, seed: int, device_indices: Sequence[npt.ArrayLike], batch: float) -> None:
        self.seed = seed
        self.device_indices = [np.asarray(held, dtype=np.int64) for held in device_indices]
        held = [len(indices) for indices in self.device_indices]
        self._sizes: list[int] = batch_samples(batch, held).tolist()

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

    def size(self, device: int, batch: float | None = None) -> int:
        """The size of a device's mini-batch; `batch` replaces the configured one."""
        return (
            self._sizes[device]
            if batch is None
            else int(batch_samples(batch, self.samples(device)))
        )

    def per_epoch(self, device: int, batch: float | None = None) -> int:
        """How many mini-batches one pass over a device's data takes."""
        return -(-self.samples(device) // self.size(device, batch))

    def epoch(self, round_number: int, device: int, pass_number: int) -> list[Int64]:
        """All mini-batches of one pass over a device's data, as indices of training samples."""
        count = self.per_epoch(device)
        return self._steps(round_number, device, pass_number * count, count, None)

    def step(self, round_number: int, device: int, step: int, batch: float | None = None) -> Int64:
        """The mini-batch of one local step of a round, as indices of training samples."""
        return self._steps(round_number, device, step, 1, batch)[0]

    def schedule(
        self,
        round_number: int,
        members: Sequence[int],
        updates: range,
        *,
        steps: int = 1,
        epochs: bool = False,
        batch: float | None = None,
    ) -> Schedule:
        """The mini-batches of some local updates of a unit, `steps` of each member per update.

        With `epochs` they are that many passes over the member's data instead.
        """
        counts, drawn = [], []
        for device in members:
            count = steps * (self.per_epoch(device, batch) if epochs else 1)
            first, total = updates.start * count, len(updates) * count
            counts.append(count)
            drawn.append(self._steps(round_number, device, first, total, batch))
        if len(members) == 1:
            return Schedule(drawn[0], counts)
        ordered = [
            own
            for update in range(len(updates))
            for count, of_member in zip(counts, drawn, strict=True)
            for own in of_member[update * count : (update + 1) * count]
        ]
        return Schedule(ordered, counts)

    def _steps(
        self, round_number: int, device: int, first: int, count: int, batch: float | None
    ) -> list[Int64]:
        """Some consecutive mini-batches of a device; each order of its samples is drawn once."""
        size = self.size(device, batch)
        per_pass = -(-self.samples(device) // size)
        result: list[Int64] = []
        for step in range(first, first + count):
            pass_number, chunk = divmod(step, per_pass)
            if step == first or chunk == 0:
                order = self._order(round_number, device, pass_number)
            result.append(order[chunk * size : (chunk + 1) * size])
        return result

    def _order(self, round_number: int, device: int, pass_number: int) -> Int64:
        further = (pass_number,) if pass_number else ()
        stream = derive(self.seed, "batch", round_number, device, *further)
        return stream.numpy().permutation(self.device_indices[device])
