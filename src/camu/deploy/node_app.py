"""The Flower ClientApp: a node reports on its devices, and trains them when asked."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from camu import __version__
from camu.arrays import Labels
from camu.config import Config
from camu.data import Federation, dataset_spec, federate
from camu.deploy.array_records import Refusal, parcel
from camu.deploy.deployment import Deployment, check_allowed
from camu.deploy.messages import (
    DeviceReport,
    Report,
    Task,
    read_task,
    write_problem,
    write_report,
    write_result,
)
from camu.deploy.node_data import (
    Measured,
    UnfitData,
    device_names,
    find_meter,
    measure,
    noisy_counts,
    numbers_of,
    read_own,
    unfit,
)
from camu.deploy.node_privacy import Account, LimitReached
from camu.deploy.node_secure import SecureSums, Train, check_open
from camu.deploy.node_state import OptimiserStates
from camu.deploy.secure_keys import read_peers, signer
from camu.deploy.secure_messages import ANSWERS, Answered, Asked, detach
from camu.deploy.secure_sum import MaskError, Ring
from camu.errors import CamuError, InputError
from camu.learning.configured import model_layout
from camu.learning.engine import Engine, Samples
from camu.learning.job import Job, Trained
from camu.learning.kernel import BATCHED
from camu.learning.native_kernel import provenance
from camu.learning.weights import Weights
from camu.world import World, build_world, with_data

log = logging.getLogger(__name__)

app = ClientApp()

UNFIT = "its data do not fit the run; the log of the node says why"
SPENT = "the limit of epsilon that its owner has set allows no more; the log of the node has both"
MEASURE_SECONDS = 20.0  # about as long as a node measures all its devices
Indices = list[npt.NDArray[np.int64]]  # of each device's samples


@app.query()
def query(message: Message, context: Context) -> Message:
    """Label histograms and measured compute time of the node's devices."""
    return _reply("query", message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local updates from the received states, on the node's own data."""
    return _reply("train", message, context)


def _reply(kind: str, message: Message, context: Context) -> Message:
    content = answer(kind, message.content, context.run_config, context.node_config)
    return Message(content, reply_to=message)


def answer(
    kind: str, content: RecordDict, run: Mapping[str, Any], table: Mapping[str, Any]
) -> RecordDict:
    """The answer to a message: `run` is the table of its run, and `table` that of the node."""
    if kind == "query":
        return write_report(answer_query(run, table))
    if kind != "train":
        raise InputError(f"a message of the kind {kind}: nodes answer query and train only")
    node = _node(run, table)
    if (asked := detach(content)) is not None:
        return node.answer_secure(asked, content)
    task, starts = read_task(content, model_layout(node.config))
    try:
        check_open(node.config, task)
        return write_result(task, node.train(task, starts))
    except (LimitReached, UnfitData, MaskError) as error:
        log.error("%s", error)
        return write_problem(task, for_server(error))


def answer_query(run: Mapping[str, Any], table: Mapping[str, Any]) -> Report:
    """The node's report, or the sentence why it cannot take part."""
    try:
        return _node(run, table).report()
    except CamuError as error:
        log.error("%s", error)
        return Report((), problem=for_server(error))


def for_server(error: Exception) -> str:
    """What the server is told of an error; the node's log has all of it.

    What data are, and which files there are, would tell what noise on label counts hides; an
    epsilon would tell how many samples there are.
    """
    if isinstance(error, UnfitData):
        return UNFIT
    if isinstance(error, LimitReached):
        return SPENT
    known = isinstance(error, CamuError | Refusal)
    return str(error)[:500] if known else f"an error of the kind {type(error).__name__}"


def _node(run: Mapping[str, Any], table: Mapping[str, Any]) -> Node:
    return _kept_node(tuple(run.items()), tuple(table.items()))


@lru_cache(maxsize=8)
def _kept_node(run: tuple[tuple[str, Any], ...], node: tuple[tuple[str, Any], ...]) -> Node:
    """The node of a run, which a process keeps with its data and its engine.

    On machines a process is one node; in Flower's simulator it is several in turn.
    """
    deployment, options = Deployment.from_run_config(dict(run)), dict(node)
    config = deployment.config
    if deployment.shape and "data" in options:  # the run's own data set is not here
        config = config.replace({"data.dataset": deployment.shape, "data.directory": None})
    # Flower's simulator, where all is on one machine, has no such list.
    if "allow" in options:
        check_allowed(config, str(options["allow"]).split(","))
    with unfit():  # this reads what the data set is
        alone = provenance(config).kernel == BATCHED  # units train alone here
    if alone:
        config = config.replace({"machine.kernel": "torch"})
    return Node.of(config, options, deployment.measured, deployment.identity)


class _Held(NamedTuple):
    """What a node keeps between tasks: the samples of these devices by number, and an engine."""

    names: Mapping[int, str]
    train: Samples
    indices: Indices
    engine: Engine


@dataclass(frozen=True)
class Node:
    """A node: it holds a part of a trial's data set, or devices with their own data."""

    config: Config
    measured: bool = False  # whether the run asks for times and joules
    joules: str = ""  # the owner's meter, module:function
    partition: int | None = None
    partitions: int = 1
    devices: tuple[str, ...] = ()
    data: str = ""
    snr_db: Mapping[str, float] = field(default_factory=dict)
    epsilon: float | None = None  # of the noise on label counts; None: exact counts leave the node
    secret: str = ""  # file that the noise is drawn from
    state: str = ""  # directory of what the node keeps between rounds
    run: str = ""  # what the run is called there
    privacy_limit: float | None = None  # of epsilon, which the owner allows
    key: str = ""  # file of the node's private key, with which it signs
    peers: str = ""  # directory with the public keys of the nodes that its owner knows

    def answer_secure(self, asked: Sequence[Asked], content: RecordDict) -> RecordDict:
        """The answers to steps of secure sums."""

        @cache
        def train() -> tuple[Task, Sequence[Weights], Sequence[Trained]]:
            task, starts = read_task(content, model_layout(self.config))
            return task, starts, self.train(task, starts)

        found = [self._step(each, train) for each in asked]
        vectors = [vector.view(np.float32) for _, vector in found if vector is not None]
        return parcel(ANSWERS.dump_json(tuple(head for head, _ in found)), vectors)

    def _step(self, asked: Asked, train: Train) -> tuple[Answered, Ring | None]:
        try:
            return self._sums.answer(asked, train)
        except (CamuError, Refusal) as error:
            log.error("round %d: no part in a secure sum: %s", asked.sum.round + 1, error)
            return Answered(asked.sum.nonce, problem=for_server(error)), None

    @cached_property
    def _sums(self) -> SecureSums:
        if self.config.training.secure_sum == "none":
            raise InputError("the run's configuration has no training.secure_sum")
        name = Report(tuple(DeviceReport(d, (), None) for d in self.devices), self.partition).name
        clip = self.config.training.secure_clip
        return SecureSums(name, clip, signer(self.key), read_peers(self.peers))

    @classmethod
    def of(
        cls, config: Config, node: Mapping[str, Any], measured: bool = False, run: str = ""
    ) -> Node:
        """The node that a node configuration describes."""
        of_run = partial(
            cls,
            config,
            measured,
            str(node.get("joules", "")),
            state=str(node.get("state", "")),
            key=str(node.get("key", "")),
            peers=str(node.get("peers", "")),
            run=run,
            privacy_limit=float(node["privacy-limit"]) if "privacy-limit" in node else None,
        )
        if "data" in node:
            names = device_names(str(node.get("devices", "")))
            return of_run(
                devices=names,
                data=str(node["data"]),
                snr_db=numbers_of(str(node["snr-db"]), names) if "snr-db" in node else {},
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
        return of_run(partition=number, partitions=count)

    def report(self) -> Report:
        """Label histograms and measured compute time of the node's own devices."""
        self._memory.clear()  # the data may have changed since the last run
        if self.partition is None:
            ids = dict(enumerate(self.devices))
            train, indices = self._own(ids, len(ids))
            labels: Labels = self._labels(train[1])
        else:
            train, indices = self._trial()
            ids = self._ids(range(self.partition, len(indices), self.partitions))
            labels = self._federation.dataset.train_labels
        if account := self._account():
            account.check(ids.values())
        classes = dataset_spec(self.config.data).classes
        found = self._measure(train, indices, list(ids))
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
                for k, name in ids.items()
            ),
            self.partition,
            epsilon=self.epsilon,
            version=__version__,
            provenance=asdict(provenance(self.config)),
        )

    def _labels(self, targets: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """What plans count of own samples: classes; samples with other targets are all alike."""
        if dataset_spec(self.config.data).target == "classes":
            return np.asarray(targets, dtype=np.int64)
        return np.zeros(len(np.asarray(targets)), dtype=np.int64)

    def _counts(self, name: str, counts: npt.NDArray[np.int64]) -> tuple[int, ...]:
        """The label counts of a device as they leave the node."""
        exact = tuple(counts.tolist())
        if self.epsilon is None:
            return exact
        return noisy_counts(exact, self.epsilon, Path(self.secret).read_bytes(), name)

    def train(self, task: Task, starts: Sequence[Weights]) -> list[Trained]:
        """The outcome of every job of a task."""
        held = self._held_for(task)
        engine = held.engine
        if account := self._account():
            name, seed = account.seed_of(task, starts, held.train)
            samples = {number: len(own) for number, own in enumerate(held.indices)}
            account.charge(self.config, task, name, samples)
            engine = Engine.from_config(self.config, held.train, held.indices, seed=seed)
        keeps = any(job.states is not None for job in task.jobs)
        states = OptimiserStates.of(self.state, self.run) if keeps else None
        jobs = task.jobs
        if states is not None:
            jobs = tuple(states.ready(job, task.ids, task.round) for job in jobs)
        with engine:
            found = list(engine.iterate(list(starts), jobs, task.round))
        if states is not None:
            found = [
                states.keep(asked, ready, one, task.ids, task.round)
                for asked, ready, one in zip(task.jobs, jobs, found, strict=True)
            ]
        if account:  # losses are exact, and no epsilon covers them
            found = [one._replace(loss=math.nan) for one in found]
        return found

    def _held_for(self, task: Task) -> _Held:
        """Data and engine for a task; those of the task before it, if the devices are the same."""
        mine = {k: name for k, name in task.ids.items() if name in self.devices}
        known = self._memory.get("held")
        if known is None or known.names != mine or len(known.indices) != task.devices:
            self._memory.clear()  # before others are read
            own = self.partition is None
            train, indices = self._own(mine, task.devices) if own else self._trial()
            known = _Held(mine, train, indices, Engine.from_config(self.config, train, indices))
            self._memory["held"] = known
        return known

    @cached_property
    def _memory(self) -> dict[str, _Held]:
        """What is kept between tasks."""
        return {}

    def _account(self) -> Account | None:
        """The account of differential privacy, if the run needs it."""
        own = self.partition is None
        return Account.of(self.config, self.state, self.privacy_limit, self.epsilon, own)

    def _measure(
        self, train: Samples, indices: Indices, numbers: Sequence[int]
    ) -> dict[int, Measured]:
        """Time and joules of one local update of each device on this machine, if asked for."""
        if not (self.measured and numbers):
            return dict.fromkeys(numbers, Measured(None))
        budget = MEASURE_SECONDS / len(numbers)
        meter = find_meter(self.joules)
        with Engine.from_config(self.config, train, indices) as engine:

            def update(number: int) -> None:
                engine.train(engine.initial, [Job((number,), (1.0,))], 0)

            measure(partial(update, numbers[0]), budget)  # warms the process up
            return {k: measure(partial(update, k), budget, meter) for k in numbers}

    def _trial(self) -> tuple[Samples, Indices]:
        """All samples of a trial's data set, and the indices of each device."""
        data, indices = self._federation.dataset, self._federation.indices
        return (data.train_inputs, data.train_targets), [np.asarray(own) for own in indices]

    @cached_property
    def _federation(self) -> Federation:
        """The data set of a trial, dealt to its devices; read once."""
        config = self.config
        with unfit():
            if config.fleet.file is None:
                return federate(config.data, devices=config.fleet.devices, seed=config.run.seed)
            federation = with_data(self._fleet()).federation
        assert federation is not None  # with_data gives one or refuses
        return federation

    def _fleet(self) -> World:
        """The fleet file's world with all its devices: the server asks for every one."""
        return build_world(self.config.replace({"fleet.unreachable": "keep"}))

    def _ids(self, numbers: Sequence[int]) -> dict[int, str]:
        """The names of a trial's devices."""
        if self.config.fleet.file is None:
            return {number: str(number) for number in numbers}
        ids = self._fleet().devices.ids
        return {number: ids[number] for number in numbers}

    def _own(self, names: Mapping[int, str], count: int) -> tuple[Samples, Indices]:
        """The samples of the node's devices one after the other, and the indices of each device."""
        if self.config.data.standardise:
            raise InputError(
                "data.standardise = true: nodes have data of their own, which nobody else sees; "
                "standardise them on the nodes, and leave it out"
            )
        spec = dataset_spec(self.config.data)
        indices = [np.zeros(0, dtype=np.int64)] * count
        inputs, targets, start = [], [], 0
        for number, name in sorted(names.items()):
            with unfit():
                samples, wanted = read_own(self.data, name, spec)
            indices[number] = np.arange(start, start + len(samples), dtype=np.int64)
            inputs.append(samples)
            targets.append(wanted)
            start += len(samples)
        if not inputs:
            raise InputError(f"the task is for devices that are not here ({self.devices[0]}, ...)")
        return (np.concatenate(inputs), np.concatenate(targets)), indices
