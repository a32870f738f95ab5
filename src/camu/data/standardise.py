"""Standardisation: less the mean and over the standard deviation of the devices' training data.

Features of a table, channels of series and images, and targets that are numbers are each taken by
themselves. What is constant is only moved to 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from camu.arrays import AnyArray, Float32, Float64, Int64
from camu.data.catalog import Dataset, DatasetSpec, Scaling
from camu.errors import InputError

_TOGETHER = 4096  # samples that are converted at the same time


def standardised(dataset: Dataset, indices: tuple[Int64, ...]) -> Dataset:
    """The data set in units of the samples that the devices hold."""
    spec = dataset.spec
    numbers = standardised_spec(spec)
    held = np.unique(np.concatenate(indices))
    mean, deviation = _moments(dataset.train_inputs, held, spec.inputs == "images")
    scaled = replace(
        dataset,
        spec=numbers,
        train_inputs=_scaled(dataset.train_inputs, mean, deviation).reshape(-1, *numbers.shape),
        test_inputs=_scaled(dataset.test_inputs, mean, deviation).reshape(-1, *numbers.shape),
        scaling=Scaling(mean, deviation),
    )
    if spec.target != "numbers":
        return scaled
    target_mean, unit = _moments(dataset.train_targets, held, whole=False)
    units, means = (", ".join(f"{each:.6g}" for each in own) for own in (unit, target_mean))
    note = (
        "data.standardise: the model says standard deviations of the devices' training targets (1 "
        f"is {units}, 0 stands for {means}), and so does the loss; metrics are in your own units"
    )
    return replace(
        scaled,
        train_targets=_scaled(dataset.train_targets, target_mean, unit),
        test_targets=_scaled(dataset.test_targets, target_mean, unit),
        scaling=Scaling(mean, deviation, target_mean, unit),
        notes=(*dataset.notes, note),
    )


def standardised_spec(spec: DatasetSpec) -> DatasetSpec:
    """What a data set is when it is standardised; tokens are refused."""
    if spec.inputs == "tokens":
        raise InputError(
            f"data.standardise = true: the inputs of data.dataset = {spec.name} are tokens; leave "
            "it out"
        )
    return spec.standardised


def _moments(values: AnyArray, held: Int64, whole: bool) -> tuple[Float64, Float64]:
    """Mean and deviation over some samples, shaped to go with one sample.

    They are taken per feature of rows, per channel of anything else, and over the `whole` of
    images without channels.
    """
    axes = tuple(range(1, values.ndim))
    kept = () if whole and values.ndim == 3 else axes[:1]
    shape = tuple(values.shape[axis] if axis in kept else 1 for axis in axes)
    over = (0, *(axis for axis in axes if axis not in kept))
    count = len(held) * values[0].size / np.prod(shape)
    parts = [held[start : start + _TOGETHER] for start in range(0, len(held), _TOGETHER)]
    mean = sum(values[part].sum(axis=over, dtype=np.float64) for part in parts) / count
    mean = np.asarray(mean).reshape(shape)
    squares = sum(((values[part] - mean) ** 2).sum(axis=over) for part in parts) / count
    deviation = np.sqrt(np.asarray(squares).reshape(shape))
    return mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)


def _scaled(values: AnyArray, mean: Float64, deviation: Float64) -> Float32:
    scaled = np.empty(values.shape, np.float32)
    for start in range(0, len(values), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        scaled[part] = (values[part] - mean) / deviation
    return scaled
