"""A data set of the user's: a path, a function `module:function`, or `hf:NAME`.

`hf:NAME` is a name on the hub of Hugging Face, a directory with files that its library `datasets`
reads, or one that its `save_to_disk` wrote. The library comes with the extra `hf`; it runs no code
of a data set.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from camu.data.catalog import CATALOG, Dataset, DatasetSpec
from camu.data.files import (
    ARRAYS,
    IDX_NAME,
    as_array,
    read_idx_directory,
    read_image_folder,
    read_npy_directory,
    read_npz,
    stack,
)
from camu.data.samples import Samples, check_parts, make_dataset
from camu.errors import InputError, suggest
from camu.files import expanded, shown
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
    return f"shape:{'x'.join(map(str, (*spec.shape, spec.classes)))}"


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
        folder = expanded(source, "data.dataset")
        return _from_hugging_face(name, _stamp(folder) if os.path.isdir(folder) else ())
    path = expanded(name, "data.dataset")
    if os.path.exists(path) and (is_path(name) or not is_plugin(name)):
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
        raise InputError(
            f"data.dataset = {shown(name)}: there is no such file or directory; {_LAYOUTS}"
        )
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
    checked = check_parts(parts, f"{what}: the division", len(dataset.train_inputs))
    return replace(dataset, parts=checked)


@lru_cache(maxsize=4)
def _from_hugging_face(name: str, stamp: Stamp) -> Dataset:
    """The splits `train` and `test` of a data set."""
    what = f"data.dataset = {name}"
    if importlib.util.find_spec("datasets") is None:
        raise InputError(f"{what}: install the extra with pip install 'camu-fl[hf]'")
    splits = _open_splits(name.removeprefix(HUGGING_FACE), what)
    missing = [split for split in ("train", "test") if split not in splits]
    if missing:
        raise InputError(
            f"{what}: there is no split {missing[0]}; it has {', '.join(map(repr, splits))}. For "
            "other splits, write a function and name it as module:function"
        )
    train, test = (_samples(splits[split], f"{what}: {split}") for split in ("train", "test"))
    return make_dataset(name, train, test)


def _open_splits(name: str, what: str) -> dict[str, Any]:
    import datasets  # deferred: it takes a second, and only this needs it

    folder = expanded(name, "data.dataset")
    try:
        if (folder / "dataset_dict.json").is_file():
            return dict(datasets.load_from_disk(str(folder)))
        source = str(folder) if folder.is_dir() else name
        # The newest revision; the library runs no code from there.
        found = datasets.load_dataset(source)  # nosec B615
        return dict(found)
    except Exception as error:  # the library raises errors of many kinds
        said = str(error).strip().splitlines()
        raise InputError(
            f"{what}: cannot be loaded ({type(error).__name__}: {said[0][:300] if said else '-'}); "
            "without a network, give the directory of a local copy, hf:./DIRECTORY"
        ) from None


def _samples(split: Any, where: str) -> Samples:
    """One column of pictures and one of labels."""
    import datasets

    kinds = split.features
    images = _column(
        kinds, lambda kind: isinstance(kind, datasets.Image), ("image", "img"), f"{where}: images"
    )
    labels = _column(
        kinds, lambda kind: isinstance(kind, datasets.ClassLabel), ("label",), f"{where}: labels"
    )
    try:
        numbers = np.asarray(split[labels])
        pictures = stack(
            (as_array(image, f"{where} row {row}"), f"{where} row {row}")
            for row, image in enumerate(split[images])
        )
    except InputError:
        raise
    except Exception as error:  # pictures that are damaged or missing
        raise InputError(
            f"{where}: a picture or label cannot be read ({type(error).__name__}: {error})"
        ) from None
    return Samples(pictures, numbers, f"{where} images", f"{where} labels")


def _column(kinds: Any, fits: Callable[[Any], bool], usual: tuple[str, ...], what: str) -> str:
    """The column with a usual name, or the only one of the kind."""
    for name in usual:
        if name in kinds:
            return name
    found = [str(name) for name, kind in kinds.items() if fits(kind)]
    if len(found) != 1:
        raise InputError(
            f"{what}: which column? There are {', '.join(map(repr, kinds))}; rename one to "
            f"{usual[0]}, or write a function and name it as module:function"
        )
    return found[0]
