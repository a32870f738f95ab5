"""Read the SNR measured between the devices of a fleet: a K x K matrix in dB, as CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from camu.arrays import Float64
from camu.errors import InputError
from camu.files import read_text
from camu.world.table import csv_rows

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
                f"{path}, header, column {number}: {name!r} is no device of the fleet; name each "
                f"of its {len(ids)} ids once, or write {len(ids)} rows without a header"
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
