"""Messages between server and nodes: queries, reports, tasks and results, checked on arrival.

Arrays travel as float32 in numpy's own format, everything else as JSON. Nothing that arrives is
trusted: sizes are compared before anything is decoded, and nothing is unpickled.
"""

from __future__ import annotations

import io
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from camu.arrays import Float32
from camu.deploy.reports import REPORT, STRICT, Refusal, Report, check_report, parse
from camu.learning.job import Job, LocalRule, Trained
from camu.learning.weights import Layout, Weights

HEAD = "camu"  # the record with the JSON
HEADER_BYTES = 1024  # more than numpy's header of a flat array needs
LARGEST_HEAD = 50_000_000  # characters

Count = Annotated[int, Field(ge=0, le=10**9)]
Nonce = Annotated[str, Field(max_length=64)]


@dataclass(frozen=True)
class Task:
    """The jobs of one node in a round (granularity `device`: in one local update of it)."""

    round: int
    devices: int  # K, so that all nodes number the devices alike
    ids: Mapping[int, str]  # names of the devices by number
    jobs: tuple[Job, ...]
    starts: tuple[int, ...]  # for each job, the number of the state that it starts from
    # Repeated in the result, so that an old one cannot be sent again.
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def first(self) -> int:
        """The number of the first local update."""
        return self.jobs[0].first if self.jobs else 0


@checked(frozen=True, config=STRICT)
class _JobHead:
    """A job as JSON."""

    members: tuple[Count, ...]
    weights: tuple[float, ...]
    updates: Count
    first: Count
    rule: LocalRule
    start: Count  # number of the state
    correction: Count | None  # number of a vector
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
class ResultHead:
    """The JSON of a result: the task that it belongs to, and the training loss of each job."""

    round: Count
    first: Count
    losses: tuple[float | None, ...]  # None: not finite
    nonce: Nonce


_TASK_HEAD = TypeAdapter(_TaskHead)
RESULT_HEAD = TypeAdapter(ResultHead)


def query_content() -> RecordDict:
    """The question who a node is."""
    return _content("{}")


def write_report(report: Report) -> RecordDict:
    """A node's answer to a query."""
    return _content(REPORT.dump_json(report))


def read_report(content: RecordDict, classes: int) -> Report:
    """The report of a node, on the server, for a data set of so many classes."""
    return check_report(parse(REPORT, head_text(content), "its report"), classes)


def write_task(task: Task, states: Sequence[Weights]) -> RecordDict:
    """A task with the states that its jobs start from."""
    vectors: list[Float32] = []  # each is sent once, however many jobs use it
    jobs = tuple(
        _JobHead(
            job.members,
            job.weights,
            job.updates,
            job.first,
            job.rule,
            start,
            _number_of(job.correction, vectors),
            _number_of(job.anchor, vectors),
        )
        for job, start in zip(task.jobs, task.starts, strict=True)
    )
    head = _TaskHead(task.round, task.devices, dict(task.ids), jobs, task.nonce)
    content = _content(_TASK_HEAD.dump_json(head))
    for number, state in enumerate(states):
        content[f"state-{number}"] = _arrays(parameters=state.parameters, buffers=state.buffers)
    for number, vector in enumerate(vectors):
        content[f"vector-{number}"] = _arrays(vector=vector)
    return content


def read_task(content: RecordDict, layout: Layout) -> tuple[Task, list[Weights]]:
    """The task and its states, on a node."""
    head = parse(_TASK_HEAD, head_text(content), "the task")
    numbers = {n for job in head.jobs for n in (job.correction, job.anchor) if n is not None}
    vectors = {
        number: _flat(_record(content, f"vector-{number}"), "vector", layout.parameter_count)
        for number in numbers
    }
    jobs = tuple(
        Job(
            job.members,
            job.weights,
            job.updates,
            job.first,
            job.rule,
            None if job.correction is None else vectors[job.correction],
            None if job.anchor is None else vectors[job.anchor],
        )
        for job in head.jobs
    )
    starts = tuple(job.start for job in head.jobs)
    task = Task(head.round, head.devices, head.ids, jobs, starts, head.nonce)
    count = 1 + max(starts, default=-1)
    return task, [_weights(content, f"state-{number}", layout) for number in range(count)]


def write_result(task: Task, results: Sequence[Trained]) -> RecordDict:
    """A node's result: the trained state and the loss of each job, in the order of the jobs."""
    losses = tuple(r.loss if math.isfinite(r.loss) else None for r in results)
    head = ResultHead(task.round, task.first, losses, task.nonce)
    content = _content(RESULT_HEAD.dump_json(head))
    for number, result in enumerate(results):
        state = result.weights
        content[f"job-{number}"] = _arrays(parameters=state.parameters, buffers=state.buffers)
    return content


def read_result(content: RecordDict, task: Task, layout: Layout) -> list[Trained | Refusal]:
    """The outcome of each job of this very task, each on its own; a wrong head refuses all."""
    head = parse(RESULT_HEAD, head_text(content), "its result")
    # People count rounds and updates from 1.
    for what, found, expected in (
        ("round", head.round, task.round),
        ("local update", head.first, task.first),
    ):
        if found != expected:
            raise Refusal(f"it is for {what} {found + 1}, not {expected + 1}")
    if head.nonce != task.nonce:
        raise Refusal("it answers another task, as a message does that is sent again")
    if len(head.losses) != len(task.jobs):
        raise Refusal(f"it has {len(head.losses)} losses for {len(task.jobs)} jobs")
    results: list[Trained | Refusal] = []
    for number, loss in enumerate(head.losses):
        try:
            state = _weights(content, f"job-{number}", layout)
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


def _content(head: str | bytes) -> RecordDict:
    text = head if isinstance(head, str) else head.decode()
    return RecordDict({HEAD: ConfigRecord({"json": text})})


def _number_of(vector: Float32 | None, vectors: list[Float32]) -> int | None:
    """The place of a vector in the list, where it is put if it is new."""
    if vector is None:
        return None
    for number, known in enumerate(vectors):
        if known is vector:
            return number
    vectors.append(vector)
    return len(vectors) - 1


def _arrays(**arrays: Float32) -> ArrayRecord:
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = Array(np.array(array, dtype=np.float32))
    return record


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
    """A flat float32 array of the right length; compared before numpy allocates anything."""
    array = record.get(name)
    if not isinstance(array, Array):
        raise Refusal(f"its {name} are missing")
    if array.dtype != "float32" or tuple(array.shape) != (count,):
        raise Refusal(
            f"its {name} are {array.dtype} of shape {tuple(array.shape)}; the model has "
            f"{count} numbers in float32"
        )
    data = array.data
    if array.stype != "numpy.ndarray" or len(data) > 4 * count + HEADER_BYTES:
        raise Refusal(f"its {name} are {len(data)} bytes of {array.stype}, which is not their size")
    try:
        with io.BytesIO(data) as stream:
            if np.lib.format.read_magic(stream) != (1, 0):
                raise Refusal(f"its {name} are not in the format of a numpy array")
            shape, _, kind = np.lib.format.read_array_header_1_0(stream)
            if shape != (count,) or kind != np.dtype("<f4"):
                raise Refusal(f"its {name} are {kind} of shape {shape} in truth")
            body = stream.read()
    except ValueError:
        raise Refusal(f"its {name} are not in the format of a numpy array") from None
    if len(body) != 4 * count:
        raise Refusal(f"its {name} are cut off")
    return np.frombuffer(body, dtype="<f4").astype(np.float32)
