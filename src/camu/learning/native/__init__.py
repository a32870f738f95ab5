"""The compiled library: how it is found, and the batches and noise that it draws.

The C++ sources are in this directory. The library has plain C functions, so it works with any
version of Python, and a call leaves Python's lock free.
"""

from __future__ import annotations

import ctypes
import math
import os
from array import array
from collections.abc import Sequence
from functools import cache
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, sum_of_squares
from camu.data.batches import Batches, Draw, Schedules, Wanted
from camu.errors import InputError
from camu.seeding import Stream

ABI = 3  # the number of the interface in kernels.h; a library with another one is not used
LIBRARY = Path(__file__).with_name("libcamu_kernels.so")
INSTRUCTION_SETS = ("avx512", "avx2", "neon")  # best first
LIMIT = "CAMU_KERNEL"  # an environment variable that names the best instruction set to use

NORMS = ("batch", "group", "none")  # the order of CamuNorm in kernels.h
DONE, STOPPED, NO_MEMORY = range(3)

_Pointer, _Text, _Int, _Long = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64


class Geometry(ctypes.Structure):
    """CamuGeometry: the images and the kernels of the first convolution."""

    _fields_ = [(name, _Int) for name in ("channels", "side", "kernel", "padding")]


class Data(ctypes.Structure):
    """CamuData: where images and labels are."""

    _fields_ = [(name, _Pointer) for name in ("images", "labels")]


class Batch(ctypes.Structure):
    """CamuBatch: the samples of some devices."""

    _fields_ = [
        *((name, _Pointer) for name in ("indices", "sizes", "shares")),
        ("devices", _Int),
    ]


_POINTERS = (
    *("parameters", "buffers", "anchor", "correction", "indices", "sizes", "steps", "shares"),
    *("rates", "velocity"),
)
_RESULTS = ("trained_parameters", "trained_buffers", "losses")
JOB = np.dtype(  # CamuJob
    [(name, np.uintp) for name in (*_POINTERS, *_RESULTS)]
    + [(name, np.int32) for name in ("updates", "members", "together", "nesterov")]
    + [(n, np.float32) for n in ("rate", "l2", "proximal", "momentum", "decay", "clip")]
)
WANTED_NUMBERS = 5  # of CamuWanted, each of 64 bits
_SIZES = [ctypes.sizeof(own) for own in (Geometry, Data, Batch)]
_SIZES += [JOB.itemsize, 8 * WANTED_NUMBERS]

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {  # results and arguments
    "camu_supports": (_Int, [_Text]),
    "camu_compiler": (_Text, []),
    "camu_worker": (_Pointer, [_Text, ctypes.POINTER(Geometry), _Int, _Int]),
    "camu_free": (None, [_Pointer]),
    "camu_train_units": (_Int, [*[_Pointer] * 3, _Int, _Pointer]),
    "camu_gradient": (_Int, [_Pointer] * 6),
    "camu_evaluate": (_Int, [*[_Pointer] * 2, _Long, _Long, *[_Pointer] * 4]),
    "camu_draw_batches": (_Int, [_Text, *[_Pointer] * 3, _Int, *[_Pointer] * 6]),
    "camu_noisy_change": (
        ctypes.c_double,
        [_Pointer, _Pointer, _Long, _Text, ctypes.c_double, _Int, _Pointer],
    ),
    "camu_add_rows": (None, [*[_Pointer] * 3, _Long, _Long]),
}


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library, or None where there is none for this machine and version of camu."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    sizes = (_Long * len(_SIZES))()
    if not hasattr(loaded, "camu_abi") or loaded.camu_abi(sizes) != ABI or [*sizes] != _SIZES:
        return None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def needed_library() -> ctypes.CDLL:
    """The library, where it is known that there is one."""
    loaded = library()
    assert loaded is not None, "check library() or instruction_set() first"
    return loaded


