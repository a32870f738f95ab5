"""Data sets of Hugging Face: pictures, columns of numbers, series, and text for the next character.

The library `datasets` comes with the extra `hf`; it runs no code of a data set.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from camu.data.files import as_array, stack
from camu.data.reading import Reading
from camu.data.samples import Samples
from camu.data.tables import Cells, Columns, samples_of
from camu.errors import InputError
from camu.plugins import HUGGING_FACE

LENGTH = 80  # characters of a sample of text
_IMAGES = ("image", "img")  # usual names
Split = tuple[Samples, Samples, tuple[str, ...]]


def read_hugging_face(name: str, folder: Path, reading: Reading) -> Split:
    """Training and test samples of a data set, and what a user should know of the reading.

    `folder` is where a local copy would be.
    """
    what = f"data.dataset = {name}"
    if importlib.util.find_spec("datasets") is None:
        raise InputError(f"{what}: install the extra with pip install 'camu-fl[hf]'")
    splits = _open_splits(name.removeprefix(HUGGING_FACE), folder, what)
    pictures = not reading.inputs and any(map(_has_pictures, splits.values()))
    needed = ("train", "test") if pictures else ("train",)
    if missing := [split for split in needed if split not in splits]:
        raise InputError(
            f"{what}: there is no split {missing[0]}; it has {', '.join(map(repr, splits))}. For "
            "other splits, write a function and name it as module:function"
        )
    used = [split for split in ("train", "test") if split in splits]
    if pictures:
        train, test = (_pictures(splits[split], f"{what}: {split}", reading) for split in used)
        return train, test, ()
    tables = [_columns(splits[split], f"{what}: {split}") for split in used]
    return samples_of(_with_text_as_tokens(tables, reading), reading)


def _has_pictures(split: Any) -> bool:
    import datasets

    return any(
        isinstance(kind, datasets.Image) or name in _IMAGES for name, kind in split.features.items()
    )


def _open_splits(name: str, folder: Path, what: str) -> dict[str, Any]:
    import datasets  # deferred: it takes a second, and only this needs it

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


def _columns(split: Any, where: str) -> Columns:
    """The columns of a split: numbers and arrays as they are, all others as Python's values."""
    if not len(split):
        raise InputError(f"{where}: there is no row; give a split with rows")
    cells: dict[str, Cells] = {}
    plain = split.with_format(None)
    try:
        for name in split.features:
            values = list(plain[name])
            if any(value is None for value in values) or isinstance(values[0], str | dict):
                cells[name] = values
            else:
                found = split.with_format("numpy")[name]
                cells[name] = found[:] if isinstance(found, np.ndarray) else list(found)
    except Exception as error:  # the library raises errors of many kinds
        raise InputError(f"{where}: cannot be read ({type(error).__name__}: {error})") from None
    return Columns(where, cells, [f"{where}, row {row + 1}" for row in range(len(split))])


def _with_text_as_tokens(tables: Sequence[Columns], reading: Reading) -> Sequence[Columns]:
    """Texts as characters, where the next one is asked for; other tables stay as they are.

    The texts of a device, and of a label, are put end to end and cut into samples.
    """
    if reading.target != "next-token":
        return tables
    keys = [name for name in (reading.device_column, reading.label_column) if name is not None]
    first = tables[0]
    texts = reading.inputs or [
        name
        for name, cells in first.cells.items()
        if name not in keys and isinstance(cells, list) and isinstance(cells[0], str)
    ]
    if len(texts) != 1:
        if reading.inputs or not texts:
            return tables  # tokens, or what is refused as such
        raise InputError(
            f"{first.where}: which column is the text? There are {', '.join(texts)}; name one in "
            "data.input_columns"
        )
    (text,) = texts
    if not all(text in table.cells and isinstance(table.cells[text][0], str) for table in tables):
        return tables
    letters = {letter for table in tables for cell in table.cells[text] for letter in cell or ""}
    numbers = {letter: number for number, letter in enumerate(sorted(letters | {"\n"}))}
    return [_cut(table, text, keys, numbers) for table in tables]


def _cut(table: Columns, text: str, keys: list[str], numbers: dict[str, int]) -> Columns:
    """Samples of `LENGTH` characters and the one after them; a rest that is shorter is left out."""
    for name in keys:
        if name not in table.cells:
            return table  # refused with the columns that there are
    whose = list(zip(*(table.names(name).tolist() for name in keys), strict=True)) if keys else []
    groups: dict[tuple[Any, ...], list[str]] = {}
    for row, cell in enumerate(table.cells[text]):
        groups.setdefault(whose[row] if keys else (), []).append(cell or "")
    rows: list[list[int]] = []
    owners: list[tuple[Any, ...]] = []
    for group, texts in groups.items():
        tokens = [numbers[letter] for letter in "\n".join(texts)]
        own = [tokens[k : k + LENGTH + 1] for k in range(0, len(tokens) - LENGTH, LENGTH)]
        rows += own
        owners += [group] * len(own)
    if not rows:
        raise InputError(
            f"{table.where}, column {text}: no text is longer than {LENGTH} characters; give more"
        )
    cells: dict[str, Cells] = {text: np.array(rows, np.int64)}
    for place, name in enumerate(keys):
        cells[name] = [owner[place] for owner in owners]
    places = [f"{table.where}, text {row + 1}" for row in range(len(rows))]
    return replace(table, cells=cells, places=places)


def _pictures(split: Any, where: str, reading: Reading) -> Samples:
    """One column of pictures and one of labels."""
    import datasets

    kinds = split.features
    images = _column(
        kinds, lambda kind: isinstance(kind, datasets.Image), _IMAGES, f"{where}: images"
    )
    labels = reading.target_column or _column(
        kinds, lambda kind: isinstance(kind, datasets.ClassLabel), ("label",), f"{where}: labels"
    )
    named = (labels, reading.label_column, reading.device_column)
    if strange := [name for name in named if name is not None and name not in kinds]:
        raise InputError(
            f"{where}: there is no column {strange[0]}; there are {', '.join(map(repr, kinds))}"
        )
    try:
        numbers, counted, devices = (
            None if name is None else np.asarray(split[name]) for name in named
        )
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
    return Samples(pictures, numbers, f"{where} images", f"{where} labels", counted, devices)


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
