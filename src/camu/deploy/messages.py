"""Messages between server and nodes: queries, reports, tasks and results, checked on arrival.

Arrays travel as float32, everything else as JSON, all of a message in one record. Nothing that
arrives is trusted: sizes are compared before anything is decoded, and nothing is unpickled.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from flwr.app import RecordDict
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from camu.arrays import Float32, Mask
from camu.deploy.array_records import Refusal, arrays_in, head_text, parcel
from camu.learning.job import Job, LocalRule, OwnTraining, Trained
from camu.learning.weights import Layout, Weights

OVERHEAD_BYTES = 100_000  # of a reply: Flower's records and calls, or the text of an error
MOST = 100_000  # devices of a node, and labels
# No conversions (a truth value is not a number), no nan.
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
# What an optimiser keeps stays at its node: with the server, this stands for it.
AT_NODE = np.zeros(0, dtype=np.float32)

Count = Annotated[int, Field(ge=0, le=10**9)]
Nonce = Annotated[str, Field(max_length=64)]
Value = TypeVar("Value")


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("use characters that can be printed")
    return text


ShortText = Annotated[str, Field(max_length=100), AfterValidator(_check_printable)]


@checked(frozen=True, config=STRICT)
class DeviceReport:
    """One device: its samples of each label, and its speed."""

    id: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_printable)]
    label_counts: Annotated[tuple[Count, ...], Field(max_length=MOST)]
    # Measured, for one local update; None: the run did not ask for it.
    update_seconds: Annotated[float, Field(ge=1e-9, lt=1e6)] | None
    snr_db: Annotated[float, Field(ge=-300, le=300)] | None = None  # at the base station, if known
    # Measured joules of one local update, and by what; None: the configured energy model holds.
    update_joules: Annotated[float, Field(gt=0, lt=1e9)] | None = None
    joules_source: Literal["model", "rapl", "meter"] = "model"


@checked(frozen=True, config=STRICT)
class Report:
    """A node: its devices, and in a trial the number of its part of the data."""

    devices: Annotated[tuple[DeviceReport, ...], Field(max_length=MOST)]
    partition: Annotated[int, Field(ge=0, le=10**6)] | None = None
    key: str = ""  # of the node, as the SuperLink knows it: set by the server
    epsilon: Annotated[float, Field(gt=0, le=1e6)] | None = None  # of noise on the counts
    problem: Annotated[str, Field(max_length=500)] = ""  # why the node cannot take part
    version: ShortText = ""  # of camu on the node
    # What decides the bits of its training: kernel, device, compiler, torch ...
    provenance: Annotated[dict[ShortText, ShortText], Field(max_length=20)] = field(
        default_factory=dict
    )

    @property
    def name(self) -> str:
        """The node's name; it stays the same after a restart, unlike Flower's node id."""
        if self.partition is not None:
            return f"partition {self.partition}"
        return ", ".join(device.id for device in self.devices)


@dataclass(frozen=True)
class Task:
    """The jobs of one node in a round (granularity `device`: in one local update of it)."""

    round: int
    devices: int  # K, so that all nodes number the devices alike
    ids: Mapping[int, str]  # names of the devices by number
    jobs: tuple[Job, ...]
    # Repeated in the result, so that an old one cannot be sent again.
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def first(self) -> int:
        """The number of the first local update."""
        return self.jobs[0].first if self.jobs else 0


@checked(frozen=True, config=STRICT)
class _OwnHead:
    """What a unit trains for itself, as JSON."""

    start: Count
    updates: Count
    proximal: float
    only: Count | None
    first: bool


@checked(frozen=True, config=STRICT)
class _JobHead:
    """A job as JSON; states and vectors are arrays of the message, named by their numbers.

    `keeps` says of each member whether its optimiser has kept something at the node; None: it
    begins anew in each round.
    """

    members: tuple[Count, ...]
    weights: tuple[float, ...]
    updates: Count
    first: Count
    all_updates: Count
    rule: LocalRule
    start: Count
    correction: Count | None
    anchor: Count | None
    keeps: tuple[bool, ...] | None = None
    own: _OwnHead | None = None


@checked(frozen=True, config=STRICT)
class _TaskHead:
    """A task as JSON."""

    round: Count
    devices: Count
    ids: dict[Count, str]
    jobs: tuple[_JobHead, ...]
    nonce: Nonce


@checked(frozen=True, config=STRICT)
class _ResultHead:
    """The JSON of a result: the task that it belongs to, and the training loss of each job."""

    round: Count
    first: Count
    losses: tuple[float | None, ...]  # None: not finite
    nonce: Nonce
    anew: tuple[Count, ...] = ()  # devices whose kept optimisers were not found
    problem: Annotated[str, Field(max_length=500)] = ""  # why the node does not train


REPORT, REPORTS = TypeAdapter(Report), TypeAdapter(tuple[Report, ...])
_TASK_HEAD, _RESULT_HEAD = TypeAdapter(_TaskHead), TypeAdapter(_ResultHead)
# Fields of a job that are JSON.
_PLAIN = ("members", "weights", "updates", "first", "all_updates", "rule")


def parse(kind: TypeAdapter[Value], text: str | bytes, what: str) -> Value:
    """The value that a JSON text describes; a Refusal names the first key that is wrong."""
    try:
        return kind.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refusal(f"{what}: {where + ': ' if where else ''}{first['msg']}") from None


def query_content() -> RecordDict:
    """The question who a node is."""
    return parcel(b"{}")


def largest_report(devices: int, classes: int) -> int:
    """The bytes that the report of a node with so many devices can have."""
    return OVERHEAD_BYTES + devices * (1000 + 12 * classes)


def write_report(report: Report) -> RecordDict:
    """A node's answer to a query."""
    return parcel(REPORT.dump_json(report))