def instruction_set() -> str | None:
    """The best instruction set that the library and this processor have, at most CAMU_KERNEL."""
    loaded = library()
    if loaded is None:
        return None
    wanted = os.environ.get(LIMIT) or INSTRUCTION_SETS[0]
    if wanted not in INSTRUCTION_SETS:
        raise InputError(
            f"{LIMIT} = {wanted}: use one of {', '.join(INSTRUCTION_SETS)}, or unset it"
        )
    allowed = INSTRUCTION_SETS[INSTRUCTION_SETS.index(wanted) :]
    return next((name for name in allowed if loaded.camu_supports(name.encode())), None)


def compiler() -> str:
    """The compiler that made the library; another one may round differently."""
    return str(needed_library().camu_compiler().decode())


def address(array: npt.NDArray[Any]) -> int:
    """Where an array begins in memory."""
    place: int = array.__array_interface__["data"][0]
    return place


# Batches and noise: a version of numpy may draw in another way than the one that the compiled code
# was written after, so some draws are compared first.


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


@cache
def _batches_are_numpys() -> bool:
    if library() is None:
        return False
    batches = Batches(7, [np.arange(size) for size in (1, 2, 3, 64, 1000)], 0.3)
    asked = Stream(7), [Wanted(range(5), range(1, 4)), Wanted((3, 1), range(2), 2, True, 30)]
    found: Sequence[Any] = _Drawing(batches)(*asked)
    expected: Sequence[Any] = batches.draw_by_numpy(*asked)
    return all(map(np.array_equal, found, expected))


@cache
def _changes_are_numpys() -> bool:
    if library() is None:
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
        scale *= math.sqrt(sum_of_squares(change) / len(change))
    noise = stream.numpy().standard_normal(len(change), dtype=np.float32)
    found = change + noise * np.float32(scale)
    return found, sum_of_squares(found)


def _compiled_change(
    model: Float32, start: Float32 | None, scale: float, relative: bool, stream: Stream
) -> tuple[Float32, float]:
    if start is not None and start.shape != model.shape:
        raise ValueError(f"a model of shape {model.shape} did not start from {start.shape}")
    found = np.empty(len(model), dtype=np.float32)
    model = np.ascontiguousarray(model, dtype=np.float32)
    begin = None if start is None else np.ascontiguousarray(start, dtype=np.float32)
    squares = needed_library().camu_noisy_change(
        *(model.ctypes.data, None if begin is None else begin.ctypes.data, len(model)),
        *(stream.entropy.to_bytes(32, "little"), scale, relative, found.ctypes.data),
    )
    return found, squares


class _Drawing:
    def __init__(self, batches: Batches) -> None:
        self._batches = batches  # it must live as long as the addresses of its arrays are used
        held = batches.device_indices
        self._places = np.array([address(own) for own in held], dtype=np.uintp)
        self._held = np.array([len(own) for own in held], dtype=np.int64)
        self._tables = address(self._places), address(self._held)

    def __call__(self, stream: Stream, units: Sequence[Wanted]) -> Schedules:
        members, sizes, wanted = array("q"), array("q"), array("q")
        batches = samples = 0  # the most that there can be: the last batch of a pass may be smaller
        for own, updates, steps, epochs, batch in units:
            of_members = self._batches.sizes(own, batch)
            members.extend(own)
            sizes.extend(of_members)
            wanted.extend((len(own), updates.start, updates.stop, steps, epochs))
            passes = [self._batches.per_epoch(k, batch) for k in own] if epochs else [1] * len(own)
            batches += len(updates) * steps * sum(passes)
            samples += len(updates) * steps * sum(map(mul, passes, of_members))
        per_update = np.empty(len(members), dtype=np.int32)
        counts = np.empty((len(units), 3), dtype=np.int64)
        batch_sizes, indices = np.empty(batches, np.int32), np.empty(samples, np.int64)
        if needed_library().camu_draw_batches(
            *(stream.entropy.to_bytes(32, "little"), *self._tables),
            *(wanted.buffer_info()[0], len(units)),
            *(members.buffer_info()[0], sizes.buffer_info()[0]),
            *(address(per_update), address(counts)),
            *(address(batch_sizes), address(indices)),
        ):
            raise MemoryError("there is not enough memory to draw batches")
        return Schedules(indices[: int(counts[:, 1].sum())], batch_sizes, per_update, counts)
