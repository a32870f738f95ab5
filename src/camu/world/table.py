"""Read a table of named columns from CSV or JSON, and turn columns into checked numbers.

Columns are converted as a whole; only when that fails is the cell searched that is to blame, so
that large files are fast and every error still names file, row and column.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.errors import InputError
from camu.files import read_json, read_text

_CELL_TYPES = {str, int, float, type(None)}
Cell = Any  # text of a CSV file, or a value of a JSON file; None and "" are empty


@dataclass(frozen=True)
class Table:
    """Columns by name; `rows` says where each row stands in the file."""

    path: Path
    columns: dict[str, list[Cell]]
    rows: Sequence[str]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __len__(self) -> int:
        return len(self.rows)

    def fail(self, row: int, column: str, problem: str) -> NoReturn:
        """Refuse the file because of one cell."""
        raise InputError(f"{self.path}, {self.rows[row]}, column {column}: {problem}")

    def text(self, name: str) -> list[str]:
        """A column of texts; empty cells are ""."""
        self._check_types(name, "text")
        return ["" if cell is None else str(cell).strip() for cell in self.columns[name]]

    def numbers(self, name: str) -> Float64:
        """A column of finite numbers; nan where a cell is empty."""
        cells = self.columns[name]
        self._check_types(name, "a number")
        empty = np.array([c is None or not str(c).strip() for c in cells], dtype=bool)
        if empty.any():
            cells = [math.nan if gone else c for c, gone in zip(cells, empty, strict=True)]
        try:
            values = np.array(list(map(float, cells)), dtype=np.float64)
        except (ValueError, OverflowError):
            self._blame_text(name, cells)
        bad = ~np.isfinite(values) & ~empty
        if bad.any():
            row = int(np.argmax(bad))
            self.fail(
                row, name, f"{str(cells[row]).strip()!r} is not a finite number; write a finite one"
            )
        return values

    def check(self, name: str, values: Float64, wrong: npt.NDArray[np.bool_], rule: str) -> None:
        """Refuse the first row of a column where `wrong` holds, with the rule that it breaks."""
        if wrong.any():
            row = int(np.argmax(wrong))
            shown = "the cell is empty" if np.isnan(values[row]) else f"{values[row]:.15g}"
            self.fail(row, name, f"{shown}; {rule}")

    def _check_types(self, name: str, wanted: str) -> None:
        """Refuse true and false, lists and objects of a JSON file."""
        cells = self.columns[name]
        if not set(map(type, cells)) <= _CELL_TYPES:
            row = next(i for i, cell in enumerate(cells) if type(cell) not in _CELL_TYPES)
            self.fail(row, name, f"{json.dumps(cells[row])[:40]} is not {wanted}; write {wanted}")

    def _blame_text(self, name: str, cells: Sequence[Cell]) -> NoReturn:
        for row, cell in enumerate(cells):
            try:
                float(cell)
            except (ValueError, OverflowError):
                shown = str(cell)[:40]
                self.fail(row, name, f"{shown!r} is not a number; write digits, with a point")
        raise AssertionError("some cell was no number")


def read_table(path: Path) -> Table:
    """The table in a CSV file with a header, or in a JSON file that is a list of objects."""
    if path.suffix.lower() == ".json":
        return _from_json(path)
    return _from_csv(path, read_text(path, "a CSV or JSON file of devices"))


def csv_rows(path: Path, content: str) -> tuple[list[list[str]], list[str]]:
    """The rows of a CSV file that are not blank, and the line where each ends."""
    rows, places = [], []
    reader = csv.reader(io.StringIO(content, newline=""))
    try:
        for row in reader:
            if row:
                rows.append(row)
                places.append(f"line {reader.line_num}")
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: is not valid CSV ({error}); "
            "write comma-separated columns"
        ) from None
    return rows, places


def _from_csv(path: Path, content: str) -> Table:
    rows, places = csv_rows(path, content)
    if not rows:
        raise InputError(f"{path}: is empty; write a header line and a line per device")
    header = [name.strip() for name in rows[0]]
    _check_header(path, places[0], header)
    rows, places = rows[1:], places[1:]
    if any(length != len(header) for length in set(map(len, rows))):
        row = next(i for i, cells in enumerate(rows) if len(cells) != len(header))
        raise InputError(
            f"{path}, {places[row]}: {len(rows[row])} cells for the {len(header)} columns of the "
            "header; write one cell per column, empty where it may be"
        )
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in header]
    return Table(path, dict(zip(header, columns, strict=True)), places)


def _check_header(path: Path, place: str, header: list[str]) -> None:
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise InputError(f"{path}, {place}: columns must be separated by commas")
    seen = set()
    for number, name in enumerate(header, start=1):
        if not name:
            raise InputError(
                f"{path}, {place}, column {number}: has no name; name it in the header"
            )
        if name in seen:
            raise InputError(f"{path}, {place}, column {name}: appears twice; remove one")
        seen.add(name)


def _from_json(path: Path) -> Table:
    wanted = 'a list of objects, [{"id": "a", "x": 0, ...}, ...]'
    items = read_json(path, wanted)
    if not isinstance(items, list):
        raise InputError(f"{path}: is not a list; write {wanted}")
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise InputError(f"{path}, item {number}: is not an object; write {wanted}")
    names = dict.fromkeys(name for item in items for name in item)
    columns = {name: [item.get(name) for item in items] for name in names}
    return Table(path, columns, [f"item {number}" for number in range(1, len(items) + 1)])
