"""Reads tables of the user's, CSV or Parquet: columns of numbers, a target, a device.

Errors name the file, the line, the column and the fix.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from camu.arrays import AnyArray, Int64
from camu.data.reading import Reading
from camu.data.samples import Samples
from camu.errors import InputError, suggest
from camu.files import csv_table, parquet_table
from camu.seeding import derive

SUFFIXES = (".csv", ".parquet")
_USUAL = ("target", "label")  # names of the column of targets
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_ROWS_PER_TEST_ROW = 5  # where no file says which rows are for test
_SHOWN = 12  # names of classes in a note
_WHAT = "a CSV or Parquet table with a header"

Cells = AnyArray | list[Any]


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table: arrays of a Parquet file, or the texts of a CSV file."""

    where: str
    cells: dict[str, Cells]
    places: list[str]  # of the rows

    def fail(self, row: int, column: str, problem: str) -> NoReturn:
        """Refuse a cell."""
        raise InputError(f"{self.places[row]}, column {column}: {problem}")

    def numbers(self, column: str) -> AnyArray:
        """The finite numbers of a column, as float32 if they are that, or as float64."""
        cells = self.cells[column]
        try:
            single = isinstance(cells, np.ndarray) and cells.dtype == np.float32
            values = np.array(cells if single else list(map(float, cells)))
        except (TypeError, ValueError):
            row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
            text = "" if cells[row] is None else str(cells[row]).strip()
            said = f"{text[:40]!r} is not a number" if text else "the cell is empty"
            self.fail(row, column, f"{said}; write a number, or leave out the row or the column")
        if not (good := np.isfinite(values)).all():
            row = int(np.argmin(good))
            self.fail(row, column, f"{values[row]} is not a finite number; write one")
        return values

    def names(self, column: str) -> AnyArray:
        """The values of a column that names something: whole numbers, or texts."""
        cells = self.cells[column]
        texts = ["" if cell is None else str(cell).strip() for cell in cells]
        if "" in texts:
            self.fail(texts.index(""), column, "the cell is empty; write a name or a number")
        return np.array(texts, np.int64 if all(map(_WHOLE.fullmatch, texts)) else None)


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def read_tables(
    paths: Sequence[Path], reading: Reading
) -> tuple[Samples, Samples, tuple[str, ...]]:
    """Training and test samples of a table or two, and what a user should know of the reading.

    Without a table for test, every device keeps a fifth of its rows for it.
    """
    return samples_of([_read(path) for path in paths], reading)


def samples_of(
    tables: Sequence[Columns], reading: Reading
) -> tuple[Samples, Samples, tuple[str, ...]]:
    """Training and test samples of one table, or of one for each."""
    table = _joined(tables)
    target = None if reading.target == "next-token" else _target_column(table, reading)
    named = {"target": target, "label": reading.label_column, "device": reading.device_column}
    for key, name in named.items():
        _check_column(table, f"data.{key}_column", name)
    if len(set(named.values()) - {None}) < sum(name is not None for name in named.values()):
        raise InputError(
            f"{table.where}: data.target_column, data.label_column and data.device_column name "
            "one column twice; name different ones"
        )
    features = reading.inputs or [name for name in table.cells if name not in named.values()]
    if not features:
        raise InputError(f"{table.where}: no column is left for the inputs; add one")
    for name in features:
        _check_column(table, "data.input_columns", name)
    inputs = _inputs(table, features)
    if reading.target == "next-token" and not is_nested(table.cells[features[0]]):
        raise InputError(
            f'data.target = "next-token": {table.where} is a table, and tokens are whole numbers '
            "(n, length); give them in an .npz file"
        )
    labels, devices = (
        None if name is None else table.names(name) for name in list(named.values())[1:]
    )
    targets = None if target is None else _targets(table, target, reading)
    notes: list[str] = []
    if len(tables) == 2:
        border = len(tables[0].places)
        rows = [np.arange(border), np.arange(border, len(table.places))]
    else:
        counted = np.zeros(len(inputs)) if targets is None else targets
        rows = _split(counted, devices, table.where)
        whose = "all rows" if devices is None else "the rows of each device"
        notes.append(
            f"{table.where}: a fifth of {whose}, drawn once for all seeds, is the test set: "
            f"{len(rows[1])} rows"
        )
    if target is not None and targets is not None and targets.dtype.kind != "f":
        targets, order = _numbered(targets, rows, table, target)
        if order:
            notes.append(f"{table.where}, column {target}: the classes are numbered {order}")
    train, test = (
        Samples(
            inputs[own],
            None if targets is None else targets[own],
            f"{table.where}: inputs",
            f"{table.where}: targets",
            None if labels is None else labels[own],
            None if devices is None else devices[own],
        )
        for own in rows
    )
    return train, test, tuple(notes)


def _inputs(table: Columns, features: list[str]) -> AnyArray:
    """One row of numbers per sample, or the arrays of the only column that has such."""
    if len(features) == 1 and is_nested(cells := table.cells[features[0]]):
        return _stacked(table, features[0], cells)
    return np.column_stack([table.numbers(name) for name in features])


def is_nested(cells: Cells) -> bool:
    """Whether a column has an array in each row."""
    if isinstance(cells, np.ndarray) and cells.ndim > 1:
        return True
    return len(cells) > 0 and isinstance(cells[0], list | tuple | np.ndarray)


