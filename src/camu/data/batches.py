"""Mini-batches: how many samples they have, and which samples a device takes in which local step.

The batches of (seed, round, device) are a permutation of the device's samples, cut into chunks;
local step n takes the n-th chunk, and a further permutation follows when one is used up. They are
the same for every scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Int64
from camu.errors import InputError
from camu.seeding import Stream, derive


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


@dataclass(frozen=True)
class Wanted:
    """The mini-batches of some local updates of a unit: `steps` of each member per update.

    With `epochs` they are that many passes over the member's data instead.
    """

    members: Sequence[int]
    updates: range
    steps: int = 1
    epochs: bool = False
    batch: float | None = None  # replaces the configured one


@dataclass(frozen=True, eq=False)
class Schedule:
    """All mini-batches that a unit trains on, in the order local update, member, step."""

    batches: list[Int64]  # indices of training samples
    steps: list[int]  # mini-batches of each member per local update


# (seed, round, devices, numbers of passes) -> the samples of each device in the order of that pass
Draw = Callable[[int, int, Sequence[int], Sequence[int]], list[Int64]]


class Batches:
    """The mini-batches of all devices under one seed.

    `draw` may be replaced by quicker code that draws the same.
    """

    def __init__(self, seed: int, device_indices: Sequence[npt.ArrayLike], batch: float) -> None:
        self.seed = seed
        self.device_indices = [
            np.ascontiguousarray(held, dtype=np.int64) for held in device_indices
        ]
        held = [len(indices) for indices in self.device_indices]
        self._sizes: list[int] = batch_samples(batch, held).tolist()
        self.draw: Draw = partial(draw_orders, self.device_indices)

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
        wanted = Wanted((device,), range(pass_number, pass_number + 1), epochs=True)
        return self.schedules(round_number, [wanted])[0].batches

    def step(self, round_number: int, device: int, step: int, batch: float | None = None) -> Int64:
        """The mini-batch of one local step of a round, as indices of training samples."""
        wanted = Wanted((device,), range(step, step + 1), batch=batch)
        return self.schedules(round_number, [wanted])[0].batches[0]

    def schedules(self, round_number: int, units: Sequence[Wanted]) -> list[Schedule]:
        """The mini-batches of some units; the orders of all their samples are drawn at once."""
        spans = [self._spans(unit) for unit in units]
        passes = [(own.device, number) for unit in spans for own in unit for number in own.passes]
        devices, numbers = zip(*passes, strict=True)
        orders = iter(self.draw(self.seed, round_number, devices, numbers))
        return [
            _schedule(len(unit.updates), own, orders)
            for unit, own in zip(units, spans, strict=True)
        ]

    def _spans(self, unit: Wanted) -> list[_Span]:
        found = []
        for device in unit.members:
            size, per_pass = self.size(device, unit.batch), self.per_epoch(device, unit.batch)
            count = unit.steps * (per_pass if unit.epochs else 1)
            first = unit.updates.start * count
            found.append(_Span(device, size, per_pass, first, unit.updates.stop * count))
        return found


class _Span(NamedTuple):
    """Some consecutive mini-batches of a device."""

    device: int
    size: int
    per_pass: int
    first: int
    end: int

    @property
    def passes(self) -> range:
        """The passes over the device's data that these batches belong to."""
        return range(self.first // self.per_pass, (self.end - 1) // self.per_pass + 1)

    def cut(self, orders: Iterator[Int64]) -> list[Int64]:
        """The mini-batches, from the orders of their passes."""
        own = dict(zip(self.passes, orders))  # noqa: B905 - further orders belong to others
        found = []
        for step in range(self.first, self.end):
            number, chunk = divmod(step, self.per_pass)
            found.append(own[number][chunk * self.size : (chunk + 1) * self.size])
        return found


def _schedule(updates: int, spans: list[_Span], orders: Iterator[Int64]) -> Schedule:
    drawn = [own.cut(orders) for own in spans]
    counts = [(own.end - own.first) // updates for own in spans]
    if len(spans) == 1:
        return Schedule(drawn[0], counts)
    ordered = [
        chunk
        for update in range(updates)
        for count, of_member in zip(counts, drawn, strict=True)
        for chunk in of_member[update * count : (update + 1) * count]
    ]
    return Schedule(ordered, counts)


def draw_orders(
    device_indices: Sequence[Int64],
    seed: int,
    round_number: int,
    devices: Sequence[int],
    passes: Sequence[int],
) -> list[Int64]:
    """The samples of each device in the order of one pass, by numpy."""
    streams = order_streams(seed, round_number, devices, passes)
    return [
        stream.numpy().permutation(device_indices[device])
        for device, stream in zip(devices, streams, strict=True)
    ]


def order_streams(
    seed: int, round_number: int, devices: Sequence[int], passes: Sequence[int]
) -> list[Stream]:
    """What decides the order of each device's samples in one pass."""
    return [
        derive(seed, "batch", round_number, device, *((number,) if number else ()))
        for device, number in zip(devices, passes, strict=True)
    ]
