"""A data set of the user's: a path, a function `module:function`, or `hf:NAME`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from camu.data.array_files import (
    ARRAYS,
    IDX_NAME,
    read_idx_directory,
    read_npy_directory,
    read_npz,
)
from camu.data.catalog import CATALOG, Dataset, DatasetSpec
from camu.data.hugging_face import read_hugging_face
from camu.data.pictures import read_image_folder
from camu.data.samples import Samples, check_parts, make_dataset
from camu.errors import InputError, suggest
from camu.plugins import HUGGING_FACE, import_object, is_path, is_plugin, user_code

_WANTED = "return (train_images, train_labels), (test_images, test_labels)"
_LAYOUTS = (
    f"give an .npz file, a directory of {', '.join(f'{name}.npy' for name in ARRAYS)}, a directory "
    "of IDX files, or one of pictures train/CLASS/*.png and test/CLASS/*.png"
)

# Only the shape of data that are on other machines: shape:HEIGHTxWIDTHxCLASSES, or with the
# channels before the height.
_SHAPE = re.compile(r"shape:((?:[1-9]\d{0,4}x){2,3})([1-9]\d{0,5})")

Stamp = tuple[tuple[str, int, int], ...]  # name, bytes and time of change of each file


def is_own(name: str) -> bool:
    """Whether a value of data.dataset is not one of the built-in names."""
    return name not in CATALOG


def shape_spec(name: str) -> DatasetSpec | None:
    """Shape and classes behind `shape:3x32x32x12`; None for any other name."""
    found = _SHAPE.fullmatch(name)
    if found is None:
        return None
    shape = tuple(int(part) for part in found[1].split("x")[:-1])
    return DatasetSpec(name, f"data of nodes, {name}", shape, int(found[2]), 0, 0)


def shape_name(spec: DatasetSpec) -> str:
    """The value of data.dataset that has only the shape and the classes of a data set."""
    return f"shape:{'x'.join(map(str, (*spec.image_shape, spec.classes)))}"


def load_own(name: str) -> Dataset:
    """The data set behind a path, ``module:function`` or ``hf:NAME``.

    It is read once per process; files are read again after they have changed.
    """
    if shape_spec(name) is not None:
        raise InputError(
            f"data.dataset = {name}: it names no samples; only nodes with data of their own can "
            "train on it (camu deploy run --test-data)"
        )
    if name.startswith(HUGGING_FACE):
        source = name.removeprefix(HUGGING_FACE)
        if not source:
            raise InputError("data.dataset = hf: name a data set after the colon, or a directory")
        folder = Path(source).expanduser()
        return _from_hugging_face(name, _stamp(folder) if folder.is_dir() else ())
    path = Path(name).expanduser()
    if path.exists() and (is_path(name) or not is_plugin(name)):
        return _from_path(name, path, _stamp(path))
    if is_plugin(name):
        function = import_object(name, "data.dataset")
        if not callable(function):
            raise InputError(
                f"data.dataset = {name}: this is not a function; write one that takes "
                f"nothing and returns data: {_WANTED}"
            )
        return _from_function(function, name)
    if is_path(name):
        raise InputError(f"data.dataset = {name}: there is no such file or directory; {_LAYOUTS}")
    raise InputError(
        f"{name}: no such data set{suggest(name, CATALOG)}; there are {', '.join(CATALOG)}, or "
        f"{_LAYOUTS}"
    )


@lru_cache(maxsize=4)
def _from_path(name: str, path: Path, stamp: Stamp) -> Dataset:
    try:
        train, test = _reader(path)(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {_LAYOUTS}") from None
    return make_dataset(name, train, test)


def _reader(path: Path) -> Callable[[Path], tuple[Samples, Samples]]:
    """What reads a path, by the files that are there."""
    if not path.is_dir():
        if path.suffix != ".npz":
            raise InputError(f"data.dataset = {path}: not an .npz file; {_LAYOUTS}")
        return read_npz
    names = set(os.listdir(path))
    found = {
        "arrays": read_npy_directory if {f"{name}.npy" for name in ARRAYS} & names else None,
        "IDX files": read_idx_directory if any(map(IDX_NAME.fullmatch, names)) else None,
        "pictures": read_image_folder if {"train", "test"} & names else None,
    }
    readers = {kind: reader for kind, reader in found.items() if reader}
    if "dataset_dict.json" in names:
        raise InputError(
            f"data.dataset = {path}: a copy of Hugging Face datasets; name it hf:{path}"
        )
    if len(readers) > 1:
        raise InputError(
            f"data.dataset = {path}: both {' and '.join(readers)} are there; keep one of them"
        )
    if not readers:
        raise InputError(f"data.dataset = {path}: no data are there; {_LAYOUTS}")
    return next(iter(readers.values()))


def _stamp(path: Path) -> Stamp:
    """What changes when a file does."""
    try:
        if path.is_dir():
            return tuple(sorted(_marks(str(path))))
        state = path.stat()
        return ((str(path), state.st_size, state.st_mtime_ns),)
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read ({error.strerror})") from None


def _marks(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _marks(entry.path)
            else:
                state = entry.stat()
                yield entry.path, state.st_size, state.st_mtime_ns


@lru_cache(maxsize=4)
def _from_hugging_face(name: str, stamp: Stamp) -> Dataset:
    return make_dataset(name, *read_hugging_face(name.removeprefix(HUGGING_FACE)))


@lru_cache(maxsize=4)
def _from_function(function: Callable[[], Any], path: str) -> Dataset:
    what = f"data.dataset = {path}"
    with user_code(what, function, "()"):
        returned = function()
    try:
        (train, train_labels), (test, test_labels), *more = returned
        (parts,) = more or (None,)
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: returned {type(returned).__name__}; {_WANTED}, and if the data come divided, "
            "a list of arrays of sample indices, one per device"
        ) from None
    dataset = make_dataset(
        path,
        Samples(train, train_labels, f"{what}: train images", f"{what}: train labels"),
        Samples(test, test_labels, f"{what}: test images", f"{what}: test labels"),
    )
    if parts is None:
        return dataset
    checked = check_parts(parts, f"{what}: the division", len(dataset.train_images))
    return replace(dataset, parts=checked)
