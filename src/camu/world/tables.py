"""Tables in CSV and JSON files: their rows, their columns as arrays, and the matrix of SNR.

Errors name the file, the line, the column, the value and the fix.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.config.fields import (
    LARGEST_COORDINATE_M,
    LARGEST_HZ,
    LARGEST_JOULES,
    LARGEST_WATTS,
    SMALLEST_WATTS,
)
from camu.errors import InputError
from camu.files import csv_rows, csv_table, read_json

LOWEST_DB = -300.0
LARGEST_COUNT = 10**12
SYMMETRY_DB = 1e-6  # two directions of a link may differ by this much
_LONGEST_TEXT = 200
ALIASES = {"lat": "latitude", "lon": "longitude"}

# The least and the largest number in a column, and the rule in words.
_POWER = f"a power is a positive number from {SMALLEST_WATTS:g} to {LARGEST_WATTS:g} W"
_COORDINATE = f"a coordinate lies within {LARGEST_COORDINATE_M:g} m of the origin"
_LIMITS: dict[str, tuple[float, float, str]] = {
    **dict.fromkeys("xyz", (-LARGEST_COORDINATE_M, LARGEST_COORDINATE_M, _COORDINATE)),
    "latitude": (-90, 90, "a latitude lies between -90 and 90 degrees"),
    "longitude": (-180, 180, "a longitude lies between -180 and 180 degrees"),
    "distance_m": (
        *(0, LARGEST_COORDINATE_M),
        f"a distance is not negative and at most {LARGEST_COORDINATE_M:g} m",
    ),
    "gain_db": (
        *(LOWEST_DB, 0),
        f"a gain is from {LOWEST_DB:g} dB to 0 dB, since the base station cannot receive more than "
        "was sent; write a path loss of 80 dB as -80",
    ),
    "snr_db": (
        *(LOWEST_DB, -LOWEST_DB),
        f"an SNR is a number from {LOWEST_DB:g} to {-LOWEST_DB:g} dB",
    ),
    "rssi_dbm": (
        *(LOWEST_DB, 60),
        f"a received power is a number from {LOWEST_DB:g} to 60 dBm, such as -95",
    ),
    "cpu_hz": (1, LARGEST_HZ, f"a frequency is a positive number from 1 to {LARGEST_HZ:g} Hz"),
    "cycles_per_sample": (1e-6, 1e15, "cycles per sample are from 1e-6 to 1e15"),
    "capacitance": (1e-60, 1, "a capacitance is from 1e-60 to 1 W s^3"),
    "power_watts": (SMALLEST_WATTS, LARGEST_WATTS, _POWER),
    "max_power_watts": (SMALLEST_WATTS, LARGEST_WATTS, _POWER),
    "battery_joules": (
        *(0, LARGEST_JOULES),
        f"an energy is from 0 to {LARGEST_JOULES:g} J; leave it empty if it is not known",
    ),
    "solar_watts_peak": (0, LARGEST_WATTS, f"a power is from 0 to {LARGEST_WATTS:g} W"),
    "sleep_watts": (0, LARGEST_WATTS, f"a power is from 0 to {LARGEST_WATTS:g} W"),
    "idle_watts": (0, LARGEST_WATTS, f"a power is from 0 to {LARGEST_WATTS:g} W"),
    "static_watts": (0, LARGEST_WATTS, f"a power is from 0 to {LARGEST_WATTS:g} W"),
    "rate_bps": (1e-6, 1e15, "a rate is a positive number from 1e-6 to 1e15 bit/s"),
    "harvest_watts": (0, LARGEST_WATTS, f"a power is from 0 to {LARGEST_WATTS:g} W"),
}


BROKEN = "\0cells"  # not a column: why a row could not be divided into cells
MAINS_CELL = "mains"  # in the column battery_joules: the device has no battery
_MOST_SHOWN = 12  # problems in one message


class Problem(NamedTuple):
    """A cell that is refused."""

    row: int
    column: str
    value: str
    text: str


@dataclass(frozen=True)
class Table:
    """The rows of a file: the cells by column, and the place of each row in the file.

    A cell is the text of a CSV file or a value of a JSON file; every row has all columns. What is
    wrong is refused at once, or collected in `problems` until `check`, if there is such a list.
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    places: list[str]
    problems: list[Problem] | None = None

    def fail(self, row: int, column: str, problem: str) -> None:
        """Refuse a cell."""
        found = Problem(row, column, self._cell(row, column), problem)
        if self.problems is None:
            raise InputError(self.sentence(found))
        if not column or BROKEN not in self.rows[row]:  # its cells mean nothing
            self.problems.append(found)

    def sentence(self, problem: Problem) -> str:
        """A problem with the place of its cell."""
        return f"{self.path}, {self._line(problem)}"

    def _line(self, problem: Problem) -> str:
        about = f", column {problem.column}" if problem.column else ""
        return f"{self.places[problem.row]}{about}: {problem.text}"

    def check(self) -> None:
        """Refuse the table if problems were collected, with all of them."""
        found = sorted(set(self.problems or ()), key=lambda problem: problem.row)
        if len(found) == 1:
            raise InputError(self.sentence(found[0]))
        if found:
            rows = len({problem.row for problem in found})
            lines = [self._line(one) for one in found[:_MOST_SHOWN]]
            left = len(found) - len(lines)
            more = [f"and {left} more; `camu fleet check {self.path}` lists all"] if left else []
            raise InputError(
                "\n  ".join([f"{self.path}: {len(found)} problems in {rows} rows", *lines, *more])
            )

    def refuse(self, wrong: npt.NDArray[np.bool_], column: str, rule: str) -> None:
        """Refuse the rows that are wrong; the message has the cell and the rule."""
        for row in np.flatnonzero(wrong).tolist():
            self.fail(row, column, f"{self._cell(row, column) or 'the cell is empty'}; {rule}")

    def refuse_sound(self, wrong: npt.NDArray[np.bool_], column: str, rule: str) -> None:
        """Refuse the rows that are wrong, but for those with a cell that is refused already."""
        sound = np.zeros(len(self.rows), dtype=bool)
        sound[self.sound_rows(wrong)] = True
        self.refuse(sound, column, rule)

    def sound_rows(self, wrong: npt.NDArray[np.bool_]) -> list[int]:
        """The rows that are wrong, but for those with a cell that is refused already."""
        known = {problem.row for problem in self.problems or ()}
        return [row for row in np.flatnonzero(wrong).tolist() if row not in known]

    def _cell(self, row: int, column: str) -> str:
        cell = self.rows[row].get(column)
        return "" if cell is None else str(cell).strip()[:40]

    def refuse_half(self, one: str, other: str, first: Float64, second: Float64) -> None:
        """Refuse a row with only one of two columns that belong together."""
        rule = f"give {one} and {other}, or neither"
        self.refuse_sound(np.isnan(first) & ~np.isnan(second), one, rule)
        self.refuse_sound(np.isnan(second) & ~np.isnan(first), other, rule)

    def numbers(self, column: str) -> Float64:
        """The numbers of a column, within its limits; nan where a cell or the column is missing."""
        values = self.floats(column, ("", MAINS_CELL) if column == "battery_joules" else ("",))
        low, high, rule = _LIMITS[column]
        self.refuse((values < low) | (values > high), column, rule)
        return values

    def counts(self, column: str, missing: npt.ArrayLike = False) -> Int64:
        """The whole numbers of a column from 0; only rows in `missing` may have none."""
        values = self.floats(column)
        empty = np.isnan(values) & np.array([not self._cell(k, column) for k in range(len(values))])
        self.refuse(
            empty & ~np.asarray(missing), column, "write a whole number, 0 if there are none"
        )
        wrong = (values < 0) | (values > LARGEST_COUNT) | (values != np.floor(values))
        self.refuse(
            wrong & ~np.isnan(values), column, f"write a whole number from 0 to {LARGEST_COUNT:g}"
        )
        return np.where(wrong | np.isnan(values), 0, values).astype(np.int64)

    def floats(self, column: str, empty: Sequence[str] = ("",)) -> Float64:
        """The finite numbers of a column; nan for such cells, and where the column is missing."""
        cells = [row.get(column) for row in self.rows]
        found = [self._float(row, column, cell, empty) for row, cell in enumerate(cells)]
        return np.array(found, dtype=np.float64)

    def _float(self, row: int, column: str, cell: Any, empty: Sequence[str]) -> float:
        if not self._is_plain(row, column, cell, "a number"):
            return math.nan
        if cell is None or (isinstance(cell, str) and cell.strip().lower() in empty):
            return math.nan
        try:
            value = float(cell)
        except (ValueError, OverflowError):
            self.fail(row, column, f"{str(cell)[:40]!r} is not a number; write digits, and a point")
            return math.nan
        if not math.isfinite(value):
            self.fail(row, column, f"{str(cell).strip()!r} is not a finite number; write one")
            return math.nan
        return value

    def texts(self, column: str) -> tuple[str, ...]:
        """The texts of a column; "" where a cell or the column is missing."""
        found = []
        for number, row in enumerate(self.rows):
            cell = row.get(column)
            plain = self._is_plain(number, column, cell, "text")
            text = "" if cell is None or not plain else str(cell).strip()
            if not text.isprintable() or len(text) > _LONGEST_TEXT:
                rule = f"write at most {_LONGEST_TEXT} characters that can be printed"
                self.fail(number, column, f"{ascii(text)[:40]}; {rule}")
            found.append(text)
        return tuple(found)

    def ids(self) -> tuple[str, ...]:
        """The texts of the column id; all of them differ, and none is empty."""
        names, first = self.texts("id"), dict[str, int]()
        for row, name in enumerate(names):
            if not name:
                self.fail(row, "id", "the cell is empty; give every row a name of its own")
            if (before := first.setdefault(name, row)) != row:
                there = self.places[before]
                self.fail(row, "id", f"{name!r} is already the id of {there}; ids must differ")
        return names

    def _is_plain(self, row: int, column: str, cell: Any, wanted: str) -> bool:
        """Whether a cell is text, a number or nothing; JSON has other values, too."""
        if isinstance(cell, bool) or not isinstance(cell, str | int | float | None):
            self.fail(row, column, f"{json.dumps(cell)[:40]} is not {wanted}; write {wanted}")
            return False
        return True


