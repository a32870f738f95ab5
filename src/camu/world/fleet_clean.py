"""A fleet's file as its owner has it: separators, decimal commas, names and units are recognised.

Everything that is understood in another way than it was written is a `Change`, so that it can be
said; what is wrong is left for the reader of the fleet to refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from camu.errors import InputError
from camu.files import csv_rows, read_bytes, to_csv
from camu.world.fleet_cells import (
    NOMINAL_VOLTS,
    board_of,
    degrees,
    in_unit,
    link_of,
    number,
    place,
    with_unit,
)
from camu.world.fleet_columns import LABEL, Column, columns_of
from camu.world.fleet_words import CHARGE, KNOWN_COLUMNS, UNKNOWN, column_of, is_mains, is_total
from camu.world.tables import BROKEN, MAINS_CELL, Table, read_table

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_EARTH = ("latitude", "longitude")
_UPLINKS = ("rssi_dbm", "snr_db", "gain_db")  # the first one that is measured is taken
_WHAT = "a CSV or JSON file of devices"
_HEADER_WITHIN = 10  # lines


class Change(NamedTuple):
    """Something that was understood in another way than it was written."""

    place: str  # "" for the whole file
    column: str  # "" for the whole row
    value: str
    said: str
    alike: bool = False  # to be said in one sentence with others of its column


@dataclass(frozen=True)
class Cleaned:
    """The table of a fleet's file, and what was understood in another way."""

    table: Table
    changes: tuple[Change, ...] = ()

    @property
    def notes(self) -> list[str]:
        """A sentence per kind of change."""
        alike = Counter((one.column, one.said) for one in self.changes if one.alike)
        joined: dict[str, list[str]] = {}
        for (column, said), count in alike.items():
            joined.setdefault(column, []).append(f"{said} ({count})" if column else said)
        notes = []
        for column, several in joined.items():
            about = f", column {column}" if column else ""
            notes.append(f"{self.table.path}{about}: {'; '.join(several)}")
        kinds: dict[tuple[str, str], list[Change]] = {}
        for change in self.changes:
            if not change.alike:
                kinds.setdefault((change.column, change.said), []).append(change)
        for (column, said), found in kinds.items():
            places = [change.place for change in found if change.place]
            where = f", {places[0]}" if places else ""
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            about = f", column {column}" if column else ""
            notes.append(f"{self.table.path}{where}{more}{about}: {said}")
        return notes

    def to_csv(self) -> str:
        """The table as a clean CSV file, without columns that mean nothing."""
        table = self.table
        known = [name for name in table.columns if name in KNOWN_COLUMNS or name.startswith(LABEL)]
        return to_csv([known, *([row.get(name, "") for name in known] for row in table.rows)])


class _Raw(NamedTuple):
    """A file before it is understood."""

    header: list[str]
    rows: list[list[Any]]
    places: list[str]
    commas_divide: bool
    broken: dict[int, str]  # rows without as many cells as the header


def read_fleet(path: Path, names: Mapping[str, str] | None = None) -> Cleaned:
    """The table of a fleet's file; `names` says which of its headers are which columns."""
    changes: list[Change] = []
    raw = _from_json(path) if path.suffix.lower() == ".json" else _from_csv(path, changes)
    columns = columns_of(path, raw.header, raw.rows, names or {}, raw.commas_divide)
    short = ("lat", "lon")
    notes = [column.note for column in columns if column.header not in short and column.note]
    changes += [Change("", "", "", note, alike=True) for note in notes]
    if not raw.commas_divide and any(column.known and column.style.comma for column in columns):
        changes.append(Change("", "", "", "numbers are written with a decimal comma"))
    reader = _Rows(columns, changes)
    table = Table(path, reader.names, [], [])
    for index, (row, where) in enumerate(zip(raw.rows, raw.places, strict=True)):
        if (found := reader.read(row, where)) is not None:
            if index in raw.broken:
                found[BROKEN] = raw.broken[index]
            table.rows.append(found)
            table.places.append(where)
    return Cleaned(table, tuple(changes))


def _from_json(path: Path) -> _Raw:
    table = read_table(path)
    rows = [[row.get(name) for name in table.columns] for row in table.rows]
    return _Raw(list(table.columns), rows, table.places, commas_divide=True, broken={})


