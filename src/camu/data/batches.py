"""Mini-batches: how many samples they have, and which samples a device takes in which local step.

The batches of (seed, round, device) are a permutation of the device's samples, cut into chunks;
local step n takes the n-th chunk, and a further permutation follows when one is used up. They are
the same for every scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


class Batches:
    """The mini-batches of all devices under one seed."""

    def __init__(self, seed: int, device_indices: Sequence[npt.ArrayLike], batch: float) -> None:
        self.seed = seed
        self.device_indices = [np.asarray(held, dtype=np.int64) for held in device_indices]
        held = [len(indices) for indices in self.device_indices]
        self._sizes: list[int] = batch_samples(batch, held).tolist()

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
        return [self.step(round_number, device, pass_number * count + n) for n in range(count)]

    def step(self, round_number: int, device: int, step: int, batch: float | None = None) -> Int64:
        """The mini-batch of one local step of a round, as indices of training samples."""
        passes, chunk = divmod(step, self.per_epoch(device, batch))
        size = self.size(device, batch)
        return self._order(round_number, device, passes)[chunk * size : (chunk + 1) * size]

    def _order(self, round_number: int, device: int, pass_number: int) -> Int64:
        further = (pass_number,) if pass_number else ()
        stream = derive(self.seed, "batch", round_number, device, *further)
        return stream.numpy().permutation(self.device_indices[device])
