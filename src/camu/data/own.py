"""A data set of the user's: a path, a function `module:function`, or `hf:NAME`.

`hf:NAME` is a name on the hub of Hugging Face, a directory with files that its library `datasets`
reads, or one that its `save_to_disk` wrote. The library comes with the extra `hf`; it runs no code
of a data set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from camu.data.catalog import CATALOG, Dataset, DatasetSpec, Inputs, Target
from camu.data.files import (
    ARRAYS,
    IDX_NAME,
    has_arrays,
    read_idx_directory,
    read_image_folder,
    read_npy_directory,
    read_npz,
)
from camu.data.hugging_face import read_hugging_face
from camu.data.reading import Reading
from camu.data.samples import Samples, check_parts, make_dataset, named
from camu.data.tables import SUFFIXES, read_tables
from camu.errors import InputError, suggest
from camu.files import expanded, shown
from camu.plugins import HUGGING_FACE, import_object, is_path, is_plugin, user_code

_WANTED = "return (train_inputs, train_targets), (test_inputs, test_targets)"
_LAYOUTS = (
    f"give an .npz file, a CSV or Parquet table, a directory of "
    f"{', '.join(f'{name}.npy' for name in ARRAYS)}, one of train.csv and test.csv, one of IDX "
    "files, or one of pictures train/CLASS/*.png and test/CLASS/*.png"
)

# Only what the data on other machines are. Of images with classes: shape:HEIGHTxWIDTHxCLASSES, or
# with the channels before the height. Of all others: shape:INPUTS:SHAPE:TARGET, where INPUTS are
# images, numbers, or tokens and their vocabulary, and TARGET is the number of classes, numbers and
# their width, or next-token; a number of labels may follow where targets are no classes.
_IMAGES = re.compile(r"shape:((?:[1-9]\d{0,4}x){2,3})([1-9]\d{0,5})")
_ANY = re.compile(
    r"shape:(images|numbers|tokens(?=[1-9]))([1-9]\d{0,8})?:([1-9]\d{0,8}(?:x[1-9]\d{0,8}){0,7}):"
    r"(?:([1-9]\d{0,5})|(?:numbers([1-9]\d{0,5})|(next-token))(?::([1-9]\d{0,5}))?)"
)

Stamp = tuple[tuple[str, int, int], ...]  # name, bytes and time of change of each file


def is_own(name: str) -> bool:
    """Whether a value of data.dataset is not one of the built-in names."""
    return name not in CATALOG


def shape_spec(name: str) -> DatasetSpec | None:
    """What is behind `shape:3x32x32x12` or `shape:numbers:6x100:4`; None for any other name."""
    title = f"data of nodes, {name}"
    if (found := _IMAGES.fullmatch(name)) is not None:
        shape = tuple(int(part) for part in found[1].split("x")[:-1])
        return DatasetSpec(name, title, shape, int(found[2]), 0, 0)
    if (found := _ANY.fullmatch(name)) is None:
        return None
    inputs, vocabulary, extents, classes, width, following, labels = found.groups()
    target: Target = "numbers" if width else "next-token" if following else "classes"
    if (inputs == "tokens") != bool(vocabulary) or (following and inputs != "tokens"):
        return None
    return DatasetSpec(
        name,
        title,
        tuple(map(int, extents.split("x"))),
        int(classes or labels or 1),
        0,
        0,
        inputs=cast(Inputs, inputs),
        target=target,
        width=int(width or 1),
        vocabulary=int(vocabulary or 0),
    )


def shape_name(spec: DatasetSpec) -> str:
    """The value of data.dataset that says what a data set is, and names no samples."""
    extents = "x".join(map(str, spec.shape))
    if (spec.inputs, spec.target) == ("images", "classes"):
        return f"shape:{extents}x{spec.classes}"
    inputs = f"tokens{spec.vocabulary}" if spec.inputs == "tokens" else spec.inputs
    targets = {
        "classes": str(spec.classes),
        "numbers": f"numbers{spec.width}:{spec.classes}",
        "next-token": f"next-token:{spec.classes}",
    }
    return f"shape:{inputs}:{extents}:{targets[spec.target]}"


def load_own(name: str, reading: Reading) -> Dataset:
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
        folder = expanded(source, "data.dataset")
        stamp = _stamp(folder) if os.path.isdir(folder) else ()
        return _from_hugging_face(name, folder, stamp, reading)
    path = expanded(name, "data.dataset")
    if os.path.exists(path) and (is_path(name) or not is_plugin(name)):
        return _from_path(name, path, _stamp(path), reading)
    if is_plugin(name):
        function = import_object(name, "data.dataset")
        if not callable(function):
            raise InputError(
                f"data.dataset = {name}: this is not a function; write one that takes "
                f"nothing and returns data: {_WANTED}"
            )
        return _from_function(function, name, reading)
    if is_path(name):
        raise InputError(
            f"data.dataset = {shown(name)}: there is no such file or directory; {_LAYOUTS}"
        )
    raise InputError(
        f"{name}: no such data set{suggest(name, CATALOG)}; there are {', '.join(CATALOG)}, or "
        f"{_LAYOUTS}"
    )


@lru_cache(maxsize=4)
def _from_path(name: str, path: Path, stamp: Stamp, reading: Reading) -> Dataset:
    notes: tuple[str, ...] = ()
    try:
        if path.suffix == ".npz" and not path.is_dir():
            train, test = _arrays(read_npz, path, name, reading)
        elif tables := _tables(path):
            train, test, notes = read_tables(tables, reading)
        else:
            train, test = _from_directory(path, name, reading)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {_LAYOUTS}") from None
    data = make_dataset(name, train, test, reading.target)
    return replace(data, notes=(*notes, *data.notes))


@lru_cache(maxsize=4)
def _from_hugging_face(name: str, folder: Path, stamp: Stamp, reading: Reading) -> Dataset:
    train, test, notes = read_hugging_face(name, folder, reading)
    data = make_dataset(name, train, test, reading.target)
    return replace(data, notes=(*notes, *data.notes))


def _arrays(
    read: Callable[[Path, str | None, str | None], tuple[Samples, Samples]],
    path: Path,
    name: str,
    reading: Reading,
) -> tuple[Samples, Samples]:
    reading.refuse_columns(name, "is no table; leave it out", "target_column", "input_columns")
    return read(path, reading.label_column, reading.device_column)


def _tables(path: Path) -> list[Path]:
    """The tables for training and test: two of a directory, or one that is divided."""
    if not path.is_dir():
        if path.suffix not in SUFFIXES:
            raise InputError(f"data.dataset = {path}: not an .npz file or a table; {_LAYOUTS}")
        return [path]
    for suffix in SUFFIXES:
        found = [path / f"{split}{suffix}" for split in ("train", "test")]
        if all(file.exists() for file in found):
            return found
    return []


def _from_directory(path: Path, name: str, reading: Reading) -> tuple[Samples, Samples]:
    """The samples of a directory, by the files that are there."""
    names = set(os.listdir(path))
    found = {
        "arrays": has_arrays(names),
        "IDX files": any(map(IDX_NAME.fullmatch, names)),
        "pictures": bool({"train", "test"} & names),
    }
    kinds = [kind for kind, there in found.items() if there]
    if "dataset_dict.json" in names:
        raise InputError(
            f"data.dataset = {path}: a copy of Hugging Face datasets; name it hf:{path}"
        )
    if len(kinds) > 1:
        raise InputError(
            f"data.dataset = {path}: both {' and '.join(kinds)} are there; keep one of them"
        )
    if not kinds:
        raise InputError(f"data.dataset = {path}: no data are there; {_LAYOUTS}")
    if kinds == ["arrays"]:
        return _arrays(read_npy_directory, path, name, reading)
    reading.refuse_columns(name, "has no columns; leave it out")
    return read_idx_directory(path) if kinds == ["IDX files"] else read_image_folder(path)


def _stamp(path: Path) -> Stamp:
    """What changes when a file does."""
    try:
        files = [str(path)]
        if path.is_dir():
            files = sorted(
                os.path.join(folder, name)
                for folder, _, names in os.walk(path, followlinks=True)
                for name in names
            )
        states = [(file, os.stat(file)) for file in files]
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read ({error.strerror})") from None
    return tuple((file, state.st_size, state.st_mtime_ns) for file, state in states)


@lru_cache(maxsize=4)
def _from_function(function: Callable[[], Any], path: str, reading: Reading) -> Dataset:
    what = f"data.dataset = {path}"
    reading.refuse_columns(
        path,
        "is a function: it returns labels as the third of (inputs, targets, labels), and whose "
        "samples are whose after the test samples",
    )
    with user_code(what, function, "()"):
        returned = function()
    try:
        (train, train_targets, *labels), (test, test_targets, *others), *more = returned
        (train_labels,), (test_labels,) = labels or (None,), others or (None,)
        parts, test_parts = (*more, None, None)[: max(2, len(more))]
        if (train_labels is None) != (test_labels is None):
            raise ValueError("labels of one of both")
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: returned {type(returned).__name__}; {_WANTED}, and if the data come divided, "
            "a list of arrays of sample indices, one per device, and another of test samples"
        ) from None
    dataset = make_dataset(
        path,
        named(f"{what}: train", train, train_targets, train_labels),
        named(f"{what}: test", test, test_targets, test_labels),
        reading.target,
    )
    if parts is None:
        return dataset
    checked = check_parts(parts, f"{what}: the division", len(dataset.train_inputs))
    if test_parts is not None:
        where = f"{what}: the division of the test samples"
        test_parts = check_parts(test_parts, where, len(dataset.test_inputs), len(checked))
    return replace(dataset, parts=checked, test_parts=test_parts)
