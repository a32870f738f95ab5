"""Flat float32 arrays in messages, and texts of nodes: checked before anything is read.

Arrays travel in numpy's own format. Their headers are compared, not parsed, so nothing that a node
sends is ever interpreted.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from camu.arrays import Float32
from camu.learning.weights import Layout, Weights

LONGEST_REASON = 500  # characters of a reason in logs


def printable(text: str, most: int = LONGEST_REASON) -> str:
    """A text that fits in a line of a log: what cannot be printed is escaped, the rest cut off.

    A node could otherwise write lines of its own into logs, or control the terminal.
    """
    cut = text[:most]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return cut if len(text) <= most else f"{cut} ..."


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


def pack(**arrays: Float32) -> ArrayRecord:
    """Arrays by their names, as a message carries them."""
    return ArrayRecord({name: Array(np.array(a, np.float32)) for name, a in arrays.items()})


def record_of(content: RecordDict, name: str) -> ArrayRecord:
    """A record of arrays in a message."""
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        raise Refusal(f"the arrays {name} are missing")
    return record


def weights_of(content: RecordDict, name: str, layout: Layout) -> Weights:
    """The state of a model in a message."""
    record = record_of(content, name)
    return Weights(
        flat(record, "parameters", layout.parameter_count),
        flat(record, "buffers", layout.buffer_count),
        layout,
    )


def flat(record: ArrayRecord, name: str, count: int) -> Float32:
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
