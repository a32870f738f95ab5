"""Evaluation on test samples: all of them by their labels, and once more device by device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.data.catalog import Scaling
from camu.learning.job import Evaluation
from camu.learning.kernel import Data
from camu.learning.metrics import compute
from camu.learning.pool import Work
from camu.learning.task import Task
from camu.learning.weights import Weights

# Fixed, because the order of additions must not depend on the number of workers.
TOGETHER_SAMPLES = 1000
MOST_LOSS = 700.0  # whose exponential is a number

Stream = Callable[[Iterable[Work[Any]]], Iterator[Any]]  # does work on a pool, in order

Spans = list[tuple[int, slice]]  # of a label or a device: samples that are evaluated together


@dataclass(frozen=True, eq=False)
class TestSamples:
    """Test samples for all, and behind them those of each device."""

    data: Data  # for all
    held: Data  # with those of the devices behind
    labels: dict[int, tuple[int, int]]  # where each label begins and ends
    devices: dict[int, tuple[int, int]]  # where each device's begin and end; none: not asked for
    scaling: Scaling | None = None  # of standardised data

    __test__ = False  # no test of pytest's

    @classmethod
    def of(
        cls,
        given: Data | None,
        indices: Sequence[npt.ArrayLike],
        scaling: Scaling | None = None,
    ) -> TestSamples | None:
        """The samples in order; `indices` are those of each device, if they are needed."""
        if given is None:
            return None
        data, labels = _by_label(given)
        if not indices:
            return cls(data, data, labels, {}, scaling)
        own = [np.asarray(one, dtype=np.int64) for one in indices]
        rows = np.concatenate(own)
        held = Data(
            np.concatenate([data.inputs, given.inputs[rows]]),
            np.concatenate([data.targets, given.targets[rows]]),
        )
        ends = len(data.inputs) + np.cumsum([0, *map(len, own)])
        pairs = enumerate(itertools.pairwise(ends.tolist()))
        devices = {device: pair for device, pair in pairs if pair[0] < pair[1]}
        return cls(data, held, labels, devices, scaling)

    @property
    def label_spans(self) -> Spans:
        """What to evaluate for all."""
        return _spans(self.labels)

    @property
    def device_spans(self) -> Spans:
        """What to evaluate for each device."""
        return _spans(self.devices)


def _spans(borders: dict[int, tuple[int, int]]) -> Spans:
    """Each stretch in pieces."""
    return [
        (number, slice(first, min(first + TOGETHER_SAMPLES, end)))
        for number, (start, end) in borders.items()
        for first in range(start, end, TOGETHER_SAMPLES)
    ]


def _by_label(data: Data) -> tuple[Data, dict[int, tuple[int, int]]]:
    """Samples in the order of their labels, and where each label begins and ends.

    Samples whose targets are no classes stay in their order, as if they had one label.
    """
    labels = data.labels
    if labels is None:
        return data, {0: (0, len(data.inputs))}
    order = np.argsort(labels, kind="stable")
    inputs, labels = data.inputs[order], labels[order]
    if inputs.dtype == np.uint8 and inputs.shape[1] == 1:
        # With the stride 0 that one channel has in `Data.of`: torch chooses its code by strides.
        inputs = inputs[:, 0][:, None]
    known, first, count = np.unique(labels, return_index=True, return_counts=True)
    borders = zip(first.tolist(), (first + count).tolist(), strict=True)
    return Data(inputs, labels), dict(zip(known.tolist(), borders, strict=True))


def evaluate(tests: TestSamples, task: Task, stream: Stream, weights: Weights) -> Evaluation:
    """The mean loss and the metrics of a model, and the accuracy of each label."""
    spans = tests.label_spans
    metrics = [metric for metric in task.metrics if metric.needs_outputs]
    work = [
        Work("Evaluating the model", methodcaller("evaluate", weights, span, bool(metrics)))
        for _, span in spans
    ]
    right, loss, outputs = [0] * (max(tests.labels) + 1), 0.0, []
    for (label, _), tested in zip(spans, stream(work), strict=True):
        right[label] += tested.right
        loss += tested.loss
        outputs += [] if tested.outputs is None else [tested.outputs]
    said = np.concatenate(outputs) if outputs else np.empty(0)
    targets = tests.data.targets
    if tests.scaling is not None and metrics:
        said, targets = tests.scaling.in_own_units(said), tests.scaling.in_own_units(targets)
    values = {one.name: compute(one, said, targets) for one in metrics}
    return _evaluation(tests, task, right, loss / len(tests.data.inputs), values)


def _evaluation(
    tests: TestSamples, task: Task, right: list[int], loss: float, values: dict[str, float]
) -> Evaluation:
    """An evaluation from what was counted, by label where the targets are classes."""
    names = {metric.name for metric in task.metrics}
    if "loss" in names:
        values["loss"] = loss
    if "perplexity" in names:
        values["perplexity"] = math.exp(loss) if loss < MOST_LOSS else math.inf
    if task.target == "numbers":
        return Evaluation(None, loss, (), values)
    accuracy = sum(right) / tests.data.targets.size
    if tests.data.labels is None:
        return Evaluation(accuracy, loss, (), values)
    borders = (tests.labels.get(label, (0, 0)) for label in range(len(right)))
    by_label = [
        own / (end - start) if end > start else None
        for own, (start, end) in zip(right, borders, strict=True)
    ]
    return Evaluation(accuracy, loss, tuple(by_label), values)


def evaluate_devices(
    tests: TestSamples, task: Task, stream: Stream, weights: Weights, own: Mapping[int, Weights]
) -> list[tuple[float, float]]:
    """Accuracy and loss of each device on test samples of its own, by its own model if it has one.

    The accuracy is 0 where targets are numbers.
    """
    spans = tests.device_spans
    work = [
        Work("Evaluating devices", methodcaller("evaluate", own.get(device, weights), span))
        for device, span in spans
    ]
    right, loss = dict.fromkeys(tests.devices, 0), dict.fromkeys(tests.devices, 0.0)
    for (device, _), tested in zip(spans, stream(work), strict=True):
        right[device] += tested.right
        loss[device] += tested.loss
    places = tests.data.targets[0].size if task.target == "next-token" else 1
    counts = {device: end - start for device, (start, end) in tests.devices.items()}
    return [(right[k] / (n * places), loss[k] / n) for k, n in counts.items()]
