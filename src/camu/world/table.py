"""Read a table of named columns from a CSV file with a header, or from a JSON list of objects."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

from camu.errors import InputError
from camu.files import read_json, read_text


class Table(NamedTuple):
    """The rows of a file: the cells by column, and the place of each row in the file.

    A cell is the text of a CSV file or a value of a JSON file; every row has all columns.
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    places: list[str]


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
    for row, place in zip(rows[1:], places[1:], strict=True):
        if len(row) != len(header):
            raise InputError(
                f"{path}, {place}: {len(row)} cells for the {len(header)} columns of the header; "
                "write one cell per column, empty where it may be"
            )
    named = [dict(zip(header, row, strict=True)) for row in rows[1:]]
    return Table(path, tuple(header), named, places[1:])


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
    columns = tuple(dict.fromkeys(name for item in items for name in item))
    rows = [{name: item.get(name) for name in columns} for item in items]
    return Table(path, columns, rows, [f"item {number}" for number in range(1, len(items) + 1)])
