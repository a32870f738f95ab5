"""The compiled kernels: C++ sources beside this file, the library that the build makes of them,
and the calls into it.

The library has plain C functions, so it works with any version of Python, and a call leaves
Python's lock free. It trains the built-in CNN on the image shapes of the built-in data sets.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, Float64, Int64
from camu.data.batches import Schedules
from camu.errors import InputError

LIBRARY = Path(__file__).with_name("libcamu_kernels.so")
INSTRUCTION_SETS = ("avx512", "avx2")  # best first
LIMIT = "CAMU_KERNEL"  # an environment variable that names the best instruction set to use

NORMS = ("batch", "group", "none")  # the order of CamuNorm in kernels.h
DONE, STOPPED, NO_MEMORY = range(3)

_Pointer = ctypes.c_void_p


class _Geometry(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("channels", "side", "kernel", "padding")]


class _Data(ctypes.Structure):
    _fields_ = [("images", _Pointer), ("labels", _Pointer)]


class _Batch(ctypes.Structure):
    _fields_ = [
        ("indices", _Pointer),
        ("sizes", _Pointer),
        ("shares", _Pointer),
        ("devices", ctypes.c_int32),
    ]


class _Arrays(ctypes.Structure):
    _fields_ = [
        ("places", _Pointer * 8),  # CamuArrays has names for them
        ("parameters", ctypes.c_int64),
        ("buffers", ctypes.c_int64),
    ]


@dataclass(frozen=True)
class Shape:
    """What a worker is made for: square images, the first kernel, normalisation and classes."""

    channels: int
    side: int
    kernel: int
    padding: int
    norm: Literal["batch", "group", "none"]
    classes: int


@dataclass(frozen=True, eq=False)
class Samples:
    """Contiguous uint8 images (n, channels, side, side) and int64 labels."""

    images: npt.NDArray[np.uint8]
    labels: Int64

    def reference(self) -> _Data:
        """The arrays as the library takes them."""
        return _Data(self.images.ctypes.data, self.labels.ctypes.data)


class Task(NamedTuple):
    """The training of a unit, but for its members and batches; see CamuJob in kernels.h."""

    parameters: Float32
    buffers: Float32
    anchor: Float32
    correction: Float32 | None
    updates: int
    together: bool
    rate: float
    l2: float
    proximal: float


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library, or None where there is none for this machine and version of camu."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    if not hasattr(loaded, "camu_sum_of_squares"):
        return None
    loaded.camu_supports.argtypes = [ctypes.c_char_p]
    loaded.camu_compiler.restype = ctypes.c_char_p
    loaded.camu_worker.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(_Geometry),
        ctypes.c_int32,
        ctypes.c_int32,
    ]
    loaded.camu_worker.restype = _Pointer
    loaded.camu_free.argtypes = [_Pointer]
    loaded.camu_free.restype = None
    loaded.camu_train_units.argtypes = [
        *(_Pointer, _Pointer, ctypes.c_char_p, ctypes.c_int32),
        *[_Pointer] * 2,
    ]
    loaded.camu_gradient.argtypes = [_Pointer] * 6
    loaded.camu_draw_batches.argtypes = [
        *(ctypes.c_char_p, _Pointer, _Pointer, _Pointer, ctypes.c_int32),
        *[_Pointer] * 6,
    ]
    loaded.camu_noisy_change.argtypes = [
        *(_Pointer, _Pointer, ctypes.c_int64),
        *(ctypes.c_char_p, ctypes.c_double, ctypes.c_int32, _Pointer),
    ]
    loaded.camu_noisy_change.restype = ctypes.c_double
    loaded.camu_add_rows.argtypes = [_Pointer] * 3 + [ctypes.c_int64] * 2
    loaded.camu_add_rows.restype = None
    loaded.camu_sum_of_squares.argtypes = [_Pointer, ctypes.c_int64]
    loaded.camu_sum_of_squares.restype = ctypes.c_double
    loaded.camu_evaluate.argtypes = [_Pointer] * 2 + [ctypes.c_int64] * 2 + [_Pointer] * 4
    return loaded


def instruction_set() -> str | None:
    """The best instruction set that the library and this processor have, at most CAMU_KERNEL."""
    loaded = library()
    if loaded is None:
        return None
    wanted = os.environ.get(LIMIT) or INSTRUCTION_SETS[0]
    if wanted not in INSTRUCTION_SETS:
        raise InputError(f"{LIMIT} = {wanted}: use {' or '.join(INSTRUCTION_SETS)}, or unset it")
    allowed = INSTRUCTION_SETS[INSTRUCTION_SETS.index(wanted) :]
    return next((name for name in allowed if loaded.camu_supports(name.encode())), None)


def compiler() -> str:
    """The compiler that made the library; another one may round differently."""
    loaded = library()
    assert loaded is not None, "check instruction_set() first"
    return str(loaded.camu_compiler().decode())


class Worker:
    """The memory that training one unit at a time needs; for one thread at a time."""

    def __init__(self, shape: Shape, instructions: str) -> None:
        loaded = library()
        assert loaded is not None, "check instruction_set() first"
        self._library = loaded
        geometry = _Geometry(shape.channels, shape.side, shape.kernel, shape.padding)
        norm = NORMS.index(shape.norm)
        self._handle = loaded.camu_worker(instructions.encode(), geometry, norm, shape.classes)
        if not self._handle:
            raise MemoryError(f"no kernels for {shape}, or no memory for them")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.camu_free(self._handle)
            self._handle = None

    def train(
        self,
        samples: Samples,
        tasks: Sequence[Task],
        shares: Sequence[float],
        schedules: Schedules,
        stop: ctypes.c_int32,
    ) -> list[tuple[Float32, Float32, float]] | None:
        """Trained parameters and buffers and the mean loss of each unit; None if it was stopped.

        `shares` are those of all units' members. It is one call for all units, during which
        Python's lock is free.
        """
        units, count = _table(tasks), tasks[0].parameters.size
        parameters = np.empty((len(tasks), count), dtype=np.float32)
        buffers = np.empty((len(tasks), tasks[0].buffers.size), dtype=np.float32)
        losses = np.empty(sum([task.updates for task in tasks]))
        arrays, data = _Arrays(), samples.reference()
        given = (*schedules, np.array(shares), parameters, buffers, losses)
        arrays.places[:] = [own.ctypes.data for own in given]
        arrays.parameters, arrays.buffers = count, buffers.shape[1]
        result = self._library.camu_train_units(
            *(self._handle, ctypes.addressof(data), units, len(tasks)),
            *(ctypes.addressof(arrays), ctypes.addressof(stop)),
        )
        _check(result)
        if result == STOPPED:
            return None
        for own in (parameters, buffers):
            own.setflags(write=False)
        return list(zip(parameters, buffers, _mean_losses(tasks, losses), strict=True))

    def gradient(
        self,
        samples: Samples,
        parameters: Float32,
        indices: Sequence[Int64],
        shares: Sequence[float],
        backward: bool = True,
    ) -> tuple[Float32, float]:
        """Gradient and value of the weighted mean loss of some devices, in training mode."""
        flat = np.concatenate(indices)
        sizes = np.array([len(own) for own in indices], dtype=np.int32)
        weights = np.array(shares, dtype=np.float64)
        batch = _Batch(flat.ctypes.data, sizes.ctypes.data, weights.ctypes.data, len(sizes))
        gradient, loss = np.zeros_like(parameters), ctypes.c_double()
        data = samples.reference()
        result = self._library.camu_gradient(
            self._handle,
            ctypes.addressof(data),
            ctypes.addressof(batch),
            parameters.ctypes.data,
            gradient.ctypes.data if backward else None,
            ctypes.addressof(loss),
        )
        _check(result)
        return gradient, loss.value

    def evaluate(
        self, samples: Samples, parameters: Float32, buffers: Float32, first: int, count: int
    ) -> tuple[int, float]:
        """How many of some samples are classified rightly, and the sum of their losses."""
        right, loss, data = ctypes.c_int64(), ctypes.c_double(), samples.reference()
        self._library.camu_evaluate(
            self._handle,
            ctypes.addressof(data),
            first,
            count,
            parameters.ctypes.data,
            buffers.ctypes.data,
            ctypes.addressof(right),
            ctypes.addressof(loss),
        )
        return right.value, loss.value


def _check(result: int) -> None:
    if result == NO_MEMORY:
        raise MemoryError("there is not enough memory for a step on so many samples")


def _mean_losses(tasks: Sequence[Task], losses: Float64) -> list[float]:
    if len(losses) == len(tasks):
        return list(losses.tolist())
    parts = np.split(losses, np.cumsum([task.updates for task in tasks])[:-1])
    return [float(own.sum()) / len(own) for own in parts]


_UNIT = struct.Struct("4Q2i3f4x")  # CamuUnit


def _table(tasks: Sequence[Task]) -> bytes:
    """The units as the library takes them; their arrays must live as long as the table."""
    rows: dict[int, bytes] = {}  # many units have the same task
    return b"".join([rows.get(id(task)) or rows.setdefault(id(task), _row(task)) for task in tasks])


def _row(task: Task) -> bytes:
    arrays = task.parameters, task.buffers, task.anchor, task.correction
    places = [0 if array is None else array.ctypes.data for array in arrays]
    terms = task.rate, task.l2, task.proximal
    return _UNIT.pack(*places, task.updates, task.together, *terms)
