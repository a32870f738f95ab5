"""Which code trains a model, and training on the compiled kernels.

The kernels are compared with a gradient in plain numpy once on every machine. A comparison that
went well is noted beside the cached data sets.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import logging
import platform
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import Float32
from camu.config import Config
from camu.data.batches import Schedules
from camu.data.store import cache_root
from camu.errors import CamuError, InputError
from camu.files import write_json
from camu.learning import native
from camu.learning.cnn import CNN, SeededCNN, seeded_cnn
from camu.learning.job import Job, Trained
from camu.learning.kernel import (
    Data,
    DeviceBatch,
    Kernel,
    Kernels,
    Optimiser,
    Provenance,
    Tested,
)
from camu.learning.method import PLAIN_METHOD, Method
from camu.learning.native_jobs import JobTable, mean_losses
from camu.learning.reference import reference_gradient
from camu.learning.task import Task, task_of
from camu.learning.weights import Weights
from camu.seeding import derive

if TYPE_CHECKING:
    from torch import nn


log = logging.getLogger(__name__)

# (channels, height, width) of the images that the library was compiled for.
IMAGES = ((1, 28, 28), (1, 8, 8), (3, 32, 32))
_SHAPES = ("28x28", "8x8", "3x32x32")
MOST_CLASSES = 256
KERNELS = ("auto", "native", "batched", "torch")


def compiled_cnn(model: nn.Module | SeededCNN) -> CNN | None:
    """The model as the kernels compute it, or None for a model that they do not have."""
    if isinstance(model, SeededCNN):
        cnn = model.cnn
    else:
        from camu.learning.networks import PaperCNN  # with torch, which made the module

        if type(model) is not PaperCNN:
            return None
        cnn = model.cnn
    return cnn if cnn.image_shape in IMAGES and cnn.classes <= MOST_CLASSES else None


def find_kernels(
    wanted: str,
    model: nn.Module | SeededCNN,
    device: str,
    task: Task,
    method: Method = PLAIN_METHOD,
) -> tuple[CNN, str] | None:
    """Model and instruction set of the compiled kernels to train with; None: torch's layers.

    `wanted` is one of `KERNELS`. With "auto", kernels that should be there and are not
    are mentioned once.
    """
    if wanted not in KERNELS:
        raise InputError(f"machine.kernel = {wanted!r}: use {', '.join(KERNELS)}")
    cnn = compiled_cnn(model) if wanted in ("auto", "native") and task.native else None
    instructions = native.instruction_set() if cnn is not None else None
    if cnn is None:
        reason = (
            f"they train the built-in CNN on uint8 images of {', '.join(_SHAPES)} with "
            "cross-entropy only"
        )
    elif native.library() is None and native.LIBRARY.exists():
        reason = "they belong to another version of camu or another machine; install camu again"
    elif native.library() is None:
        reason = "camu was installed without them, because no C++ compiler was found"
    elif instructions is None:
        reason = "this processor has no AVX2"
    elif method.optimiser != "sgd":
        reason = f"training.optimiser = {method.optimiser!r} needs torch's layers"
    elif method.dp_unit != "none":
        reason = f"training.dp_unit = {method.dp_unit!r} needs torch's layers"
    elif device != "cpu":
        reason = f"they compute on the processor, and {device} was asked for"
    elif found := trouble(cnn, instructions):
        reason = found
    else:
        return cnn, instructions
    if wanted == "native":
        raise InputError(f'machine.kernel = "native": there are no compiled kernels: {reason}')
    if cnn is not None:
        _mention(reason)
    return None


def native_kernels(
    found: tuple[CNN, str],
    model: nn.Module | SeededCNN,
    optimiser: Optimiser,
    train: Data | None,
    test: Data | None,
    task: Task,
) -> Kernels:
    """The compiled kernels for samples that fit them."""
    cnn, instructions = found

    def outputs() -> Kernel:
        from camu.learning.torch_kernel import torch_kernels  # torch takes long to load

        made = torch_kernels(model, "cpu", optimiser, None, test, 0, task)
        return made.make(ctypes.c_int32(0))

    for data in (train, test):
        check_samples(cnn, data)
    return Kernels(
        provenance=native_provenance(instructions),
        fused=True,
        whole_devices=cnn.normalisation == "batch",
        make=lambda stop: NativeKernel(cnn, instructions, optimiser, train, test, stop, outputs),
    )


def native_provenance(instructions: str) -> Provenance:
    """What decides the bits of the compiled kernels: torch has no part in them."""
    return Provenance(
        f"native {instructions}", instructions=instructions, compiler=native.compiler()
    )


def check_samples(cnn: CNN, data: Data | None) -> None:
    """Refuse samples that do not fit the model: the kernels read and write without checks."""
    if data is None:
        return
    shape, classes = data.inputs.shape[1:], int(data.targets.max()) + 1
    if shape != cnn.image_shape:
        raise InputError(f"model: it takes images of shape {cnn.image_shape}; these have {shape}.")
    if classes > cnn.classes:
        raise InputError(f"model: it has {cnn.classes} classes; the labels need {classes} classes.")


@cache
def _mention(reason: str) -> None:
    log.warning("training with torch's layers, not with compiled kernels: %s", reason)


class NativeKernel:
    """A worker of the compiled library with its memory, and the data it computes on."""

    def __init__(
        self,
        cnn: CNN,
        instructions: str,
        optimiser: Optimiser,
        train: Data | None,
        test: Data | None,
        stop: ctypes.c_int32,
        outputs: Callable[[], Kernel] | None = None,
    ) -> None:
        self._make_outputs = outputs
        self._outputs: Kernel | None = None
        self._library, self._layout = native.needed_library(), cnn.layout
        self._optimiser, self._stop = optimiser, stop
        self._held = train, test  # they must live as long as the references to them
        self._train, self._test = _reference(train), _reference(test)
        self._results = _Memory(), _Memory()
        channels, side, _ = cnn.image_shape
        geometry = native.Geometry(channels, side, cnn.kernel, cnn.padding)
        norm = native.NORMS.index(cnn.normalisation)
        self._worker = self._library.camu_worker(instructions.encode(), geometry, norm, cnn.classes)
        if not self._worker:
            raise MemoryError(f"no kernels for {cnn}, or no memory for them")

    def __del__(self) -> None:
        if getattr(self, "_worker", None):
            self._library.camu_free(self._worker)
            self._worker = None

    def train(
        self,
        jobs: Sequence[tuple[Weights, Job]],
        schedules: Schedules,
        round_number: int,
    ) -> list[Trained]:
        """One call for all jobs, during which Python's lock is free."""
        given = JobTable.of(jobs, self._optimiser, schedules, round_number)
        table, count = given.rows, len(jobs)
        updates = table["updates"].astype(np.int64)
        sizes = self._layout.parameter_count, self._layout.buffer_count
        parameters, buffers = (
            memory.take(count, size) for memory, size in zip(self._results, sizes, strict=True)
        )
        losses = np.empty(int(updates.sum()))
        shares = np.array([share for _, job in jobs for share in job.shares])
        first = np.cumsum(schedules.counts, axis=0) - schedules.counts
        table["members"] = schedules.counts[:, 2]
        for name, array, begin in (
            ("sizes", schedules.sizes, first[:, 0]),
            ("indices", schedules.indices, first[:, 1]),
            ("steps", schedules.steps, first[:, 2]),
            ("shares", shares, first[:, 2]),
            ("trained_parameters", parameters, np.arange(count) * sizes[0]),
            ("trained_buffers", buffers, np.arange(count) * sizes[1]),
            ("losses", losses, np.cumsum(updates) - updates),
        ):
            table[name] = native.address(array) + array.itemsize * begin
        result = self._library.camu_train_units(
            *(self._worker, _place(self._train), native.address(table), count),
            ctypes.addressof(self._stop),
        )
        _check(result)
        if result == native.STOPPED:
            raise CancelledError
        means = mean_losses(updates, losses)
        return [
            Trained(Weights.owning(own, its, self._layout), loss, given.kept(number))
            for number, (own, its, loss) in enumerate(zip(parameters, buffers, means, strict=True))
        ]

    def evaluate(self, weights: Weights, span: slice, outputs: bool = False) -> Tested:
        if outputs and self._make_outputs:  # the library gives none: torch's layers do
            self._outputs = self._outputs or self._make_outputs()
            return self._outputs.evaluate(weights, span, outputs)
        right, loss = ctypes.c_int64(), ctypes.c_double()
        self._library.camu_evaluate(
            *(self._worker, _place(self._test), span.start, span.stop - span.start),
            *(weights.parameters.ctypes.data, weights.buffers.ctypes.data),
            *(ctypes.addressof(right), ctypes.addressof(loss)),
        )
        return Tested(right.value, loss.value)

    def full_pass(
        self, weights: Weights, parts: Sequence[DeviceBatch], backward: bool
    ) -> tuple[Float32, float]:
        indices = np.concatenate([part.indices for part in parts])
        sizes = np.array([len(part.indices) for part in parts], dtype=np.int32)
        shares = np.array([part.weight for part in parts])
        batch = native.Batch(*map(native.address, (indices, sizes, shares)), len(parts))
        gradient, loss = np.zeros_like(weights.parameters), ctypes.c_double()
        result = self._library.camu_gradient(
            *(self._worker, _place(self._train), ctypes.addressof(batch)),
            *(weights.parameters.ctypes.data, gradient.ctypes.data if backward else None),
            ctypes.addressof(loss),
        )
        _check(result)
        return gradient, loss.value


