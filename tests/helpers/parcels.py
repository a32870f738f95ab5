"""Messages of nodes with other arrays or another head, for tests of what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from camu.arrays import Float32
from camu.deploy.array_records import HEAD, head_text


def arrays_of(content: RecordDict) -> Float32:
    """All arrays of a short message, one after the other."""
    record = content[HEAD]
    assert isinstance(record, ConfigRecord)
    data = record["data"]
    assert isinstance(data, bytes)
    return np.frombuffer(data, "<f4").astype(np.float32)


def with_arrays(content: RecordDict, arrays: Any) -> RecordDict:
    """A message with other arrays, or with any value in their place."""
    data = arrays.tobytes() if isinstance(arrays, np.ndarray) else arrays
    content[HEAD] = ConfigRecord({"json": head_text(content), "data": data})
    return content


def with_head(content: RecordDict, **changed: Any) -> RecordDict:
    """A message with other values in its head."""
    head = json.loads(head_text(content)) | changed
    content[HEAD] = ConfigRecord({"json": json.dumps(head), "data": arrays_of(content).tobytes()})
    return content
