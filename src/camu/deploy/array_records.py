"""A message as one record: JSON and flat float32 arrays; checked before anything is read.

Arrays travel as bytes of a length that the reader knows, without any header, so nothing of them is
ever interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from camu.arrays import Float32

HEAD = "camu"  # the record of a message
LARGEST_HEAD = 50_000_000  # characters
PIECE_BYTES = 4_000_000  # of arrays in one record
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


def parcel(head: bytes, arrays: Iterable[Float32] = ()) -> RecordDict:
    """A message: JSON, and flat arrays as bytes, one after the other.

    Flower sends every record as an object with a call of its own, so there is one, or one for
    every `PIECE_BYTES` of the arrays.
    """
    data = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
    first = ConfigRecord({"json": head.decode(), "data": data[:PIECE_BYTES]})
    content = RecordDict({HEAD: first})
    for number, begin in enumerate(range(PIECE_BYTES, len(data), PIECE_BYTES), 1):
        piece = ConfigRecord({"data": data[begin : begin + PIECE_BYTES]})
        content[f"{HEAD}-{number}"] = piece
    return content


def head_text(content: RecordDict) -> str:
    """The JSON text of a message, if it is not too long."""
    record = content.get(HEAD)
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str) or len(text) > LARGEST_HEAD:
        raise Refusal("it has no readable head")
    return text


def arrays_in(content: RecordDict, counts: Sequence[int]) -> list[Float32]:
    """The flat arrays of a message, of these lengths; compared before anything is allocated."""
    wanted = 4 * sum(counts)
    names = [HEAD, *(f"{HEAD}-{number}" for number in range(1, -(-wanted // PIECE_BYTES)))]
    if sorted(content) != sorted(names):
        raise Refusal(f"it has {len(content)} records; {len(names)} are due")
    pieces = [_data(content[name]) for name in names]
    if (found := sum(map(len, pieces))) != wanted:
        raise Refusal(f"its arrays are {found} bytes; {wanted} are due, numbers in float32")
    data = np.frombuffer(b"".join(pieces), dtype="<f4").astype(np.float32)
    return np.split(data, np.cumsum(counts)[:-1]) if len(counts) else []


def bytes_in(content: RecordDict) -> Iterator[bytes]:
    """Everything that a message says, piece by piece, in the same order for the same message."""
    yield head_text(content).encode()
    for record in content.values():
        yield _data(record)


def _data(record: object) -> bytes:
    """The bytes in a record of a message; none where it has something else."""
    data = record.get("data") if isinstance(record, ConfigRecord) else None
    return data if isinstance(data, bytes) else b""
