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
    train, test = (
        _scaled(inputs, mean, deviation) for inputs in (dataset.train_inputs, dataset.test_inputs)
    )
    what = "inputs are"
    targets, others = dataset.train_targets, dataset.test_targets
    scaling = Scaling(mean, deviation)
    if spec.target == "numbers":
        scaling = Scaling(mean, deviation, *_moments(targets, held, whole=False))
        assert scaling.target_mean is not None
        assert scaling.target_deviation is not None
        targets, others = (
            _scaled(each, scaling.target_mean, scaling.target_deviation)
            for each in (targets, others)
        )
        units = ", ".join(f"{unit:.6g}" for unit in scaling.target_deviation.tolist())
        means = ", ".join(f"{unit:.6g}" for unit in scaling.target_mean.tolist())
        what = f"inputs and targets are (an error of 1 is {units} of the data's own; mean {means})"
    note = f"data.standardise: {what} in standard deviations of the devices' training data"
    return replace(
        dataset,
        spec=numbers,
        train_inputs=train.reshape(-1, *numbers.shape),
        train_targets=targets,
        test_inputs=test.reshape(-1, *numbers.shape),
        test_targets=others,
        scaling=scaling,
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
