"""The Flower ClientApp: a node reports on its devices, and trains them when asked."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from camu.config import Config
from camu.data import Federation, dataset_spec, federate
from camu.deploy.allowed import check_allowed
from camu.deploy.deployment import Deployment
from camu.deploy.label_noise import noisy_counts
from camu.deploy.measuring import Measured, find_meter, measure
from camu.deploy.messages import Task, read_task, write_report, write_result
from camu.deploy.own_data import device_names, numbers_of, read_own
from camu.deploy.reports import DeviceReport, Report
from camu.errors import CamuError, InputError
from camu.learning.configured import model_layout
from camu.learning.engine import Engine, Samples
from camu.learning.job import Job, Trained
from camu.learning.weights import Weights
from camu.world import World, build_world, with_data

log = logging.getLogger(__name__)

app = ClientApp()

MEASURE_SECONDS = 20.0  # about as long as a node measures all its devices


@app.query()
def query(message: Message, context: Context) -> Message:
    """Label histograms and measured compute time of the node's devices."""
    return Message(write_report(answer_query(context)), reply_to=message)


def answer_query(context: Context) -> Report:
    """The node's report; data that do not fit the run are a sentence in it, and in the log."""
    try:
        return _node(context).report()
    except CamuError as error:
        log.error("%s", error)
        # The server is not told where the data are.
        hidden = str(error).replace(str(context.node_config.get("data", "\0")), "its data")
        return Report((), problem=hidden[:500])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local updates from the received states, on the node's own data."""
    return Message(train_content(message.content, context), reply_to=message)


def train_content(content: RecordDict, context: Context) -> RecordDict:
    """The result of a task."""
    node = _node(context)
    task, states = read_task(content, model_layout(node.config))
    return write_result(task, node.train(task, states))


def _node(context: Context) -> Node:
    deployment = Deployment.from_run_config(context.run_config)
    config = deployment.config
    if deployment.shape and "data" in context.node_config:  # the run's own data set is not here
        config = config.replace({"data.dataset": deployment.shape, "data.directory": None})
    # Flower's simulator, where all is on one machine, has no such list.
    if "allow" in context.node_config:
        check_allowed(config, str(context.node_config["allow"]).split(","))
    return Node.of(config, context.node_config, deployment.measured)


