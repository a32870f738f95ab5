"""Messages between server and nodes: queries, reports, tasks and results, checked on arrival.

Arrays travel as float32 in numpy's own format, everything else as JSON. Nothing that arrives is
trusted: sizes are compared before anything is decoded, and nothing is unpickled.
"""

from __future__ import annotations

import io
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from camu.arrays import Float32
from camu.learning.job import Job, LocalRule, Trained
from camu.learning.weights import Layout, Weights

HEAD = "camu"  # the record with the JSON
LARGEST_HEAD = 50_000_000  # characters
LONGEST_REASON = 500  # characters of a reason in logs
MOST = 100_000  # devices of a node, and labels
# No conversions (a truth value is not a number), no nan.
STRICT = ConfigDict(strict=True, allow_inf_nan=False)

Count = Annotated[int, Field(ge=0, le=10**9)]
Nonce = Annotated[str, Field(max_length=64)]
Value = TypeVar("Value")


def printable(text: str, most: int = LONGEST_REASON) -> str:
    """A text that fits in a line of a log: what cannot be printed is escaped, the rest cut off.

    A node could otherwise write lines of its own into logs, or control the terminal.
    """
    cut = text[:most]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return cut if len(text) <= most else f"{cut} ..."


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("use characters that can be printed")
    return text


ShortText = Annotated[str, Field(max_length=100), AfterValidator(_check_printable)]


class Refusal(Exception):
    """The reason why something from a node is not used; short, and fit to be printed."""

    def __init__(self, why: str) -> None:
        super().__init__(printable(why))


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn any error of reading what a node sent into a Refusal: it concerns that node alone."""
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(f"{what} cannot be read ({type(error).__name__}: {error})") from error


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
class _JobHead:
    """A job as JSON; states and vectors are arrays of the message, named by their numbers."""

    members: tuple[Count, ...]
    weights: tuple[float, ...]
    updates: Count
    first: Count
    all_updates: Count
    rule: LocalRule
    start: Count
    correction: Count | None
    anchor: Count | None


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
    return _content(b"{}")


def write_report(report: Report) -> RecordDict:
    """A node's answer to a query."""
    return _content(REPORT.dump_json(report))


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
        )
        for job, start in zip(task.jobs, starts, strict=True)
    )
    head = _TaskHead(task.round, task.devices, dict(task.ids), jobs, task.nonce)
    content = _content(_TASK_HEAD.dump_json(head))
    for number, state in enumerate(states):
        content[f"state-{number}"] = _arrays(parameters=state.parameters, buffers=state.buffers)
    for number, vector in enumerate(vectors):
        content[f"vector-{number}"] = _arrays(vector=vector)
    return content


def read_task(content: RecordDict, layout: Layout) -> tuple[Task, list[Weights]]:
    """The task and the state that each of its jobs starts from, on a node."""
    head = parse(_TASK_HEAD, head_text(content), "the task")
    vectors: dict[int | None, Float32 | None] = {None: None}
    for number in {n for job in head.jobs for n in (job.correction, job.anchor)} - {None}:
        record = _record(content, f"vector-{number}")
        vectors[number] = _flat(record, "vector", layout.parameter_count)
    states = {job.start: _weights(content, f"state-{job.start}", layout) for job in head.jobs}
    jobs = tuple(
        Job(
            **{name: getattr(job, name) for name in _PLAIN},
            correction=vectors[job.correction],
            anchor=vectors[job.anchor],
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
    head = _ResultHead(task.round, task.first, losses, task.nonce)
    content = _content(_RESULT_HEAD.dump_json(head))
    for number, result in enumerate(results):
        state = result.weights
        moving = state.buffers[state.layout.frozen_count :]
        content[f"job-{number}"] = _arrays(parameters=state.parameters, buffers=moving)
    return content


def read_result(content: RecordDict, task: Task, start: Weights) -> list[Trained | Refusal]:
    """The outcome of each job of this very task, each on its own; a wrong head refuses all.

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
    if len(head.losses) != len(task.jobs):
        raise Refusal(f"it has {len(head.losses)} losses for {len(task.jobs)} jobs")
    results: list[Trained | Refusal] = []
    for number, loss in enumerate(head.losses):
        try:
            record, layout = _record(content, f"job-{number}"), start.layout
            frozen = start.buffers[: layout.frozen_count]
            moving = _flat(record, "buffers", layout.buffer_count - len(frozen))
            parameters = _flat(record, "parameters", layout.parameter_count)
            state = Weights(parameters, np.concatenate((frozen, moving)), layout)
            results.append(Trained(state, math.nan if loss is None else loss))
        except Refusal as refusal:
            results.append(refusal)
    return results


def head_text(content: RecordDict) -> str:
    """The JSON text of a message, if it is not too long."""
    record = content.get(HEAD)
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str) or len(text) > LARGEST_HEAD:
        raise Refusal("it has no readable head")
    return text


def name_some(names: Sequence[str]) -> str:
    """The first five of some names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _content(head: bytes) -> RecordDict:
    return RecordDict({HEAD: ConfigRecord({"json": head.decode()})})


def _place(value: Any, known: list[Any]) -> Any:
    """The place of a value in a list, to which it is added if it is new; None for None."""
    if value is None:
        return None
    for number, other in enumerate(known):
        if other is value:
            return number
    known.append(value)
    return len(known) - 1


def _arrays(**arrays: Float32) -> ArrayRecord:
    return ArrayRecord({name: Array(np.array(a, np.float32)) for name, a in arrays.items()})


def _record(content: RecordDict, name: str) -> ArrayRecord:
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        raise Refusal(f"the arrays {name} are missing")
    return record


def _weights(content: RecordDict, name: str, layout: Layout) -> Weights:
    record = _record(content, name)
    return Weights(
        _flat(record, "parameters", layout.parameter_count),
        _flat(record, "buffers", layout.buffer_count),
        layout,
    )


def _flat(record: ArrayRecord, name: str, count: int) -> Float32:
    """A flat float32 array of the right length; compared before anything is allocated."""
    array = record.get(name)
    if not isinstance(array, Array):
        raise Refusal(f"its {name} are missing")
    if array.dtype != "float32" or tuple(array.shape) != (count,):
        raise Refusal(
            f"its {name} are {array.dtype} of shape {tuple(array.shape)}; the model has "
            f"{count} numbers in float32"
        )
    data, header = array.data, _header(count)
    if array.stype != "numpy.ndarray" or len(data) != len(header) + 4 * count:
        raise Refusal(f"its {name} are {len(data)} bytes of {array.stype}, which is not their size")
    # Compared, not parsed: numpy reads a header as Python code, and fails in many ways.
    if not data.startswith(header):
        raise Refusal(f"its {name} are not a flat array of {count} numbers in float32")
    return np.frombuffer(data, dtype="<f4", offset=len(header)).astype(np.float32)


@lru_cache(maxsize=64)
def _header(count: int) -> bytes:
    """What numpy writes before a flat array of so many numbers in float32."""
    with io.BytesIO() as stream:
        head = {"descr": "<f4", "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(stream, head)
        return stream.getvalue()
