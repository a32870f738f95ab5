"""Tables in files: named columns from CSV or JSON, and the SNR measured between devices."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from camu.arrays import Float64
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


LARGEST_DB = 300.0
SYMMETRY_DB = 1e-6  # two directions of a link may differ by this much


def read_snr(path: Path, ids: tuple[str, ...]) -> Float64:
    """The symmetric matrix in the order of `ids`, in dB; its diagonal is ignored.

    Without a header, rows and columns are in the order of the fleet file. A header names the
    devices in any order; the rows then follow the header's order, and may begin with their id.
    """
    rows, places = csv_rows(path, read_text(path, "a CSV file with the SNR between devices"))
    order = list(range(len(ids)))
    if len(rows) == len(ids) + 1:
        header = [name.strip() for name in rows[0]]
        rows, places = rows[1:], places[1:]
        labelled = len(header) == len(ids) + 1 and header[0] in ("", "id")
        order = _order(path, header[1:] if labelled else header, ids)
        if labelled:
            rows = _without_labels(path, rows, places, [ids[k] for k in order])
    _check_size(path, rows, places, len(ids))
    names = [ids[k] for k in order]
    columns = np.array(order, dtype=np.int64)
    matrix = np.empty((len(ids), len(ids)))
    for number, (row, place) in enumerate(zip(rows, places, strict=True)):
        row[number] = "0"  # the diagonal may hold anything
        matrix[order[number], columns] = _numbers(path, row, place, names)
    _check_symmetric(path, matrix, ids)
    matrix = 0.5 * (matrix + matrix.T)
    others = matrix[~np.eye(len(ids), dtype=bool)]
    # A device's link to itself means nothing; the best of the others keeps the diagonal harmless.
    np.fill_diagonal(matrix, others.max() if others.size else 0.0)
    return matrix


def _order(path: Path, header: list[str], ids: tuple[str, ...]) -> list[int]:
    """The index in the fleet of each name of the header."""
    index = {name: k for k, name in enumerate(ids)}
    for number, name in enumerate(header, start=1):
        if name not in index:
            raise InputError(
                f"{path}, header, column {number}: {name!r} is not a device of the fleet; "
                f"name each of its {len(ids)} ids once, or write {len(ids)} rows without a header"
            )
    missing = set(ids) - set(header)
    if missing or len(header) != len(ids):
        what = f"{min(missing)!r} is missing" if missing else "an id appears twice"
        raise InputError(f"{path}, header: {what}; name each of the {len(ids)} devices once")
    return [index[name] for name in header]


def _without_labels(
    path: Path, rows: list[list[str]], places: list[str], names: list[str]
) -> list[list[str]]:
    for row, place, name in zip(rows, places, names, strict=True):
        if row[0].strip() != name:
            raise InputError(
                f"{path}, {place}, column 1: {row[0].strip()!r}, but the header's order "
                f"asks for {name!r}; put rows and columns in the same order"
            )
    return [row[1:] for row in rows]


def _check_size(path: Path, rows: list[list[str]], places: list[str], count: int) -> None:
    wanted = f"write {count} rows of {count} numbers, one per device of the fleet"
    if len(rows) != count:
        raise InputError(f"{path}: {len(rows)} rows for {count} devices; {wanted}")
    for row, place in zip(rows, places, strict=True):
        if len(row) != count:
            raise InputError(f"{path}, {place}: {len(row)} cells for {count} devices; {wanted}")


def _numbers(path: Path, row: list[str], place: str, names: list[str]) -> Float64:
    """The numbers of a row, or an error that names the cell."""
    try:
        values = np.array(list(map(float, row)))
        if (np.abs(values) <= LARGEST_DB).all():
            return values
    except ValueError:
        pass
    for cell, name in zip(row, names, strict=True):
        text = cell.strip() or "an empty cell"
        try:
            good = -LARGEST_DB <= float(cell) <= LARGEST_DB
        except ValueError:
            good = False
        if not good:
            raise InputError(
                f"{path}, {place}, column {name}: {text[:40]} is not an SNR in dB; write a number "
                f"from {-LARGEST_DB:g} to {LARGEST_DB:g}, such as -200 where there is no link"
            )
    raise AssertionError("some cell was no SNR")


def _check_symmetric(path: Path, matrix: Float64, ids: tuple[str, ...]) -> None:
    wrong = np.abs(matrix - matrix.T) > SYMMETRY_DB
    if wrong.any():
        one, other = divmod(int(np.argmax(wrong)), len(ids))
        here, there = float(matrix[one, other]), float(matrix[other, one])
        raise InputError(
            f"{path}, row {ids[one]}, column {ids[other]}: {here:.10g} dB, but row {ids[other]}, "
            f"column {ids[one]} holds {there:.10g} dB; the matrix must be symmetric: write their "
            f"mean {0.5 * (here + there):.10g} in both cells"
        )