@dataclass(frozen=True)
class Node:
    """A node: it holds a part of a trial's data set, or devices with their own data."""

    config: Config
    partition: int | None = None
    partitions: int = 1
    devices: tuple[str, ...] = ()
    data: str = ""
    snr_db: Mapping[str, float] = field(default_factory=dict)
    joules: str = ""  # the owner's meter, module:function
    measured: bool = False  # whether the run asks for times and joules
    epsilon: float | None = None  # of the noise on label counts; None: exact counts leave the node
    secret: str = ""  # file that the noise is drawn from

    @classmethod
    def of(cls, config: Config, node: Mapping[str, Any], measured: bool = False) -> Node:
        """The node that a node configuration describes."""
        meter = str(node.get("joules", ""))
        if "data" in node:
            names = device_names(str(node.get("devices", "")))
            snr = numbers_of(str(node["snr-db"]), names) if "snr-db" in node else {}
            return cls(
                config,
                devices=names,
                data=str(node["data"]),
                snr_db=snr,
                joules=meter,
                measured=measured,
                epsilon=float(node["epsilon"]) if "epsilon" in node else None,
                secret=str(node.get("secret", "")),
            )
        if "partition-id" not in node or "num-partitions" not in node:
            raise InputError(
                "node config: give devices and data, or for a trial partition-id and num-partitions"
            )
        number, count = int(node["partition-id"]), int(node["num-partitions"])
        if not 0 <= number < count:
            raise InputError(f"node config: partition-id = {number} is not within {count} parts")
        return cls(config, number, count, joules=meter, measured=measured)

    def report(self) -> Report:
        """Label histograms and measured compute time of the node's own devices."""
        if self.partition is None:
            names, numbers = self.devices, list(range(len(self.devices)))
            train, indices = self._own(dict(enumerate(names)), len(names))
        else:
            federation = self._federation()
            numbers = list(range(self.partition, len(federation.indices), self.partitions))
            names = tuple(self._ids(numbers))
            train, indices = _training(federation)
        labels = np.asarray(train[1], dtype=np.int64)
        classes = dataset_spec(self.config.data).classes
        found = self._measure(train, indices, numbers)
        return Report(
            tuple(
                DeviceReport(
                    name,
                    self._counts(name, np.bincount(labels[indices[k]], minlength=classes)),
                    found[k].seconds,
                    self.snr_db.get(name),
                    found[k].joules,
                    found[k].source,
                )
                for name, k in zip(names, numbers, strict=True)
            ),
            self.partition,
            epsilon=self.epsilon,
        )

    def _counts(self, name: str, counts: npt.NDArray[np.int64]) -> tuple[int, ...]:
        """The label counts of a device as they leave the node."""
        exact = tuple(counts.tolist())
        if self.epsilon is None:
            return exact
        return noisy_counts(exact, self.epsilon, Path(self.secret).read_bytes(), name)

    def train(self, task: Task, states: Sequence[Weights]) -> list[Trained]:
        """The outcome of every job of a task."""
        if self.partition is None:
            mine = {k: name for k, name in task.ids.items() if name in self.devices}
            train, indices = self._own(mine, task.devices)
        else:
            train, indices = _training(self._federation())
        with self._engine(train, indices) as engine:
            starts = [states[number] for number in task.starts]
            return list(engine.iterate(starts, task.jobs, task.round))

    def _engine(self, train: Samples, indices: Sequence[npt.NDArray[np.int64]]) -> Engine:
        return Engine.from_config(self.config, train, indices)

    def _measure(
        self, train: Samples, indices: Sequence[npt.NDArray[np.int64]], numbers: Sequence[int]
    ) -> dict[int, Measured]:
        """Time and joules of one local update of each device on this machine, if asked for."""
        if not (self.measured and numbers):
            return dict.fromkeys(numbers, Measured(None))
        budget = MEASURE_SECONDS / len(numbers)
        meter = find_meter(self.joules)
        with self._engine(train, indices) as engine:

            def update(number: int) -> None:
                engine.train(engine.initial, [Job((number,), (1.0,))], 0)

            measure(partial(update, numbers[0]), budget)  # warms the process up
            return {k: measure(partial(update, k), budget, meter) for k in numbers}

    def _federation(self) -> Federation:
        config = self.config
        if config.fleet.file is None:
            return federate(config.data, devices=config.fleet.devices, seed=config.run.seed)
        federation = with_data(self._fleet()).federation
        assert federation is not None  # with_data gives one or refuses
        return federation

    def _fleet(self) -> World:
        """The fleet file's world with all its devices: the server asks for every one."""
        return build_world(self.config.replace({"fleet.unreachable": "keep"}))

    def _ids(self, numbers: Sequence[int]) -> list[str]:
        """The names of a trial's devices."""
        if self.config.fleet.file is None:
            return [str(number) for number in numbers]
        ids = self._fleet().devices.ids
        return [ids[number] for number in numbers]

    def _own(
        self, names: Mapping[int, str], count: int
    ) -> tuple[Samples, list[npt.NDArray[np.int64]]]:
        """The samples of the node's devices one after the other, and the indices of each device."""
        spec = dataset_spec(self.config.data)
        indices = [np.zeros(0, dtype=np.int64)] * count
        images, labels, start = [], [], 0
        for number, name in sorted(names.items()):
            pictures, numbers = read_own(self.data, name, spec)
            indices[number] = np.arange(start, start + len(pictures), dtype=np.int64)
            images.append(pictures)
            labels.append(numbers)
            start += len(pictures)
        if not images:
            raise InputError(f"the task is for devices that are not here ({self.devices[0]}, ...)")
        return (np.concatenate(images), np.concatenate(labels)), indices


def _training(federation: Federation) -> tuple[Samples, list[npt.NDArray[np.int64]]]:
    data = federation.dataset
    return (data.train_images, data.train_labels), [np.asarray(own) for own in federation.indices]
