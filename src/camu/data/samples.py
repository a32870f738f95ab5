"""Checks arrays of the user's, says what they are, and puts them into one form.

Everything that reads data of the user's ends here, so that all of it is checked alike. Bytes are
images, other whole numbers are tokens, and floats stay as they are. Targets are classes, numbers,
or the next token.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import AnyArray, Int64, Labels
from camu.data.catalog import Dataset, DatasetSpec, Inputs, Target
from camu.data.reading import TargetChoice
from camu.errors import InputError

_TOGETHER = 4096  # samples that are looked at for nan at the same time
_COLOURS = (1, 3)  # channels that are recognised behind height and width
_MOST = 2**31  # classes or tokens
_BINS = 10  # of targets that are numbers
KINDS: dict[Inputs, str] = {
    "images": "images (uint8)",
    "numbers": "numbers (floats)",
    "tokens": "tokens (whole numbers)",
}


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and targets as the user gave them, and what to call them in messages.

    Tokens need no targets (None). `labels` are what partitions count instead of targets, `devices`
    whose samples these are; each is one value per sample.
    """

    inputs: Any
    targets: Any
    inputs_name: str
    targets_name: str
    labels: Any = None
    devices: Any = None


@dataclass(frozen=True, eq=False)
class Checked:
    """Samples in the form that `Dataset` has, and what they are."""

    inputs: AnyArray
    targets: AnyArray
    kind: Inputs
    target: Target
    largest_token: int = 0


def named(where: str, inputs: Any, targets: Any, labels: Any = None) -> Samples:
    """Samples that are called images and labels where they are that."""
    image = getattr(inputs, "dtype", None) == np.uint8
    label = False
    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # refused later
        label = targets is not None and np.asarray(targets).dtype.kind not in "fO"
    return Samples(
        inputs,
        targets,
        f"{where} {'images' if image else 'inputs'}",
        f"{where} {'labels' if label else 'targets'}",
        labels,
    )


def make_dataset(
    name: str, train: Samples, test: Samples, target: TargetChoice = "auto"
) -> Dataset:
    """A data set of the user's, after all checks."""
    one = check_samples(train, target)
    other = check_samples(test, "auto" if train.targets is None else one.target)
    _check_alike(train, one, test, other)
    spec = DatasetSpec(
        name,
        f"your own, {name}",
        one.inputs.shape[1:],
        1,
        len(one.inputs),
        len(other.inputs),
        inputs=one.kind,
        target=one.target,
        width=one.targets.shape[1] if one.target == "numbers" else 1,
        vocabulary=one.largest_token + 1 if one.kind == "tokens" else 0,
    )
    notes: tuple[str, ...] = ()
    data = Dataset(spec, one.inputs, one.targets, other.inputs, other.targets)
    if one.target == "classes":
        data = replace(data, spec=replace(spec, classes=_classes(train, one, test, other)))
        if train.labels is not None:
            raise InputError(
                f"{train.targets_name} are classes, which partitions and clusters count; give no "
                "other labels (data.label_column)"
            )
    else:
        data, note = _labelled(data, train, test)
        notes = (note,)
    return replace(_divided(data, train, test), notes=notes)


def _check_alike(train: Samples, one: Checked, test: Samples, other: Checked) -> None:
    """Refuse test samples of another kind or shape than the training samples."""
    if other.kind != one.kind:
        raise InputError(
            f"{test.inputs_name} are {KINDS[other.kind]}, training inputs {KINDS[one.kind]}; "
            "give both in one type"
        )
    what, shape = ("images" if one.kind == "images" else "inputs"), one.inputs.shape[1:]
    if other.inputs.shape[1:] != shape:
        same = "size and channels" if one.kind == "images" else "shape"
        raise InputError(
            f"{test.inputs_name} are {other.inputs.shape[1:]} each, training {what} {shape}; give "
            f"all {what} the same {same}"
        )
    if other.largest_token > one.largest_token:
        raise InputError(
            f"{test.inputs_name} contain token {other.largest_token}; training tokens end at "
            f"{one.largest_token}: remove these samples, or train on such ones too"
        )
    if one.target == "numbers" and other.targets.shape[1:] != one.targets.shape[1:]:
        raise InputError(
            f"{test.targets_name} are {other.targets.shape[1]} numbers each, training targets "
            f"{one.targets.shape[1]}; give all samples as many"
        )


def _classes(train: Samples, one: Checked, test: Samples, other: Checked) -> int:
    """How many classes there are; refused if training samples lack one, or have only one."""
    what = "image" if one.kind == "images" else "sample"
    present = np.unique(one.targets)
    classes = 1 + int(present[-1])
    if len(present) < classes:
        first = int(np.flatnonzero(present != np.arange(len(present)))[0])
        raise InputError(
            f"{train.targets_name} go up to {classes - 1}, and no {what} has label {first}; number "
            f"the classes from 0 without gaps, and give each a training {what}"
        )
    if classes < 2:
        raise InputError(f"{train.targets_name} are all 0; a model needs at least two classes")
    if other.targets.max() >= classes:
        raise InputError(
            f"{test.targets_name} contain {int(other.targets.max())}; training labels end at "
            f"{classes - 1}: remove these {what}s, or train on such ones too"
        )
    return classes