def _stacked(table: Columns, column: str, cells: Cells) -> AnyArray:
    """The arrays of a column, which all have the shape of the first one."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iuf":
        return cells
    shape = None
    for row, cell in enumerate(cells):
        try:
            found = np.asarray(cell)
        except ValueError:
            found = np.array(None)
        if found.dtype.kind not in "iuf":
            table.fail(row, column, "this is no array of numbers; leave the column out")
        shape = shape or found.shape
        if found.shape != shape:
            table.fail(
                row,
                column,
                f"its shape is {found.shape}, and that of the first row {shape}; cut or pad all "
                "rows to one length",
            )
    return np.array([np.asarray(cell) for cell in cells])


def _target_column(table: Columns, reading: Reading) -> str:
    if reading.target_column is not None:
        return reading.target_column
    for name in _USUAL:
        if name in table.cells:
            return name
    raise InputError(
        f"{table.where}: which column is the target? There are {_listed(table)}; name one in "
        "data.target_column"
    )


def _check_column(table: Columns, key: str, name: str | None) -> None:
    if name is not None and name not in table.cells:
        raise InputError(
            f"{key} = {name}: {table.where} has no such column{suggest(name, table.cells)}; there "
            f"are {_listed(table)}"
        )


def _listed(table: Columns) -> str:
    names = list(table.cells)
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _targets(table: Columns, column: str, reading: Reading) -> AnyArray:
    """The targets: floats if they are numbers; otherwise names of classes."""
    cells = table.cells[column]
    floats = isinstance(cells, np.ndarray) and cells.dtype.kind == "f"
    if reading.target == "numbers" or (reading.target == "auto" and floats):
        return table.numbers(column)
    names = table.names(column)
    if reading.target == "auto" and names.dtype.kind == "U" and all(map(_is_number, names)):
        return table.numbers(column)
    return names


def _numbered(
    targets: AnyArray, rows: list[Int64], table: Columns, column: str
) -> tuple[Int64, str]:
    """Classes numbered from 0 in the order of their names; and that order, if they were not so."""
    known = np.unique(targets[rows[0]])
    numbers = np.minimum(np.searchsorted(known, targets), len(known) - 1)
    if (strange := np.flatnonzero(known[numbers] != targets)).size:
        row = int(strange[0])
        table.fail(
            row,
            column,
            f"no training row has the class {targets[row]}; remove the row, or add some",
        )
    if np.array_equal(known, np.arange(len(known))):
        return numbers.astype(np.int64), ""
    order = ", ".join(f"{number} = {name}" for number, name in enumerate(known[:_SHOWN].tolist()))
    return numbers.astype(np.int64), order + (", ..." if len(known) > _SHOWN else "")


def _split(targets: AnyArray, devices: AnyArray | None, where: str) -> list[Int64]:
    """Training and test rows: a fifth of each device's rows is for test, the same for all seeds."""
    generator = derive(0, "table-split").numpy()
    owners = np.zeros(len(targets), np.int64) if devices is None else devices
    test = np.zeros(len(targets), bool)
    for owner in np.unique(owners):
        rows = np.flatnonzero(owners == owner)
        test[generator.permutation(rows)[: len(rows) // _ROWS_PER_TEST_ROW]] = True
    if targets.dtype.kind != "f":  # a class needs a training row
        test &= np.isin(targets, targets[~test])
    if not test.any():
        raise InputError(
            f"{where}: no device has {_ROWS_PER_TEST_ROW} rows, of which one would be for test; "
            "give a directory of train.csv and test.csv"
        )
    return [np.flatnonzero(~test), np.flatnonzero(test)]


def _joined(tables: Sequence[Columns]) -> Columns:
    """The rows of all tables, which have the same columns."""
    first = tables[0]
    cells = dict(first.cells)
    places = list(first.places)
    for other in tables[1:]:
        if different := set(cells) ^ set(other.cells):
            raise InputError(
                f"{first.where} and {other.where}: column {min(different)} is in one of them only; "
                "give both the same columns"
            )
        cells = {name: _end_to_end(own, other.cells[name]) for name, own in cells.items()}
        places += other.places
    where = " and ".join(table.where for table in tables)
    return Columns(where, cells, places)


def _end_to_end(one: Cells, other: Cells) -> Cells:
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    if arrays and np.shape(one)[1:] == np.shape(other)[1:]:
        return np.concatenate([one, other])
    return [*one, *other]


def _read(path: Path) -> Columns:
    if path.suffix == ".parquet":
        return _read_parquet(path)
    header, rows, lines = csv_table(path, _WHAT, "a header line and a line per sample")
    if not rows:
        raise InputError(f"{path}: there is no row below the header; write a line per sample")
    cells: dict[str, Cells] = {
        name: [row[column] for row in rows] for column, name in enumerate(header)
    }
    return Columns(str(path), cells, [f"{path}, {line}" for line in lines])


def _read_parquet(path: Path) -> Columns:
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError(
            f"{path}: Parquet is read by pyarrow; install it with pip install 'camu-fl[hf]', or "
            "write a CSV file"
        )
    import pyarrow  # deferred: only Parquet needs it

    found = parquet_table(path, _WHAT, "write it again")
    if not found.num_rows:
        raise InputError(f"{path}: there is no row; write a row per sample")
    places = [f"{path}, row {row + 1}" for row in range(found.num_rows)]
    cells: dict[str, Cells] = {}
    for name, column in zip(found.column_names, found.columns, strict=True):
        if name in cells:
            raise InputError(f"{path}, column {name}: appears twice; remove one")
        kinds = pyarrow.types
        plain = kinds.is_integer(column.type) or kinds.is_floating(column.type)
        if plain and not column.null_count:
            cells[name] = column.to_numpy()
        elif kinds.is_nested(column.type):
            raise InputError(
                f"{path}, column {name}: {column.type} is not one value per row; leave it out"
            )
        else:
            cells[name] = column.to_pylist()
    return Columns(str(path), cells, places)
