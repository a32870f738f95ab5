"""Mini-batches and noise, drawn by compiled code where it draws what numpy does."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from camu.arrays import Float32
from camu.data.batches import Batches, Draw, Schedules, Wanted
from camu.learning import native
from camu.learning.sums import numpy_squares
from camu.seeding import Stream


def compiled_draw(batches: Batches) -> Draw | None:
    """Compiled code that draws the batches; None where there is none, or if it draws others."""
    return _Drawing(batches) if _batches_are_numpys() else None


def noisy_change(
    model: Float32, start: Float32 | None, scale: float, relative: bool, stream: Stream
) -> tuple[Float32, float]:
    """What a model was changed by, with normal noise, and the sum of squares of that.

    The noise has the standard deviation `scale`, or with `relative` this part of the root mean
    square of the change. Without a start, the model is the change.
    """
    change = _compiled_change if _changes_are_numpys() else _numpy_change
    return change(model, start, scale, relative, stream)


# A version of numpy may draw in another way than the one that the code was written after.


@cache
def _batches_are_numpys() -> bool:
    if native.library() is None:
        return False
    batches = Batches(7, [np.arange(size) for size in (1, 2, 3, 64, 1000)], 0.3)
    asked = Stream(7), [Wanted(range(5), range(1, 4)), Wanted((3, 1), range(2), 2, True, 30)]
    found: Sequence[Any] = _Drawing(batches)(*asked)
    expected: Sequence[Any] = batches.draw_by_numpy(*asked)
    return all(map(np.array_equal, found, expected))


@cache
def _changes_are_numpys() -> bool:
    if native.library() is None:
        return False
    model = np.linspace(-2, 2, 20_000, dtype=np.float32)  # some noise is in the tails
    asked = model, model[::-1].copy(), 0.3, True, Stream(7)
    (found, squares), (expected, its) = _compiled_change(*asked), _numpy_change(*asked)
    return np.array_equal(found, expected) and squares == its


def _numpy_change(
    model: Float32, start: Float32 | None, scale: float, relative: bool, stream: Stream
) -> tuple[Float32, float]:
    change = model if start is None else model - start
    if relative:
        scale *= math.sqrt(numpy_squares(change) / len(change))
    noise = stream.numpy().standard_normal(len(change), dtype=np.float32)
    found = change + noise * np.float32(scale)
    return found, numpy_squares(found)


def _compiled_change(
    model: Float32, start: Float32 | None, scale: float, relative: bool, stream: Stream
) -> tuple[Float32, float]:
    loaded = native.library()
    assert loaded is not None
    if start is not None and start.shape != model.shape:
        raise ValueError(f"a model of shape {model.shape} did not start from {start.shape}")
    found = np.empty(len(model), dtype=np.float32)
    model = np.ascontiguousarray(model, dtype=np.float32)
    begin = None if start is None else np.ascontiguousarray(start, dtype=np.float32)
    squares = loaded.camu_noisy_change(
        *(model.ctypes.data, None if begin is None else begin.ctypes.data, len(model)),
        *(stream.entropy.to_bytes(32, "little"), scale, relative, found.ctypes.data),
    )
    return found, squares


class _Drawing:
    def __init__(self, batches: Batches) -> None:
        self._batches = batches  # it must live as long as the addresses of its arrays are used
        held = batches.device_indices
        self._places = np.array(
            [own.__array_interface__["data"][0] for own in held], dtype=np.uintp
        )
        self._sizes = np.array([len(own) for own in held], dtype=np.int64)
        self._tables = self._places.ctypes.data, self._sizes.ctypes.data

    def __call__(self, stream: Stream, units: Sequence[Wanted]) -> Schedules:
        members, sizes, numbers = array("q"), array("q"), array("q")
        for own, updates, steps, epochs, batch in units:
            members.extend(own)
            sizes.extend(self._batches.sizes(own, batch))
            numbers.extend((len(own), updates.start, updates.stop, steps, epochs))
        per_update = np.empty(len(members), dtype=np.int32)
        counts = np.empty((len(units), 3), dtype=np.int64)
        asked = (
            *(stream.entropy.to_bytes(32, "little"), *self._tables),
            *(numbers.buffer_info()[0], len(units), members.buffer_info()[0]),
            *(sizes.buffer_info()[0], per_update.ctypes.data, counts.ctypes.data),
        )
        _draw_batches(*asked, None, None)  # counts them
        count, samples, _ = counts.sum(axis=0).tolist()
        batch_sizes = np.empty(count, dtype=np.int32)
        indices = np.empty(samples, dtype=np.int64)
        _draw_batches(*asked, batch_sizes.ctypes.data, indices.ctypes.data)
        return Schedules(indices, batch_sizes, per_update, counts)


def _draw_batches(*asked: Any) -> None:
    loaded = native.library()
    assert loaded is not None
    if loaded.camu_draw_batches(*asked):
        raise MemoryError("there is not enough memory to draw batches")
