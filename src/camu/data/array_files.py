"""Reads arrays of the user's from `.npz`, `.npy` and IDX files, without trusting their headers.

No pickle is ever loaded. A header is read first, and the array only if the file can hold it.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from camu.data.samples import Samples
from camu.errors import InputError
from camu.files import open_regular

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
IDX_NAME = re.compile(r"(?:.*[-_])?(train|test|t10k)[-_](images|labels)[-.]idx\d-ubyte(?:\.gz)?")

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_DEFLATE_RATIO = 1032  # the most that deflate can compress anything


def read_npz(path: Path) -> tuple[Samples, Samples]:
    """The four arrays of an `.npz` file; it may hold others too."""
    how = "write it with np.savez(path, train_images=..., train_labels=..., test_images=..., ...)"
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = [info.filename for info in archive.infolist()]
            found = [_member(archive, members, name, path) for name in ARRAYS]
    except InputError:
        raise
    except Exception as error:  # damaged archives raise errors of many kinds
        raise InputError(f"{path}: cannot be read ({_said(error)}); {how}") from None
    return _pair(found, [f"{path}: {name}" for name in ARRAYS])


def _member(
    archive: zipfile.ZipFile, members: list[str], name: str, path: Path
) -> npt.NDArray[Any]:
    where = f"{path}: {name}"
    if members.count(f"{name}.npy") != 1:
        has = ", ".join(repr(member.removesuffix(".npy")) for member in members[:10])
        amount = "no" if f"{name}.npy" not in members else "more than one"
        raise InputError(
            f"{path}: there is {amount} array {name}; it has {has or 'none'}, and needs "
            f"{', '.join(ARRAYS)}"
        )
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > _DEFLATE_RATIO * info.compress_size + 1024:
        raise InputError(
            f"{where}: {info.file_size} bytes are announced, more than the file can hold; "
            "write it again"
        )
    with archive.open(info) as stream:
        return read_npy(stream, info.file_size, where)


def read_npy_file(path: Path) -> npt.NDArray[Any]:
    """The array of an `.npy` file."""
    try:
        with open_regular(path) as stream:
            return read_npy(stream, path.stat().st_size, str(path))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); write it with np.save"
        ) from None


def read_npy_directory(folder: Path) -> tuple[Samples, Samples]:
    """The four arrays of a directory of `.npy` files."""
    files = [folder / f"{name}.npy" for name in ARRAYS]
    found = [read_npy_file(file) for file in files]
    return _pair(found, [f"{file}: {file.stem.split('_')[1]}" for file in files])


def _pair(found: list[npt.NDArray[Any]], names: list[str]) -> tuple[Samples, Samples]:
    """Training and test samples of four arrays in the order of `ARRAYS`."""
    return (
        Samples(found[0], found[1], names[0], names[1]),
        Samples(found[2], found[3], names[2], names[3]),
    )


def read_npy(stream: IO[bytes], size: int, where: str) -> npt.NDArray[Any]:
    """An array in numpy's format, of `size` bytes with its header."""
    try:
        version = npy_format.read_magic(stream)
        read = {
            (1, 0): npy_format.read_array_header_1_0,
            (2, 0): npy_format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream)
    except Exception as error:  # wrong headers raise errors of many kinds
        raise InputError(
            f"{where}: not an array in numpy's format ({_said(error)}); write it with np.save"
        ) from None
    if dtype.hasobject or dtype.kind not in "biuf":
        raise InputError(
            f"{where}: an array of {dtype}; only numbers are read, never objects or pickles: make "
            "it an array of numbers"
        )
    wanted = math.prod(shape) * dtype.itemsize
    header = stream.tell()
    if any(extent < 0 for extent in shape) or header + wanted != size:
        raise InputError(
            f"{where}: its header announces shape {_brief(shape)} of {dtype}, and {size - header} "
            "bytes follow; the file is cut short or damaged: write it again"
        )
    content = _read_exactly(stream, wanted, where)
    flat = np.frombuffer(content, dtype)
    ordered = flat.reshape(shape, order="F" if fortran else "C")
    return np.array(ordered, dtype.newbyteorder("="), order="C")


def _read_exactly(stream: IO[bytes], count: int, where: str) -> bytes:
    try:
        content = stream.read(count)
    except Exception as error:  # a damaged archive
        raise InputError(f"{where}: cannot be read ({_said(error)}); write it again") from None
    if len(content) != count:
        raise InputError(
            f"{where}: {count} bytes are announced and {len(content)} are there; write it again"
        )
    return content


def read_idx_directory(folder: Path) -> tuple[Samples, Samples]:
    """The four arrays of a directory of IDX files, plain or gzipped."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if (match := IDX_NAME.fullmatch(path.name)) is None:
            continue
        split = "train" if match[1] == "train" else "test"
        if (other := found.setdefault((split, match[2]), path)) != path:
            raise InputError(f"{folder}: both {other.name} and {path.name} are there; keep one")
    for (split, kind), usual in (
        (("train", "images"), "train-images-idx3-ubyte"),
        (("train", "labels"), "train-labels-idx1-ubyte"),
        (("test", "images"), "t10k-images-idx3-ubyte"),
        (("test", "labels"), "t10k-labels-idx1-ubyte"),
    ):
        if (split, kind) not in found:
            raise InputError(f"{folder}: the {split} {kind} are missing; add {usual} or {usual}.gz")
    pairs = ((found[split, "images"], found[split, "labels"]) for split in ("train", "test"))
    train, test = (
        Samples(read_idx(images), read_idx(labels), f"{images}: images", f"{labels}: labels")
        for images, labels in pairs
    )
    return train, test


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array of an IDX file, plain or gzipped."""
    zipped = path.suffix == ".gz"
    try:
        with (
            open_regular(path) as file,
            cast(IO[bytes], gzip.open(file) if zipped else file) as stream,
        ):
            shape, dtype = _idx_header(stream, path)
            wanted = math.prod(shape) * dtype.itemsize
            most = path.stat().st_size * (_DEFLATE_RATIO if zipped else 1)
            content = stream.read(min(wanted, most) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({_said(error)}); write it again") from None
    if len(content) != wanted:
        raise InputError(
            f"{path}: its header announces shape {_brief(shape)}, {wanted} bytes, and "
            f"{'more' if len(content) > wanted else len(content)} follow; write it again"
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _idx_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES or not magic[3]:
        begin = magic.hex(" ") or "nothing"
        raise InputError(f"{path}: not an IDX file (it begins with {begin}); write it again")
    extents = stream.read(4 * magic[3])
    if len(extents) < 4 * magic[3]:
        raise InputError(f"{path}: the file is cut short within its header; write it again")
    return struct.unpack(f">{magic[3]}I", extents), np.dtype(_IDX_TYPES[magic[2]])


def _brief(shape: tuple[int, ...]) -> str:
    return str(shape) if len(shape) <= 8 else f"({shape[0]}, {shape[1]}, ...)"


def _said(error: Exception) -> str:
    """The first line of an error, or its kind where it says nothing."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
