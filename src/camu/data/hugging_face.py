"""Reads a data set of Hugging Face `datasets`: from its hub, its cache, or a local copy.

`hf:NAME` is a name on the hub, a directory with files that the library reads, or one that its
`save_to_disk` wrote. The library comes with the extra `hf`; it runs no code of a data set.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from camu.data.pictures import as_array, stack
from camu.data.samples import Samples
from camu.errors import InputError


def read_hugging_face(name: str) -> tuple[Samples, Samples]:
    """The splits `train` and `test` of a data set."""
    what = f"data.dataset = hf:{name}"
    if importlib.util.find_spec("datasets") is None:
        raise InputError(f"{what}: install the extra with pip install 'camu-fl[hf]'")
    splits = _open(name, what)
    missing = [split for split in ("train", "test") if split not in splits]
    if missing:
        raise InputError(
            f"{what}: there is no split {missing[0]}; it has {', '.join(map(repr, splits))}. For "
            "other splits, write a function and name it as module:function"
        )
    return _samples(splits["train"], f"{what}: train"), _samples(splits["test"], f"{what}: test")


def _open(name: str, what: str) -> dict[str, Any]:
    import datasets  # deferred: it takes a second, and only this needs it

    folder = Path(name).expanduser()
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