def _reference(data: Data | None) -> native.Data | None:
    if data is None:
        return None
    return native.Data(native.address(data.inputs), native.address(data.targets))


def _place(data: native.Data | None) -> int:
    assert data is not None, "the engine was made without these samples"
    return ctypes.addressof(data)


def _check(result: int) -> None:
    if result == native.NO_MEMORY:
        raise MemoryError("there is not enough memory for a step on so many samples")


class _Memory:
    """Blocks of memory for results, which are used again once nobody holds a result in them.

    Otherwise the system would give and take their memory page by page, which takes a twentieth of
    a round of small units.
    """

    KEPT = 4  # blocks

    def __init__(self) -> None:
        self._blocks: list[Float32] = []

    def take(self, rows: int, columns: int) -> Float32:
        """An array (rows, columns) whose numbers are not set."""
        for block in self._blocks:
            # The list, this loop and the call refer to it; whoever has a view of it does, too.
            if block.shape[1] == columns and len(block) >= rows and sys.getrefcount(block) == 3:
                return block[:rows]
        block = np.empty((rows, columns), dtype=np.float32)
        self._blocks = [*self._blocks[1 - self.KEPT :], block]
        return block[:]


def provenance(config: Config) -> Provenance:
    """What decides the bits of an engine for this configuration on this machine."""
    model, device = seeded_cnn(config), choose_device(config.machine.device)
    wanted, how = config.machine.kernel, (task_of(config), Method.of(config.training))
    found = None if model is None else find_kernels(wanted, model, device, *how)
    if found is not None:
        return native_provenance(found[1])
    from camu.learning.torch_setup import torch_provenance  # torch takes long to load

    return torch_provenance(device, wanted)


