"""Which samples a device takes in which local step: the same for every scheme that is compared.

The batches of (seed, round, device) are a permutation of the device's samples, cut into chunks;
local step n takes the n-th chunk, and a further permutation follows when one is used up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from camu.data.batch import batch_samples
from camu.errors import InputError
from camu.seeding import derive

Indices = npt.NDArray[np.int64]


def batch_size(samples: int, batch: float) -> int:
    """The size of a device's mini-batch: a fraction of its samples up to 1, a number above."""
    if not batch > 0 or not math.isfinite(batch):
        raise InputError(
            f"batch: {batch} is no batch size; give a fraction of a device's data in (0, 1] "
            "or a number of samples above 1."
        )
    return int(batch_samples(batch, samples))


class Batches:
    """The mini-batches of all devices under one seed."""

    def __init__(self, seed: int, device_indices: Sequence[npt.ArrayLike], batch: float) -> None:
        self.seed = seed
        self.device_indices = [np.asarray(held, dtype=np.int64) for held in device_indices]
        self._sizes = [batch_size(len(held), batch) for held in self.device_indices]

    def samples(self, device: int) -> int:
        """How many samples a device holds."""
        return len(self.device_indices[device])

    def size(self, device: int) -> int:
        """The size of a device's mini-batch."""
        return self._sizes[device]

    def per_epoch(self, device: int) -> int:
        """How many mini-batches one pass over a device's data takes."""
        return -(-self.samples(device) // self.size(device))

    def epoch(self, round_number: int, device: int, pass_number: int) -> list[Indices]:
        """All mini-batches of one pass over a device's data, as indices of training samples."""
        order = self._order(round_number, device, pass_number)
        size = self.size(device)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def step(self, round_number: int, device: int, step: int) -> Indices:
        """The mini-batch of one local step of a round, as indices of training samples."""
        passes, chunk = divmod(step, self.per_epoch(device))
        size = self.size(device)
        return self._order(round_number, device, passes)[chunk * size : (chunk + 1) * size]

    def _order(self, round_number: int, device: int, pass_number: int) -> Indices:
        further = (pass_number,) if pass_number else ()
        stream = derive(self.seed, "batch", round_number, device, *further)
        return stream.numpy().permutation(self.device_indices[device])