def read_table(path: Path) -> Table:
    """The table in a CSV file with a header, or in a JSON file that is a list of objects.

    The columns `lat` and `lon` are `latitude` and `longitude`.
    """
    if path.suffix.lower() == ".json":
        table = _from_json(path)
    else:
        content = "a header line and a line per device"
        table = _from_csv(path, "a CSV or JSON file of devices", content)
    short = [name for name in ALIASES if name in table.columns]
    names = {name: ALIASES[name] for name in short if ALIASES[name] not in table.columns}
    if not names:
        return table
    rows = [{names.get(name, name): cell for name, cell in row.items()} for row in table.rows]
    return replace(table, columns=tuple(names.get(n, n) for n in table.columns), rows=rows)


def read_trace(
    path: str | Path, key: str, header: Sequence[str], optional: Sequence[str] = ()
) -> Table:
    """The table of a trace, a CSV file with this header; `key` names the trace in errors.

    The `optional` columns may follow, all of them.
    """
    columns = ",".join(header)
    table = _from_csv(Path(path), f"a CSV file with the header {columns}", f"the header {columns}")
    if table.columns not in (tuple(header), (*header, *optional)):
        more = f" or `{columns},{','.join(optional)}`" if optional else ""
        raise InputError(f"{path}, line 1: the header of {key} must be `{columns}`{more}")
    return table