def check_samples(samples: Samples, target: TargetChoice = "auto") -> Checked:
    """Inputs and targets in the form of `Dataset`; `target` is what the targets shall be.

    Images are uint8 (n, height, width) or (n, channels, height, width), tokens int64 (n, length),
    and numbers floats (n, ...) bit by bit. Channels behind height and width, 1 or 3 of them, are
    moved in front.
    """
    kind, inputs = _inputs(_array(samples.inputs, samples.inputs_name), samples.inputs_name)
    largest = int(inputs.max()) if kind == "tokens" else 0
    if samples.targets is None:
        if kind != "tokens" or target not in ("auto", "next-token"):
            raise InputError(
                f"{samples.targets_name} are missing; only tokens need none, of which the model "
                'predicts the next (data.target = "next-token")'
            )
        if inputs.shape[1] < 2:
            raise InputError(f"{samples.inputs_name} have one token each; give two or more")
        following = np.ascontiguousarray(inputs[:, 1:])
        return Checked(np.ascontiguousarray(inputs[:, :-1]), following, kind, "next-token", largest)
    if target == "next-token":
        raise InputError(
            f'data.target = "next-token": {samples.targets_name} are given; the next tokens are '
            "made of the inputs: leave the targets out"
        )
    given = _array(samples.targets, samples.targets_name)
    floats = np.issubdtype(given.dtype, np.floating)
    if target == "numbers" or (target == "auto" and floats):
        return Checked(inputs, _numbers(given, samples, len(inputs)), kind, "numbers", largest)
    return Checked(inputs, _labels(given, samples, inputs, kind), kind, "classes", largest)


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # of a tensor that has gradients too
        raise InputError(
            f"{name} are not an array ({error}); give all samples the same shape, and pad "
            "sequences to one length"
        ) from None
    if array.dtype.hasobject:
        raise InputError(
            f"{name} are an array of objects, as images of different sizes or sequences of "
            "different length give; make it an array of numbers"
        )
    return array


def _inputs(array: npt.NDArray[Any], name: str) -> tuple[Inputs, AnyArray]:
    """What the inputs are, and the array in the form of that kind."""
    floats, whole = (np.issubdtype(array.dtype, each) for each in (np.floating, np.integer))
    image = array.dtype == np.uint8
    good = array.ndim in (3, 4) if image else array.ndim == 2 if whole else array.ndim > 1
    if not (floats or whole) or not good or not array.size:
        raise InputError(
            f"{name} are {array.dtype} of shape {array.shape}; give uint8 from 0 to 255 as images "
            "(n, height, width), (n, channels, height, width) or (n, height, width, 3), floats "
            "(n, ...) as numbers, or int64 (n, length) as tokens, n > 0"
        )
    if array.ndim == 4 and array.shape[3] in _COLOURS and array.shape[1] not in _COLOURS:
        array = array.transpose(0, 3, 1, 2)
    if image:
        return "images", np.ascontiguousarray(array)
    if whole:
        if not 0 <= array.min() <= array.max() < _MOST:
            raise InputError(
                f"{name} are tokens from {array.min()} to {array.max()}; number them from 0"
            )
        return "tokens", np.ascontiguousarray(array, np.int64)
    _check_finite(array, name)
    kept = np.float32 if array.dtype.itemsize <= 4 else np.float64
    return "numbers", np.ascontiguousarray(array, kept)


def _check_finite(array: npt.NDArray[Any], name: str) -> None:
    """Refuse nan and infinities by the number of their sample."""
    for start in range(0, len(array), _TOGETHER):
        part = array[start : start + _TOGETHER]
        if not (good := np.isfinite(part)).all():
            row = int(np.flatnonzero(~good.reshape(len(part), -1).all(axis=1))[0])
            raise InputError(
                f"{name}: sample {start + row} contains {part[row][~good[row]].flat[0]}; replace "
                "or remove what is missing (samples are counted from 0)"
            )


def _labels(numbers: npt.NDArray[Any], samples: Samples, inputs: AnyArray, kind: Inputs) -> Labels:
    """One class per sample, as int64."""
    if numbers.shape == (len(inputs), 1):
        numbers = numbers[:, 0]
    whole = np.issubdtype(numbers.dtype, np.integer)
    if numbers.shape != (len(inputs),) or not whole or numbers.min() < 0:
        lowest = f", from {numbers.min()}" if whole and numbers.size else ""
        what = "image" if kind == "images" else "sample"
        raise InputError(
            f"{samples.targets_name} are {numbers.dtype} of shape {numbers.shape}{lowest}; give "
            f"one whole number from 0 per {what}, and there are {len(inputs)} {what}s"
        )
    if int(numbers.max()) >= _MOST:
        raise InputError(
            f"{samples.targets_name} contain {numbers.max()}; number the classes from 0 without "
            "gaps"
        )
    return numbers.astype(np.int64)


