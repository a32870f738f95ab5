"""Orders of devices' samples and noise, drawn by compiled code where it draws what numpy does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from camu.arrays import Float32, Int64
from camu.data.batches import Batches, Draw, draw_orders, order_streams
from camu.learning import native
from camu.seeding import Stream, derive


def compiled_draw(batches: Batches) -> Draw | None:
    """Compiled code that draws the batches; None where there is none, or if it draws others."""
    return _Drawing(batches.device_indices) if _orders_are_numpys() else None


def standard_normal(stream: Stream, count: int) -> Float32:
    """The first normal numbers of a stream, in single precision."""
    draw = _compiled_normal if _normals_are_numpys() else _numpy_normal
    return draw(stream, count)


# A version of numpy may draw in another way than the one that the code was written after.


@cache
def _orders_are_numpys() -> bool:
    if native.library() is None:
        return False
    held = [np.arange(size) for size in (1, 2, 3, 64, 1000)]
    asked = (7, 3, range(len(held)), (0, 1, 0, 2, 0))
    found = _Drawing(held)(*asked)
    return all(map(np.array_equal, found, draw_orders(held, *asked)))


@cache
def _normals_are_numpys() -> bool:
    if native.library() is None:
        return False
    asked = (derive(0, "noise", 0, 0), 20_000)  # some of them are in the tails
    return np.array_equal(_compiled_normal(*asked), _numpy_normal(*asked))


def _numpy_normal(stream: Stream, count: int) -> Float32:
    return stream.numpy().standard_normal(count, dtype=np.float32)


def _compiled_normal(stream: Stream, count: int) -> Float32:
    loaded = native.library()
    assert loaded is not None
    numbers = np.empty(count, dtype=np.float32)
    loaded.camu_draw_normals(stream.entropy.to_bytes(32, "little"), count, numbers.ctypes.data)
    return numbers


class _Drawing:
    def __init__(self, device_indices: Sequence[Int64]) -> None:
        self._held = device_indices  # they must live as long as their addresses are used
        self._places = np.array(
            [held.__array_interface__["data"][0] for held in device_indices], dtype=np.uintp
        )
        self._sizes = np.array([len(held) for held in device_indices], dtype=np.int64)

    def __call__(
        self, seed: int, round_number: int, devices: Sequence[int], passes: Sequence[int]
    ) -> list[Int64]:
        streams = order_streams(seed, round_number, devices, passes)
        numbers = b"".join(stream.entropy.to_bytes(32, "little") for stream in streams)
        wanted = np.array(devices)
        places, sizes = self._places[wanted], self._sizes[wanted]
        ends = np.cumsum(sizes)
        orders = np.empty(ends[-1], dtype=np.int64)
        loaded = native.library()
        assert loaded is not None
        loaded.camu_draw_orders(
            numbers, places.ctypes.data, sizes.ctypes.data, len(devices), orders.ctypes.data
        )
        starts = (ends - sizes).tolist()
        return [orders[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]
