"""Training on the compiled kernels: which models they take, and how a unit is handed to them."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import Float32, Int64
from camu.data.batches import Schedules
from camu.errors import InputError
from camu.learning import native
from camu.learning.cnn import SeededCNN
from camu.learning.data import Data, DeviceBatch
from camu.learning.job import Trained
from camu.learning.kernel import Kernels, Training
from camu.learning.native_check import trouble
from camu.learning.weights import Layout, Weights

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger(__name__)

# (channels, side) of the images that the library was compiled for.
IMAGES = ((1, 28), (1, 8), (3, 32))
_SHAPES = ("28x28", "8x8", "3x32x32")
MOST_CLASSES = 256
KERNELS = ("auto", "native", "torch")


def native_shape(model: nn.Module | SeededCNN) -> native.Shape | None:
    """What the kernels must be made for, or None for a model that they do not have."""
    if isinstance(model, SeededCNN):
        cnn = model.cnn
    else:
        from camu.learning.models import PaperCNN  # with torch, which made the module

        if type(model) is not PaperCNN:
            return None
        cnn = model.cnn
    channels, height, width = cnn.image_shape
    if height != width or (channels, height) not in IMAGES or cnn.classes > MOST_CLASSES:
        return None
    return native.Shape(channels, height, cnn.kernel, cnn.padding, cnn.normalisation, cnn.classes)


def find_kernels(
    wanted: str, model: nn.Module | SeededCNN, device: str
) -> tuple[native.Shape, str] | None:
    """Shape and instruction set of the compiled kernels to train with; None: torch's layers.

    `wanted` is "auto", "native" or "torch". With "auto", kernels that should be there and are not
    are mentioned once.
    """
    if wanted not in KERNELS:
        raise InputError(f'run.kernel = {wanted!r}: use "auto", "native" or "torch"')
    shape = native_shape(model) if wanted != "torch" else None
    instructions = native.instruction_set() if shape is not None else None
    if shape is None:
        reason = f"they train the built-in CNN on images of {', '.join(_SHAPES)} only"
    elif native.library() is None and native.LIBRARY.exists():
        reason = "they belong to another version of camu or another machine; install camu again"
    elif native.library() is None:
        reason = "camu was installed without them, because no C++ compiler was found"
    elif instructions is None:
        reason = "this processor has no AVX2"
    elif device != "cpu":
        reason = f"they compute on the CPU, and run.device is {device}"
    elif found := trouble(shape, instructions):
        reason = found
    else:
        return shape, instructions
    if wanted == "native":
        raise InputError(f'run.kernel = "native": there are no compiled kernels: {reason}')
    if shape is not None and device == "cpu":
        _mention(reason)
    return None


def native_kernels(
    found: tuple[native.Shape, str], layout: Layout, train: Data | None, test: Data | None
) -> Kernels:
    """The compiled kernels for samples that fit them."""
    shape, instructions = found
    for data in (train, test):
        check_samples(shape, data)
    return Kernels(
        name=f"native {instructions}",
        fused=True,
        whole_devices=shape.norm == "batch",
        make=lambda stop: NativeKernel(
            native.Worker(shape, instructions), layout, train, test, stop
        ),
    )


def check_samples(shape: native.Shape, data: Data | None) -> None:
    """Refuse samples that do not fit the model: the kernels read and write without checks."""
    if data is None:
        return
    images, classes = (shape.channels, shape.side, shape.side), int(data.labels.max()) + 1
    if tuple(data.images.shape[1:]) != images:
        raise InputError(
            f"model: it takes images of shape {images}; these have {tuple(data.images.shape[1:])}."
        )
    if classes > shape.classes:
        raise InputError(
            f"model: it has {shape.classes} classes; the labels need {classes} classes."
        )


@cache
def _mention(reason: str) -> None:
    log.warning("training with torch's layers, not with compiled kernels: %s", reason)


class NativeKernel:
    """A worker of the compiled library, and the data it computes on."""

    def __init__(
        self,
        worker: native.Worker,
        layout: Layout,
        train: Data | None,
        test: Data | None,
        stop: ctypes.c_int32,
    ) -> None:
        self._worker, self._layout, self._stop = worker, layout, stop
        self._train, self._test = _samples(train), _samples(test)

    def train(
        self, trainings: Sequence[Training], schedules: Schedules, go_on: Callable[[], None]
    ) -> list[Trained]:
        assert self._train is not None
        go_on()
        tasks = _tasks(trainings)
        shares = [share for training in trainings for share in training.shares]
        results = self._worker.train(self._train, tasks, shares, schedules, self._stop)
        if results is None:
            raise CancelledError
        return [
            Trained(Weights.owning(parameters, buffers, self._layout), loss)
            for parameters, buffers, loss in results
        ]

    def evaluate(self, weights: Weights, span: slice) -> tuple[int, float]:
        assert self._test is not None
        count = span.stop - span.start
        return self._worker.evaluate(
            self._test, weights.parameters, weights.buffers, span.start, count
        )

    def full_pass(
        self, weights: Weights, parts: Sequence[DeviceBatch], backward: bool
    ) -> tuple[Float32, float]:
        assert self._train is not None
        indices: list[Int64] = [part.indices for part in parts]
        shares = [part.weight for part in parts]
        return self._worker.gradient(self._train, weights.parameters, indices, shares, backward)


def _samples(data: Data | None) -> native.Samples | None:
    if data is None:
        return None
    return native.Samples(data.images, data.labels)


def _float32(array: Float32) -> Float32:
    return np.ascontiguousarray(array, dtype=np.float32)


def _tasks(trainings: Sequence[Training]) -> list[native.Task]:
    """Units that differ in nothing but their members have one task."""
    known: dict[tuple[object, ...], native.Task] = {}
    found = []
    for training in trainings:
        start, job, rate = training.start, training.job, training.rate
        key = id(start), id(job.rule), job.updates, id(job.anchor), id(job.correction), rate
        if key not in known:
            known[key] = _task(training)
        found.append(known[key])
    return found


def _task(training: Training) -> native.Task:
    start, job = training.start, training.job
    return native.Task(
        parameters=start.parameters,
        buffers=start.buffers,
        anchor=start.parameters if job.anchor is None else _float32(job.anchor),
        correction=None if job.correction is None else _float32(job.correction),
        updates=job.updates,
        together=training.together,
        rate=training.rate,
        l2=training.l2,
        proximal=job.rule.proximal,
    )
