"""Files that carry a SHA-256 of their own content, so that damage is noticed when they are read.

A sealed JSON document ends with the key `sha256`, the digest of the text before it. A sealed
safetensors file has `sha256` in its metadata: the digest of the whole file with that entry at 0.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from camu.arrays import AnyArray
from camu.errors import CamuError
from camu.files import json_parts, open_regular, parse_json, read_bytes, write_parts, write_whole

SEAL = "sha256"
UNSEALED = "0" * 64  # what the metadata of a safetensors file holds before `seal_tensors`
_CHUNK_BYTES = 1 << 20
_MOST_HEADER_BYTES = 100_000_000  # the limit of the format
_TAIL = re.compile(rb',\n  "sha256": "([0-9a-f]{64})"\n\}\n')
_TAIL_BYTES = 83
_ENTRY = re.compile(rb'"sha256":"([0-9a-f]{64})"')


class DamagedError(CamuError):
    """A file is not as it was written: which file, what is wrong, and what to do."""


def write_sealed_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document that is not empty with its digest, whole or not at all."""
    write_parts(path, _sealed_parts(document))


def _sealed_parts(document: dict[str, Any]) -> Iterator[str]:
    total = hashlib.sha256()
    held = ""  # the last part: the closing bracket makes room for the digest
    for part in json_parts(document):
        total.update(held.encode())
        yield held
        held = part
    held = held.removesuffix("\n}\n")
    total.update(held.encode())
    yield f'{held},\n  "{SEAL}": "{total.hexdigest()}"\n}}\n'


def read_sealed_json(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """A document as it was written, without its digest; `remedy` is what to do if it is damaged."""
    data = read_bytes(path, what)
    tail = _TAIL.fullmatch(data[-_TAIL_BYTES:])
    if tail is None:
        raise _damaged(path, "its digest is missing", remedy)
    if hashlib.sha256(memoryview(data)[:-_TAIL_BYTES]).hexdigest().encode() != tail[1]:
        raise _damaged(path, "its content does not match its digest", remedy)
    document: dict[str, Any] = parse_json(data.decode("utf-8"), path, what)
    del document[SEAL]
    return document


def seal_tensors(path: Path) -> None:
    """Put the digest into a safetensors file whose metadata has `sha256` = `UNSEALED`.

    The library writes the metadata in any order; here they are sorted, so that equal content means
    equal bytes.
    """
    _sort_metadata(path)
    digest, place, _ = _digest_of_tensors(path)
    with path.open("rb+") as stream:
        stream.seek(place)
        stream.write(digest.encode())


def write_sealed_tensors(
    path: Path,
    arrays: Mapping[str, AnyArray],
    metadata: Mapping[str, str],
    before_rename: Callable[[], None] = lambda: None,
) -> None:
    """Write arrays and metadata as a sealed safetensors file, whole or not at all."""
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}

    def write(temporary: Path) -> None:
        try:
            save_file(ordered, temporary, metadata={**metadata, SEAL: UNSEALED})
        except SafetensorError as error:  # for example, the disk is full
            raise OSError(str(error)) from None
        seal_tensors(temporary)
        before_rename()

    write_whole(path, write)


def _sort_metadata(path: Path) -> None:
    with path.open("rb+") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        ordered = {"__metadata__": header.pop("__metadata__"), **header}
        text = json.dumps(ordered, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= size  # as long as before, without the padding
        stream.seek(8)
        stream.write(text.ljust(size))


def check_tensors(path: Path, remedy: str) -> None:
    """Refuse a safetensors file that is not as `seal_tensors` left it."""
    try:
        digest, _, found = _digest_of_tensors(path)
    except ValueError as error:
        raise _damaged(path, str(error), remedy) from None
    except OSError as error:
        raise CamuError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    if digest != found:
        raise _damaged(path, "its content does not match its digest", remedy)


def _digest_of_tensors(path: Path) -> tuple[str, int, str]:
    """The digest of a safetensors file, where its own is, and what is written there."""
    total = hashlib.sha256()
    with open_regular(path) as stream:
        first = stream.read(8)
        size = int.from_bytes(first, "little")
        if len(first) < 8 or size > _MOST_HEADER_BYTES:
            raise ValueError("it is not a safetensors file")
        header = stream.read(size)
        entry = _ENTRY.search(header)
        if len(header) < size or entry is None:
            raise ValueError("its digest is missing")
        total.update(first + header[: entry.start(1)])
        total.update(UNSEALED.encode())
        total.update(header[entry.end(1) :])
        while chunk := stream.read(_CHUNK_BYTES):
            total.update(chunk)
    return total.hexdigest(), 8 + entry.start(1), entry[1].decode()


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    try:
        with open_regular(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise CamuError(f"{path}: cannot be read ({error.strerror})") from None


def check_files(folder: Path, digests: dict[str, str], remedy: str) -> None:
    """Refuse a directory in which one of these files is missing or has another SHA-256."""
    for name, digest in digests.items():
        if not (folder / name).exists():
            raise _damaged(folder / name, "it is missing", remedy)
        if file_digest(folder / name) != digest:
            raise _damaged(folder / name, "its content does not match its digest", remedy)


def _damaged(path: Path, reason: str, remedy: str) -> DamagedError:
    return DamagedError(f"{path}: is damaged or was changed ({reason}); {remedy}")
