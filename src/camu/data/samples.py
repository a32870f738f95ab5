"""Checks that arrays of the user's are images with labels, and puts them into one form.

Images become uint8 (n, height, width) or (n, channels, height, width), labels int64 from 0 without
gaps. Everything that reads data of the user's ends here, so that all of it is checked alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Int64, Labels, UInt8
from camu.data.catalog import Dataset, DatasetSpec
from camu.errors import InputError

_TOGETHER = 4096  # float images that are converted at the same time
_EXACT = 1e-3  # float images nearer to whole steps than this are bytes that were divided by 255
_COLOURS = (1, 3)  # channels that are recognised behind height and width


@dataclass(frozen=True, eq=False)
class Samples:
    """Images and labels as the user gave them, and what to call them in messages."""

    images: Any
    labels: Any
    images_name: str
    labels_name: str


def make_dataset(name: str, train: Samples, test: Samples) -> Dataset:
    """A data set of the user's, after all checks."""
    images, labels, rounded = check_samples(train)
    others, other_labels, others_rounded = check_samples(test)
    shape = images.shape[1:]
    if others.shape[1:] != shape:
        raise InputError(
            f"{test.images_name} are {others.shape[1:]} each, training images {shape}; give all "
            "images the same size and channels"
        )
    present = np.unique(labels)
    classes = 1 + int(present[-1])
    if len(present) < classes:
        first = int(np.flatnonzero(present != np.arange(len(present)))[0])
        raise InputError(
            f"{train.labels_name} go up to {classes - 1}, and no image has label {first}; number "
            "the classes from 0 without gaps, and give each a training image"
        )
    if classes < 2:
        raise InputError(f"{train.labels_name} are all 0; a model needs at least two classes")
    if other_labels.max() >= classes:
        raise InputError(
            f"{test.labels_name} contain {int(other_labels.max())}; training labels end at "
            f"{classes - 1}: remove these images, or train on such ones too"
        )
    spec = DatasetSpec(name, f"your own, {name}", shape, classes, len(images), len(others))
    notes = tuple(
        f"{each.images_name} are floats and were rounded to 8 bits, steps of 1/255"
        for each, lossy in ((train, rounded), (test, others_rounded))
        if lossy
    )
    return Dataset(spec, images, labels, others, other_labels, notes=notes)


def check_samples(samples: Samples) -> tuple[UInt8, Labels, bool]:
    """Images as uint8 (n, height, width) or (n, channels, height, width), and n labels from 0.

    Float images from 0 to 1 are rounded to steps of 1/255; the third value says whether that
    changed them. Channels behind height and width, 1 or 3 of them, are moved in front.
    """
    pictures, rounded = _images(_array(samples.images, samples.images_name), samples.images_name)
    numbers = _array(samples.labels, samples.labels_name)
    if numbers.shape == (len(pictures), 1):
        numbers = numbers[:, 0]
    whole = np.issubdtype(numbers.dtype, np.integer)
    if numbers.shape != (len(pictures),) or not whole or numbers.min() < 0:
        lowest = f", from {numbers.min()}" if whole and numbers.size else ""
        raise InputError(
            f"{samples.labels_name} are {numbers.dtype} of shape {numbers.shape}{lowest}; give one "
            f"whole number from 0 per image, and there are {len(pictures)} images"
        )
    if int(numbers.max()) >= 2**31:
        raise InputError(
            f"{samples.labels_name} contain {numbers.max()}; number the classes from 0 without gaps"
        )
    return pictures, numbers.astype(np.int64), rounded


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} are not an array ({error})") from None
    if array.dtype.hasobject:
        raise InputError(
            f"{name} are an array of objects, as images of different sizes give; make it an array "
            "of numbers"
        )
    return array


def _images(array: npt.NDArray[Any], name: str) -> tuple[UInt8, bool]:
    numeric = array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)
    if not numeric or array.ndim not in (3, 4) or not array.size:
        raise InputError(
            f"{name} are {array.dtype} of shape {array.shape}; give uint8 from 0 to 255 or floats "
            "from 0 to 1, of shape (n, height, width), (n, channels, height, width) or "
            "(n, height, width, 3), n > 0"
        )
    if array.ndim == 4 and array.shape[3] in _COLOURS and array.shape[1] not in _COLOURS:
        array = array.transpose(0, 3, 1, 2)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array), False
    pictures, rounded = np.empty(array.shape, np.uint8), False
    for start in range(0, len(array), _TOGETHER):
        part = array[start : start + _TOGETHER]
        low, high = float(part.min()), float(part.max())  # nan if any is
        if not (low >= 0 and high <= 1):
            raise InputError(
                f"{name} are {array.dtype} with values from {low:g} to {high:g} among images "
                f"{start} to {start + len(part) - 1}; give floats from 0 to 1, or uint8"
            )
        steps = part.astype(np.float32) * 255
        pictures[start : start + _TOGETHER] = np.rint(steps)
        rounded |= bool(np.abs(steps - np.rint(steps)).max() > _EXACT)
    return pictures, rounded


def check_parts(parts: Any, what: str, samples: int) -> tuple[Int64, ...]:
    """Arrays of sample indices, one per device; `what` begins the message of an InputError."""
    try:
        arrays = [np.asarray(part) for part in parts]
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: not a list of arrays, one per device ({error})") from None
    for device, part in enumerate(arrays):
        if part.ndim != 1 or not part.size or not np.issubdtype(part.dtype, np.integer):
            raise InputError(
                f"{what}: device {device} gets {part.dtype} of shape {part.shape}; return "
                "whole numbers of shape (n,), n > 0"
            )
        wrong = part[(part < 0) | (part >= samples)]
        if wrong.size:
            raise InputError(
                f"{what}: device {device} gets sample {wrong[0]}; samples are numbered from 0 "
                f"to {samples - 1}"
            )
    return tuple(part.astype(np.int64) for part in arrays)