def _numbers(given: npt.NDArray[Any], samples: Samples, count: int) -> AnyArray:
    """Targets (n, width) as float32."""
    numeric = np.issubdtype(given.dtype, np.floating) or np.issubdtype(given.dtype, np.integer)
    if not numeric or given.ndim not in (1, 2) or len(given) != count or not given.size:
        raise InputError(
            f"{samples.targets_name} are {given.dtype} of shape {given.shape}; give one number, or "
            f"one row of numbers, per sample, and there are {count} samples"
        )
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(given.reshape(count, -1), np.float32)
    _check_finite(numbers, samples.targets_name)
    return numbers


def quantile_bins(train: AnyArray, test: AnyArray) -> tuple[Int64, Int64, int]:
    """The bin of each number, and how many bins there are.

    The bins have equally many training numbers, as far as these differ; each bin has at least one.
    """
    cuts = np.quantile(train, np.arange(1, _BINS) / _BINS, method="higher")
    edges = np.unique(cuts)
    edges = edges[edges > train.min()]
    one, other = (np.searchsorted(edges, values, side="right") for values in (train, test))
    return one.astype(np.int64), other.astype(np.int64), len(edges) + 1


def _labelled(data: Dataset, train: Samples, test: Samples) -> tuple[Dataset, str]:
    """A data set whose targets are no classes, with labels to count, and a sentence on them."""
    if train.labels is not None:
        one, other, classes = _named_labels(train, test, data)
        note = f"partitions and clusters count the {classes} labels that are given"
    elif data.spec.target == "numbers":
        numbers = data.train_targets[:, 0], data.test_targets[:, 0]
        one, other, classes = quantile_bins(*numbers)
        first = " the first of" if data.spec.width > 1 else ""
        note = (
            f"targets are numbers: partitions and clusters count {classes} quantile "
            f"bin{'s' if classes > 1 else ''} of{first} them as labels"
        )
    else:
        one, other = (
            np.zeros(len(each), np.int64) for each in (data.train_inputs, data.test_inputs)
        )
        classes = 1
        note = (
            "targets are the next token: all samples have one label, so that clusters go by links "
            "alone, unless data.label_column names labels"
        )
    spec = replace(data.spec, classes=classes)
    return replace(data, spec=spec, labels=(one, other)), f"data.dataset = {spec.name}: {note}"


def _named_labels(train: Samples, test: Samples, data: Dataset) -> tuple[Int64, Int64, int]:
    """The labels that the user names, numbered in their order."""
    one = _column(train.labels, len(data.train_inputs), f"{train.inputs_name}: labels")
    other = _column(test.labels, len(data.test_inputs), f"{test.inputs_name}: labels")
    known, numbers = np.unique(one, return_inverse=True)
    places = np.minimum(np.searchsorted(known, other), len(known) - 1)
    if (known[places] != other).any():
        strange = other[known[places] != other][0]
        raise InputError(
            f"{test.inputs_name}: label {strange} has no training sample; remove these samples, or "
            "train on such ones too"
        )
    return numbers.astype(np.int64), places.astype(np.int64), len(known)


def _column(values: Any, count: int, name: str) -> npt.NDArray[Any]:
    """One whole number or word per sample."""
    column = _array(values, name)
    if column.shape == (count, 1):
        column = column[:, 0]
    if column.shape != (count,) or column.dtype.kind not in "iuU":
        raise InputError(
            f"{name} are {column.dtype} of shape {column.shape}; give one whole number or word per "
            f"sample, and there are {count} samples"
        )
    return column


def _divided(data: Dataset, train: Samples, test: Samples) -> Dataset:
    """The data set with the samples of each device, if they are named."""
    if train.devices is None:
        return data
    owners = _column(train.devices, len(data.train_inputs), f"{train.inputs_name}: devices")
    names, order = np.unique(owners), np.argsort(owners, kind="stable")
    parts = np.split(order, np.searchsorted(owners[order], names[1:]))
    if test.devices is None:
        return replace(data, parts=tuple(parts))
    others = _column(test.devices, len(data.test_inputs), f"{test.inputs_name}: devices")
    own = tuple(np.flatnonzero(others == name) for name in names)
    return replace(data, parts=tuple(parts), test_parts=own)


def check_parts(
    parts: Any, what: str, samples: int, devices: int | None = None
) -> tuple[Int64, ...]:
    """Arrays of sample indices, one per device; `what` begins the message of an InputError.

    With `devices` they are test samples: that many arrays, some of which may be empty.
    """
    try:
        arrays = [np.asarray(part) for part in parts]
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: not a list of arrays, one per device ({error})") from None
    if devices is not None and len(arrays) != devices:
        raise InputError(f"{what}: {len(arrays)} arrays for {devices} devices; give one per device")
    for device, part in enumerate(arrays):
        if devices is not None and part.ndim == 1 and not part.size:
            continue
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