def read_report(content: RecordDict, classes: int) -> Report:
    """The report of a node, on the server, for a data set of so many classes."""
    return check_report(parse(REPORT, head_text(content), "its report"), classes)


def check_report(report: Report, classes: int) -> Report:
    """The report itself; a Refusal where it does not fit a data set of so many classes."""
    if report.problem:
        raise Refusal(f"it cannot take part: {report.problem}")
    if not report.devices and report.partition is None:
        raise Refusal("its report names no device")
    if len({device.id for device in report.devices}) < len(report.devices):
        raise Refusal("its report names a device twice")
    for device in report.devices:
        if len(device.label_counts) != classes or not sum(device.label_counts):
            raise Refusal(
                f"device {device.id}: label_counts must be {classes} whole numbers, not all 0"
            )
    return report


def write_task(task: Task, starts: Sequence[Weights]) -> RecordDict:
    """A task with the state that each of its jobs starts from."""
    states: list[Weights] = []  # each is sent once, however many jobs use it
    vectors: list[Float32] = []
    jobs = tuple(
        _JobHead(
            **{name: getattr(job, name) for name in _PLAIN},
            start=_place(start, states),
            correction=_place(job.correction, vectors),
            anchor=_place(job.anchor, vectors),
            keeps=None if job.states is None else tuple(one is not None for one in job.states),
            own=_own_head(job.own, vectors),
        )
        for job, start in zip(task.jobs, starts, strict=True)
    )
    head = _TaskHead(task.round, task.devices, dict(task.ids), jobs, task.nonce)
    parts = [part for state in states for part in (state.parameters, state.buffers)]
    return parcel(_TASK_HEAD.dump_json(head), [*parts, *vectors])


def read_task(content: RecordDict, layout: Layout) -> tuple[Task, list[Weights]]:
    """The task and the state that each of its jobs starts from, on a node."""
    head = parse(_TASK_HEAD, head_text(content), "the task")
    starts = 1 + max((job.start for job in head.jobs), default=-1)
    others = 1 + max((n for job in head.jobs for n in _vectors_of(job)), default=-1)
    if starts > len(head.jobs) or others > 4 * len(head.jobs):
        raise Refusal("the task: jobs: their arrays are not numbered one after the other")
    sizes = layout.parameter_count, layout.buffer_count
    parts = arrays_in(content, [*sizes * starts, *[sizes[0]] * others])
    states = [Weights(parts[2 * n], parts[2 * n + 1], layout) for n in range(starts)]
    vectors: dict[int | None, Float32 | None] = dict(enumerate(parts[2 * starts :]))
    vectors[None] = None
    jobs = tuple(
        Job(
            **{name: getattr(job, name) for name in _PLAIN},
            correction=vectors[job.correction],
            anchor=vectors[job.anchor],
            states=None if job.keeps is None else _marks(job.keeps),
            own=None if job.own is None else _own_training(job.own, vectors),
        )
        for job in head.jobs
    )
    task = Task(head.round, head.devices, head.ids, jobs, head.nonce)
    return task, [states[job.start] for job in head.jobs]


