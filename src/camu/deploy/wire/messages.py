"""What server and nodes send each other: tasks, results and reports, checked on arrival.

Arrays travel as float32 in numpy's own format, everything else as JSON. Nothing that arrives is
trusted: sizes are compared before anything is decoded, and no path leads through pickle.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from camu.deploy.wire.reports import Refusal
from camu.learning.weights import Floats, Layout, Weights

HEAD = "camu"  # the record with the JSON
HEADER_BYTES = 1024  # more than numpy's header of a flat array needs
LARGEST_HEAD = 50_000_000


@dataclass(frozen=True)
class Work:
    """The training of some devices from one state, which is named by its number."""

    members: tuple[int, ...]
    weights: tuple[float, ...]
    updates: int
    state: int = 0


@dataclass(frozen=True)
class Task:
    """What one node does in a round (or, device by device, in one local update of it)."""

    round: int
    first: int  # number of the first local update
    devices: int  # K, so that every node numbers the devices alike
    ids: Mapping[int, str]  # names of the devices by number
    works: tuple[Work, ...]


def write_task(task: Task, states: Sequence[Weights]) -> RecordDict:
    """A task with the states that its works start from."""
    head = {**asdict(task), "ids": {str(k): name for k, name in task.ids.items()}}
    content = _content(head)
    for number, state in enumerate(states):
        content[f"state-{number}"] = _arrays(state)
    return content


def read_task(content: RecordDict, layout: Layout) -> tuple[Task, list[Weights]]:
    """The task and its states, on a node."""
    head = read_head(content)
    try:
        works = tuple(
            Work(tuple(w["members"]), tuple(w["weights"]), w["updates"], w["state"])
            for w in head["works"]
        )
        ids = {int(k): str(name) for k, name in head["ids"].items()}
        task = Task(head["round"], head["first"], head["devices"], ids, works)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refusal(f"the task cannot be read ({error})") from None
    count = 1 + max((work.state for work in works), default=-1)
    return task, [_weights(content, f"state-{number}", layout) for number in range(count)]


def write_result(task: Task, trained: Sequence[Weights]) -> RecordDict:
    """What a node sends back: one state per work, in their order."""
    content = _content({"round": task.round, "first": task.first, "works": len(trained)})
    for number, state in enumerate(trained):
        content[f"work-{number}"] = _arrays(state)
    return content


def read_result(content: RecordDict, task: Task, layout: Layout) -> list[Weights | Refusal]:
    """The states of a result for this very task, each on its own; a wrong head refuses all."""
    head = read_head(content)
    for key in ("round", "first"):
        if head.get(key) != getattr(task, key):
            what = "round" if key == "round" else "local update"
            # Rounds are counted from 1 wherever people read them.
            shown = head.get(key)
            shown = shown + 1 if isinstance(shown, int) else shown
            raise Refusal(f"it is for {what} {shown}, not {getattr(task, key) + 1}")
    results: list[Weights | Refusal] = []
    for number in range(len(task.works)):
        try:
            results.append(_weights(content, f"work-{number}", layout))
        except Refusal as refusal:
            results.append(refusal)
    return results


def write_report(report: Mapping[str, Any]) -> RecordDict:
    """What a node tells about itself."""
    return _content(report)


def read_head(content: RecordDict) -> dict[str, Any]:
    """The JSON of a message."""
    record = content.get(HEAD)
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str) or len(text) > LARGEST_HEAD:
        raise Refusal("it has no readable head")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal("its head is not JSON") from None
    if not isinstance(head, dict):
        raise Refusal("its head is not a table")
    return head


def _content(head: Mapping[str, Any]) -> RecordDict:
    return RecordDict({HEAD: ConfigRecord({"json": json.dumps(head, allow_nan=False)})})


def _arrays(state: Weights) -> ArrayRecord:
    record = ArrayRecord()
    record["parameters"] = Array(np.array(state.parameters))
    record["buffers"] = Array(np.array(state.buffers))
    return record


def _weights(content: RecordDict, name: str, layout: Layout) -> Weights:
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        raise Refusal(f"the arrays {name} are missing")
    return Weights(
        _flat(record, "parameters", layout.parameter_count),
        _flat(record, "buffers", layout.buffer_count),
        layout,
    )


def _flat(record: ArrayRecord, name: str, count: int) -> Floats:
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
