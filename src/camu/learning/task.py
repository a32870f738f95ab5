"""What is learned: from which inputs, towards which targets, by which loss, judged by what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from camu.arrays import AnyArray
from camu.config import Config
from camu.data import DatasetSpec, dataset_spec
from camu.data.catalog import Inputs, Target
from camu.errors import InputError
from camu.learning.catalog import check_model, usual_loss
from camu.learning.metrics import Metric, find_metric
from camu.plugins import is_plugin

# The targets of each loss.
LOSSES: dict[str, tuple[Target, ...]] = {
    "cross-entropy": ("classes", "next-token"),
    "binary": ("classes",),
    "hinge": ("classes",),
    "squared": ("numbers",),
    "huber": ("numbers",),
}
_USUAL_LOSS: dict[Target, str] = {
    "classes": "cross-entropy",
    "next-token": "cross-entropy",
    "numbers": "squared",
}
_USUAL_METRICS: dict[Target, tuple[str, ...]] = {
    "classes": ("accuracy",),
    "next-token": ("accuracy", "perplexity"),
    "numbers": ("rmse", "r2"),
}


@dataclass(frozen=True)
class Task:
    """A task, without its data; the default is telling images apart."""

    inputs: Inputs = "images"
    target: Target = "classes"
    outputs: int = 0  # numbers that a model gives per sample, or per place of a text; 0: not known
    vocabulary: int = 0
    loss: str = "cross-entropy"
    metrics: tuple[Metric, ...] = (Metric("accuracy"),)

    @property
    def score(self) -> Metric:
        """The metric that decides which model is better."""
        return self.metrics[0]

    @property
    def native(self) -> bool:
        """Whether the compiled kernels know its loss and its inputs."""
        return self.inputs == "images" and self.loss == "cross-entropy"

    def fits(self, inputs: AnyArray, targets: AnyArray) -> bool:
        """Whether arrays have the types of this task."""
        own = _kinds(inputs, targets)
        return own == (self.inputs, self.target)

    def model_arguments(self) -> dict[str, Any]:
        """What models get besides the shape of a sample and the number of outputs."""
        return {"vocabulary": self.vocabulary} if self.inputs == "tokens" else {}


def task_of(config: Config) -> Task:
    """The configured task; a loss or a metric that does not fit the targets is refused."""
    spec, training = dataset_spec(config.data), config.training
    loss = training.loss
    if loss == "auto":
        loss = usual_loss(training.model, _USUAL_LOSS[spec.target])
    names = training.metrics or _USUAL_METRICS[spec.target]
    metrics = tuple(map(find_metric, dict.fromkeys(names)))
    check_model(training.model, spec, config.data.dataset, loss)
    _check(spec, config.data.dataset, loss, metrics)
    if config.run.target is not None:
        metrics[0].check_target(config.run.target, "run.target =")
    single = loss == "binary" or (loss == "hinge" and spec.classes == 2)
    outputs = 1 if single else spec.outputs
    return Task(spec.inputs, spec.target, outputs, spec.vocabulary, loss, metrics)


def _check(spec: DatasetSpec, dataset: str, loss: str, metrics: tuple[Metric, ...]) -> None:
    """Refuse what does not fit the targets of a data set."""
    about = {
        "classes": f"{spec.classes} classes",
        "numbers": "one number per sample"
        if spec.width == 1
        else f"{spec.width} numbers per sample",
        "next-token": "the next token",
    }
    holds = f"the targets of data.dataset = {dataset} are {about[spec.target]}"
    if not is_plugin(loss) and spec.target not in LOSSES[loss]:
        fitting = [name for name, targets in LOSSES.items() if spec.target in targets]
        raise InputError(
            f"training.loss = {loss}: {holds}; use {' or '.join(fitting)}, or leave it out"
        )
    if loss == "binary" and spec.classes != 2:
        raise InputError(f"training.loss = binary: {holds}, and it is for 2; use cross-entropy")
    for metric in metrics:
        if spec.target not in metric.targets:
            usual = ", ".join(_USUAL_METRICS[spec.target])
            raise InputError(f"training.metrics: {metric.name}: {holds}; use for example {usual}")
        if (top := metric.top) is not None and top >= spec.classes:
            raise InputError(
                f"training.metrics: {metric.name}: {holds}, so that it would always be 100 %; use "
                "a smaller number"
            )
        if metric.name == "perplexity" and loss != "cross-entropy":
            raise InputError(
                f"training.metrics: perplexity is e to the cross-entropy, and training.loss = "
                f"{loss}; leave it out, or set training.loss = cross-entropy"
            )


def task_of_arrays(inputs: AnyArray, targets: AnyArray) -> Task:
    """The usual task of some arrays, for engines that are made without a configuration."""
    kind, target = _kinds(inputs, targets)
    metrics = tuple(map(find_metric, _USUAL_METRICS[target]))
    return Task(kind, target, 0, 0, _USUAL_LOSS[target], metrics)


def _kinds(inputs: AnyArray, targets: AnyArray) -> tuple[Inputs, Target]:
    """What arrays are, by their types and shapes."""
    kind: Inputs = "numbers"
    if inputs.dtype == np.uint8:
        kind = "images"
    elif np.issubdtype(inputs.dtype, np.integer):
        kind = "tokens"
    if np.issubdtype(targets.dtype, np.floating):
        return kind, "numbers"
    return kind, "classes" if targets.ndim == 1 else "next-token"