def write_result(task: Task, results: Sequence[Trained]) -> RecordDict:
    """A node's result: the trained state and the loss of each job, in the order of the jobs.

    Frozen parameters are not sent, because the server has them.
    """
    losses = tuple(r.loss if math.isfinite(r.loss) else None for r in results)
    pairs = [
        pair
        for job, r in zip(task.jobs, results, strict=False)
        for pair in zip(job.members, r.states, strict=False)
    ]
    anew = tuple(device for device, state in pairs if state is None)
    head = _ResultHead(task.round, task.first, losses, task.nonce, anew)
    arrays: list[Float32] = []
    for result in results:
        state = result.weights
        arrays += state.parameters, state.buffers[state.layout.frozen_count :]
        arrays += () if result.own is None else (result.own,)
    return parcel(_RESULT_HEAD.dump_json(head), arrays)


def write_problem(task: Task, problem: str) -> RecordDict:
    """A node's answer where it does not train."""
    head = _ResultHead(task.round, task.first, (), task.nonce, problem=problem[:500])
    return parcel(_RESULT_HEAD.dump_json(head))


def largest_result(task: Task, layout: Layout) -> int:
    """The bytes that the result of a task can have, with all that Flower sends around it."""
    own = sum(job.own is not None for job in task.jobs)
    numbers = len(task.jobs) * (layout.parameter_count + layout.buffer_count)
    arrays = 4 * (numbers + own * layout.parameter_count)
    members = sum(len(job.members) for job in task.jobs)
    return OVERHEAD_BYTES + arrays + arrays // 1000 + 5000 * len(task.jobs) + 12 * members


def read_result(content: RecordDict, task: Task, start: Weights) -> list[Trained]:
    """The outcome of each job of this very task.

    Frozen parameters are those of the state that the task starts from.
    """
    head = parse(_RESULT_HEAD, head_text(content), "its result")
    # People count rounds and updates from 1.
    for what, found, expected in (
        ("round", head.round, task.round),
        ("local update", head.first, task.first),
    ):
        if found != expected:
            raise Refusal(f"it is for {what} {found + 1}, not {expected + 1}")
    if head.nonce != task.nonce:
        raise Refusal("it answers an earlier task (a replayed message?)")
    if head.problem:
        raise Refusal(f"it does not train: {head.problem}")
    if len(head.losses) != len(task.jobs):
        raise Refusal(f"it has {len(head.losses)} losses for {len(task.jobs)} jobs")
    layout, frozen = start.layout, start.buffers[: start.layout.frozen_count]
    sizes = layout.parameter_count, layout.buffer_count - len(frozen)
    own_size = (layout.parameter_count,)
    counts = [n for job in task.jobs for n in (*sizes, *(own_size if job.own else ()))]
    parts = iter(arrays_in(content, counts))
    results = []
    for job, loss in zip(task.jobs, head.losses, strict=True):
        state = Weights(next(parts), np.concatenate((frozen, next(parts))), layout)
        states = () if job.states is None else _marks(k not in head.anew for k in job.members)
        own = next(parts) if job.own else None
        results.append(Trained(state, math.nan if loss is None else loss, states, own))
    return results


def name_some(names: Sequence[str]) -> str:
    """The first five of some names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _own_head(own: OwnTraining | None, vectors: list[Float32]) -> _OwnHead | None:
    """What a unit trains for itself, with its vectors put among those of the message."""
    if own is None:
        return None
    only = None if own.only is None else _place(own.only.astype(np.float32), vectors)
    start = _place(own.start, vectors)
    return _OwnHead(start, own.updates, own.proximal, only, own.first)


def _own_training(head: _OwnHead, vectors: Mapping[int | None, Float32 | None]) -> OwnTraining:
    start, only = vectors[head.start], vectors[head.only]
    assert start is not None
    mask: Mask | None = None if only is None else only != 0
    return OwnTraining(start, head.updates, head.proximal, mask, head.first)


def _vectors_of(job: _JobHead) -> set[int]:
    """The numbers of a job's vectors."""
    own = (job.own.start, job.own.only) if job.own else ()
    return {n for n in (job.correction, job.anchor, *own) if n is not None}


def _marks(there: Iterable[bool]) -> tuple[Float32 | None, ...]:
    """`AT_NODE` for each optimiser that has kept something, None for the others."""
    return tuple(AT_NODE if each else None for each in there)


def _place(value: Any, known: list[Any]) -> Any:
    """The place of a value in a list, to which it is added if it is new; None for None."""
    if value is None:
        return None
    for number, other in enumerate(known):
        if other is value:
            return number
    known.append(value)
    return len(known) - 1