def _from_csv(path: Path, changes: list[Change]) -> _Raw:
    text = _decoded(path, changes)
    text, mark = _separator(text)
    if mark != ",":
        changes.append(Change("", "", mark, f"columns are separated by {_SEPARATORS[mark]}"))
    lines, places = csv_rows(path, _WHAT, text, mark)
    if not lines:
        raise InputError(f"{path}: is empty; write a header line and a line per device")
    top = _header_row(lines)
    if top:
        said = f"what stands above the header in {places[top]} is left out"
        changes.append(Change("", "", "", said))
    header, rows = [name.strip() for name in lines[top]], lines[top + 1 :]
    while len(header) > 1 and not header[-1]:  # an empty column at the end, as spreadsheets write
        last = len(header) - 1
        filled = sum(len(row) > last and bool(row[last].strip()) for row in rows)
        if 2 * filled > len(rows):
            break
        header.pop()
    for column, name in enumerate(header):
        where = f"{path}, {places[top]}, column"
        if not name:
            raise InputError(f"{where} {column + 1}: has no name; name it in the header")
        if name in header[:column]:
            raise InputError(f"{where} {name}: appears twice; remove one")
    return _Raw(header, rows, places[top + 1 :], mark == ",", _evened(rows, len(header)))


def _evened(rows: list[list[str]], wanted: int) -> dict[int, str]:
    """Give all rows as many cells as the header; returns what is wrong with those that had not."""
    broken = {}
    for index, row in enumerate(rows):
        while len(row) > wanted and not row[-1].strip():
            row.pop()
        if len(row) != wanted and any(cell.strip() for cell in row):
            broken[index] = (
                f"{len(row)} cells for the {wanted} columns of the header; write one cell per "
                "column, empty where it may be"
            )
        row[:] = [*row, *[""] * wanted][:wanted]
    return broken


def _decoded(path: Path, changes: list[Change]) -> str:
    """The text of a file in UTF-8, UTF-16 or Windows' encoding of Western Europe."""
    data = read_bytes(path, _WHAT)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = data.decode(encoding, errors="replace")
    if encoding != "utf-8-sig":
        changes.append(Change("", "", encoding, f"the file is written in {encoding}, not in UTF-8"))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _separator(text: str) -> tuple[str, str]:
    """What separates columns: the mark that is most frequent in one of the first lines.

    Excel may say it in a first line such as `sep=;`, which is blanked.
    """
    marks = (",", *_SEPARATORS)
    first, _, rest = text.partition("\n")
    said = first.strip().strip('"').lower()
    if said.startswith("sep=") and said[4:] in marks:
        return f"\n{rest}", said[4:]
    lines = [line for line in text.split("\n") if line.strip()][:_HEADER_WITHIN]
    counts = {mark: max((line.count(mark) for line in lines[:1]), default=0) for mark in marks}
    if not any(counts.values()):
        counts = {mark: max((line.count(mark) for line in lines), default=0) for mark in marks}
    return text, max(marks, key=lambda mark: counts[mark])


def _header_row(lines: Sequence[list[str]]) -> int:
    """The row of the header; titles may stand above it."""
    meant = [sum(column_of(cell) is not None for cell in row) for row in lines[:_HEADER_WITHIN]]
    best = max(range(len(meant)), key=lambda row: meant[row])
    return best if meant[0] < 2 and meant[best] > 2 else 0