def _from_csv(path: Path, what: str, content: str) -> Table:
    header, rows, places = csv_table(path, what, content)
    named = [dict(zip(header, row, strict=True)) for row in rows]
    return Table(path, tuple(header), named, places)


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


def read_snr(path: Path, ids: tuple[str, ...]) -> Float64:
    """The symmetric matrix in the order of `ids`, in dB; its diagonal is ignored.

    Without a header, rows and columns are in the order of the fleet file. A header names the
    devices in any order; the rows then follow the header's order, and may begin with their id.
    """
    rows, places = csv_rows(path, "a CSV file with the SNR between devices")
    names = list(ids)
    if len(rows) == len(ids) + 1:
        names = [name.strip() for name in rows[0]]
        rows, places = rows[1:], places[1:]
        labelled = len(names) == len(ids) + 1 and names[0] in ("", "id")
        names = names[1:] if labelled else names
        _check_names(path, names, ids)
        if labelled:
            rows = _without_labels(path, rows, places, names)
    wanted = f"write {len(ids)} rows of {len(ids)} numbers, one per device of the fleet"
    if len(rows) != len(ids):
        raise InputError(f"{path}: {len(rows)} rows for {len(ids)} devices; {wanted}")
    matrix = np.empty((len(ids), len(ids)))
    for number, (row, place) in enumerate(zip(rows, places, strict=True)):
        if len(row) != len(ids):
            raise InputError(f"{path}, {place}: {len(row)} cells for {len(ids)} devices; {wanted}")
        row[number] = "0"  # the diagonal may hold anything
        matrix[number] = [_decibels(cell) for cell in row]
        if not (good := np.abs(matrix[number]) <= -LOWEST_DB).all():
            wrong = int(np.argmin(good))
            raise InputError(
                f"{path}, {place}, column {names[wrong]}: "
                f"{row[wrong].strip()[:40] or 'an empty cell'} is not an SNR in dB; write a number "
                f"from {LOWEST_DB:g} to {-LOWEST_DB:g}, such as -200 where there is no link"
            )
    _check_symmetric(path, matrix, names)
    place_of = {name: place for place, name in enumerate(names)}
    order = np.array([place_of[name] for name in ids], dtype=np.int64)
    matrix = 0.5 * (matrix + matrix.T)[np.ix_(order, order)]
    others = matrix[~np.eye(len(ids), dtype=bool)]
    # A device's link to itself means nothing; the best of the others keeps the diagonal harmless.
    np.fill_diagonal(matrix, others.max() if others.size else 0.0)
    return matrix


def _decibels(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _check_names(path: Path, header: list[str], ids: tuple[str, ...]) -> None:
    known = set(ids)
    for number, name in enumerate(header, start=1):
        if name not in known:
            raise InputError(
                f"{path}, header, column {number}: {name!r} is not a device of the fleet; "
                f"name each of its {len(ids)} ids once, or write {len(ids)} rows without a header"
            )
    missing = known - set(header)
    if missing or len(header) != len(ids):
        what = f"{min(missing)!r} is missing" if missing else "an id appears twice"
        raise InputError(f"{path}, header: {what}; name each of the {len(ids)} devices once")


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


def _check_symmetric(path: Path, matrix: Float64, names: list[str]) -> None:
    wrong = np.abs(matrix - matrix.T) > SYMMETRY_DB
    if wrong.any():
        one, other = divmod(int(np.argmax(wrong)), len(names))
        here, there = float(matrix[one, other]), float(matrix[other, one])
        raise InputError(
            f"{path}, row {names[one]}, column {names[other]}: {here:.10g} dB, but row "
            f"{names[other]}, column {names[one]} holds {there:.10g} dB; the matrix must be "
            f"symmetric: write their mean {0.5 * (here + there):.10g} in both cells"
        )