def choose_device(name: str) -> str:
    """Where to compute, "cpu" or "cuda"; a graphics card is used only if it is asked for."""
    if name not in ("cpu", "cuda"):
        raise InputError(f'device: {name!r} is unknown; use "cpu" or "cuda".')
    if name == "cuda" and not _has_graphics_card():
        raise InputError('device: "cuda" was asked for, but torch finds no such device; use "cpu".')
    return name


def _has_graphics_card() -> bool:
    import torch  # takes long to load

    return torch.cuda.is_available()


# A larger difference cannot be rounding error.
TOLERANCE = 1e-3
_SAMPLES = 16
_NOTES = "kernel-checks.json"
_MOST_NOTES = 100


@cache
def trouble(cnn: CNN, instructions: str) -> str | None:
    """Why the kernels cannot be trusted on this machine; None if they can."""
    key = _key(cnn, instructions)
    notes = _read_notes()
    if key in notes:
        return None
    error = _gradient_error(cnn, instructions)
    if not error <= TOLERANCE:
        return f"their gradient differs from the right one by {error:.1g}"
    _write_notes([*notes, key])
    return None


def _key(cnn: CNN, instructions: str) -> str:
    """Everything that a comparison depends on."""
    library = hashlib.sha256(native.LIBRARY.read_bytes()).hexdigest()
    machine = (platform.node(), platform.release(), version("numpy"))
    text = repr((library, cnn, instructions, machine))
    return hashlib.sha256(text.encode()).hexdigest()


def _read_notes() -> list[str]:
    """The comparisons that went well; none if there is no such file, or if it is damaged."""
    try:
        found = json.loads((cache_root() / _NOTES).read_text())
    except (OSError, ValueError, RecursionError):
        return []
    return [note for note in found if isinstance(note, str)] if isinstance(found, list) else []


def _write_notes(notes: list[str]) -> None:
    with contextlib.suppress(CamuError):  # without a note it is compared again next time
        write_json(cache_root() / _NOTES, notes[-_MOST_NOTES:])


def _gradient_error(cnn: CNN, instructions: str) -> float:
    """The largest difference to the gradient in numpy, relative to its largest entry."""
    generator = derive(0, "kernel-check").numpy()
    images = generator.integers(0, 256, (_SAMPLES, *cnn.image_shape), dtype=np.uint8)
    labels = generator.integers(0, cnn.classes, _SAMPLES)
    start = cnn.initial_weights(derive(0, "kernel-check"))
    expected = reference_gradient(cnn, start, images, labels)
    data = Data(images, labels)
    kernel = NativeKernel(cnn, instructions, Optimiser(0.1), data, None, ctypes.c_int32(0))
    found, _ = kernel.full_pass(start, [DeviceBatch(0, np.arange(_SAMPLES), 1.0)], True)
    return float(np.abs(found - expected).max() / np.abs(expected).max())