class _Rows:
    """Reads rows with numbers as camu writes them, in its own units."""

    def __init__(self, columns: Sequence[Column], changes: list[Change]) -> None:
        self.columns = columns
        self.changes = changes
        known = [column.name for column in columns]
        self.helpers = {c.name: k for k, c in enumerate(columns) if c.known and c.is_helper}
        self.names = tuple(c.name for c in columns if not (c.known and c.is_helper))
        self.names += _EARTH if "place" in self.helpers else ()
        self.names += ("link",) if "spreading" in self.helpers and "link" not in known else ()
        # Of several measurements of an uplink one counts; files as camu has them are refused.
        ours = {column.name for column in columns if column.exact}
        measured = [name for name in _UPLINKS if name in known]
        self.uplinks = [] if ours >= set(measured) else measured

    def read(self, row: Sequence[Any], where: str) -> dict[str, Any] | None:
        """A row as camu has it; None if it is blank or has totals."""
        texts = [cell.strip() if isinstance(cell, str) else cell for cell in row]
        if not any(text not in ("", None) for text in texts):
            self._change(where, "", "", "the row is blank and left out")
            return None
        cells = dict(zip((column.name for column in self.columns), texts, strict=True))
        named = (cells.get(name) for name in ("id", "region"))
        if any(isinstance(text, str) and is_total(text) for text in named):
            self._change(where, "", str(cells.get("id")), "this is a row of totals and left out")
            return None
        found = {
            column.name: self._cell(column, text, cells, where)
            for column, text in zip(self.columns, texts, strict=True)
            if not (column.known and column.is_helper)
        }
        if "place" in self.helpers:
            found |= dict(zip(_EARTH, place(str(cells["place"] or "")), strict=True))
        if "link" in self.names and "link" not in cells:
            found["link"] = self._link("", str(cells["spreading"] or ""), where)
        for name in self.uplinks[1:]:
            better = next((one for one in self.uplinks if found[one] not in ("", None)), name)
            if name != better and found[name] not in ("", None):
                said = f"{better} says the same of the uplink, and is taken"
                self._change(where, name, str(found[name]), said)
                found[name] = ""
        return found

    def _cell(self, column: Column, cell: Any, cells: Mapping[str, Any], where: str) -> Any:
        if not column.known or cell in ("", None):
            return cell
        name = column.name
        if name in ("id", "region"):
            return cell
        if not isinstance(cell, str):
            unit = column.unit is not None and isinstance(cell, int | float)
            return in_unit(str(cell), column.unit, column.written, 1.0) if unit else cell
        if name == "link":
            return self._link(cell, str(cells.get("spreading") or ""), where)
        if name == "board":
            return self._board(column, cell, where)
        if cell.lower() in UNKNOWN:
            self._change(where, name, cell, "is read as not known")
            return ""
        if name == "battery_joules" and is_mains(cell):
            return MAINS_CELL
        return self._number(column, cell, cells, where)

    def _number(self, column: Column, cell: str, cells: Mapping[str, Any], where: str) -> str:
        """A number in camu's unit."""
        name = column.name
        if name in _EARTH:
            return number(degrees(cell), column.style)
        text, unit, written = with_unit(cell, name)
        if not written:
            unit, written = column.unit, column.written
        text = number(text, column.style)
        volts = 1.0
        if written.lower() in CHARGE:
            given = number(with_unit(str(cells.get("volts") or ""), "volts")[0], column.style)
            try:
                volts = float(given)
            except ValueError:
                volts = NOMINAL_VOLTS
                said = f"no voltage is given; a battery in {written} is taken to have {volts} V"
                self._change(where, name, cell, said)
        elif name == "battery_joules" and not (written or column.exact):
            said = "no unit is given, so it is not used; write it, as Wh, behind the column's name"
            self._change(where, name, cell, said)
            return ""
        return in_unit(text, unit, written, volts)

    def _link(self, cell: str, spreading: str, where: str) -> str:
        found = link_of(cell, spreading)
        if found is not None and found != cell:
            written = cell if not spreading else f"{cell} SF{spreading}".strip()
            self._change(where, "link", cell, f"{written} is read as {found}", alike=True)
        return cell if found is None else found

    def _board(self, column: Column, cell: str, where: str) -> str:
        found = board_of(cell)
        if found is None and column.exact:
            return cell  # it is refused
        if found != cell:
            said = f"is read as {found}" if found else "is no board that camu knows; left out"
            self._change(where, "board", cell, f"{cell} {said}", alike=True)
        return found or ""

    def _change(self, where: str, column: str, value: str, said: str, alike: bool = False) -> None:
        self.changes.append(Change(where, column, value, said, alike))


def is_nowhere(row: Mapping[str, Any]) -> bool:
    """Whether a row has the coordinates 0,0, which devices without a position write."""
    places = [str(row.get(name, "")).strip() for name in _EARTH]
    return all(one and not one.strip("+-0.") for one in places)
