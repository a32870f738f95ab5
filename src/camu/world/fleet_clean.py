"""A fleet's file as its owner has it: separators, decimal commas, names and units are recognised.

Everything that is understood in another way than it was written is a `Change`, so that it can be
said; what is wrong is left for the reader of the fleet to refuse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from camu.errors import InputError, suggest
from camu.files import csv_table, read_bytes, to_csv
from camu.world.boards import built_in
from camu.world.fleet_words import KNOWN_COLUMNS, MAINS, TOTALS, UNKNOWN, Unit, column_of, plain
from camu.world.link_types import LINK_NAMES
from camu.world.tables import ALIASES, MAINS_CELL, Table, read_table

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?", re.IGNORECASE)
_COUNT = re.compile(r"\d{1,3}(\.\d{3})+|\d+,0+")  # where a point can only divide thousands
_TEXTS = ("id", "region", "link", "board")
_WHAT = "a CSV or JSON file of devices"


class Change(NamedTuple):
    """Something that was understood in another way than it was written."""

    place: str  # "" for the whole file
    column: str  # "" for the whole row
    value: str
    said: str


@dataclass(frozen=True)
class Cleaned:
    """The table of a fleet's file, and what was understood in another way."""

    table: Table
    changes: tuple[Change, ...] = ()

    @property
    def notes(self) -> list[str]:
        """A sentence per kind of change."""
        kinds: dict[tuple[str, str], list[Change]] = {}
        for change in self.changes:
            kinds.setdefault((change.column, change.said), []).append(change)
        notes = []
        for (column, said), found in kinds.items():
            places = [change.place for change in found if change.place]
            where = f", {places[0]}" if places else ""
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            about = f", column {column}" if column else ""
            notes.append(f"{self.table.path}{where}{more}{about}: {said}")
        return notes

    def to_csv(self) -> str:
        """The table as a clean CSV file."""
        table = self.table
        rows = ([row.get(name, "") for name in table.columns] for row in table.rows)
        return to_csv([table.columns, *rows])


def read_fleet(path: Path, names: Mapping[str, str] | None = None) -> Cleaned:
    """The table of a fleet's file; `names` says which of its headers are which columns."""
    if path.suffix.lower() == ".json":
        return Cleaned(read_table(path))
    text, changes = _decoded(path)
    mark = _separator(text)
    if mark != ",":
        changes.append(Change("", "", mark, f"columns are separated by {_SEPARATORS[mark]}"))
    content = "a header line and a line per device"
    header, rows, places = csv_table(path, _WHAT, content, text, mark)
    columns, units = _columns(path, header, names or {}, changes)
    as_boards = _boards_in(columns, header, rows, names or {}, changes)
    # A point between thousands and a decimal comma are found where cells are not divided by commas.
    decimal_comma = mark != "," and any(
        _COMMA.fullmatch(cell.strip()) for row in rows for cell in row
    )
    if decimal_comma:
        changes.append(Change("", "", "", "numbers are written with a decimal comma"))
    table = Table(path, tuple(columns), [], [])
    for row, place in zip(rows, places, strict=True):
        cells = dict(zip(columns, row, strict=True))
        if not any(cell.strip() for cell in row):
            changes.append(Change(place, "", "", "the row is blank and left out"))
        elif _is_total(cells):
            name = cells.get("id", "").strip()
            changes.append(Change(place, "", name, "this is a row of totals and left out"))
        else:
            cells |= {"board": _board(cells["board"].strip(), place, changes)} if as_boards else {}
            table.rows.append(_cells(cells, units, decimal_comma, place, changes))
            table.places.append(place)
    return Cleaned(table, tuple(changes))


def _decoded(path: Path) -> tuple[str, list[Change]]:
    """The text of a file in UTF-8, UTF-16 or Windows' encoding of Western Europe."""
    data = read_bytes(path, _WHAT)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    changes = []
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = data.decode(encoding, errors="replace")
    if encoding != "utf-8-sig":
        changes.append(Change("", "", encoding, f"the file is written in {encoding}, not in UTF-8"))
    return text.replace("\r\n", "\n").replace("\r", "\n"), changes


def _separator(text: str) -> str:
    """What separates columns: the mark that is most frequent in the header."""
    header = next((line for line in text.split("\n") if line.strip()), "")
    counts = Counter({mark: header.count(mark) for mark in (",", *_SEPARATORS)})
    return max((",", *_SEPARATORS), key=lambda mark: counts[mark])


def _columns(
    path: Path, header: list[str], names: Mapping[str, str], changes: list[Change]
) -> tuple[list[str], dict[str, Unit]]:
    """The columns that headers mean, and the units of those that are written in another one."""
    units: dict[str, Unit] = {}
    columns: list[str] = []
    for given, wanted in names.items():
        if given not in header:
            raise InputError(
                f"--map {given}={wanted}: {path} has no column {given}; it has {', '.join(header)}"
            )
    exact = set(header)
    for name in header:
        column, unit, written = name, None, ""
        if name in names:
            column = names[name]
            found = column_of(f"{column.rpartition('_')[0] or column} {_unit_in(name)}")
            unit, written = (found[1], found[2]) if found and found[0] == column else (None, "")
        elif (found := column_of(name)) and found[0] not in exact:
            column, unit, written = found
        if column in columns:
            before = header[columns.index(column)]
            raise InputError(
                f"{path}: the columns {before} and {name} both mean {column}; rename one, or say "
                f"which with --map"
            )
        columns.append(column)
        if unit is not None:
            units[column] = unit
        if column != name and name not in ALIASES:
            in_unit = f", from {written}" if unit is not None else ""
            changes.append(Change("", name, name, f"is read as {column}{in_unit}"))
    return columns, units


def _boards_in(
    columns: list[str],
    header: list[str],
    rows: list[list[str]],
    names: Mapping[str, str],
    changes: list[Change],
) -> bool:
    """Whether a column that sounds like clocks holds names of computers; it is `board` then."""
    if "cpu_hz" not in columns or "board" in columns:
        return False
    place = columns.index("cpu_hz")
    given = [cell for row in rows if (cell := row[place].strip()).lower() not in {"", *UNKNOWN}]
    numbers = any(_NUMBER.fullmatch(cell) for cell in given)
    if header[place] in ("cpu_hz", *names) or numbers or not given:
        return False
    columns[place] = "board"
    said = "holds names of computers, and is read as board"
    changes[:] = [one for one in changes if one.column != header[place]]
    changes.append(Change("", header[place], header[place], said))
    return True


def _board(text: str, place: str, changes: list[Change]) -> str:
    """A board by its name, however it is written: "Raspberry Pi 4 B" is pi-4."""
    if not text or text in built_in():
        return text
    known = {plain(title): name for name, board in built_in().items() for title in
             (name, board.title, name.replace("pi-", "raspberrypi"))}  # fmt: skip
    wanted = plain(text).replace("model", "")
    known = {title.replace("model", ""): name for title, name in known.items()}
    found = known.get(wanted) or known.get(wanted.removesuffix("b"))
    said = (
        f"{text} is read as {found}" if found else f"{text} is no board that camu knows; left out"
    )
    changes.append(Change(place, "board", text, said))
    return found or ""


def _unit_in(header: str) -> str:
    """The last word of a header, where a unit would be."""
    return header.strip(" )]").replace("(", " ").replace("[", " ").replace("_", " ").split()[-1]


def _is_total(cells: Mapping[str, str]) -> bool:
    return any(plain(cells.get(name, "")) in TOTALS for name in ("id", "region"))


def _cells(
    cells: Mapping[str, str],
    units: Mapping[str, Unit],
    decimal_comma: bool,
    place: str,
    changes: list[Change],
) -> dict[str, Any]:
    """A row with numbers as camu writes them, in its own units."""
    row: dict[str, Any] = {}
    for name, cell in cells.items():
        text = cell.strip()
        if name == "link":
            row[name] = _link(text, place, changes)
        elif name in _TEXTS:
            row[name] = cell
        elif text.lower() in UNKNOWN:
            changes.append(Change(place, name, text, "is read as not known"))
            row[name] = ""
        elif name == "battery_joules" and text.lower() in MAINS:
            row[name] = MAINS_CELL
        else:
            count = name == "samples" or name.startswith("label_")
            if decimal_comma and (_COMMA if not count else _COUNT).fullmatch(text):
                text = text.replace(".", "").replace(",", ".")
            row[name] = _in_unit(text, units[name]) if name in units else text
    return row


def _in_unit(text: str, unit: Unit) -> str:
    """A number in camu's unit; what is none stays as it is."""
    try:
        return repr(unit.change(float(text)))
    except (ValueError, OverflowError):
        return text


def _link(text: str, place: str, changes: list[Change]) -> str:
    """A link type by its name, however it is written: "LoRa SF9" is lora-sf9."""
    if not text or text in LINK_NAMES:
        return text
    known = {plain(name): name for name in LINK_NAMES}
    known |= {"wlan": "wifi-n", "wifi": "wifi-n", "4g": "lte", "5g": "nr", "zigbee": "802.15.4"}
    found = known.get(plain(text))
    if found is None or found not in LINK_NAMES:
        return text
    changes.append(Change(place, "link", text, f"{text} is read as {found}"))
    return found


def parse_names(text: str) -> dict[str, str]:
    """The columns that headers are said to be: "Serial=id,Akku=battery_joules"."""
    names = {}
    for part in filter(None, text.split(",")):
        given, _, wanted = (piece.strip() for piece in part.partition("="))
        if not given or not wanted:
            raise InputError(f"--map {part.strip()}: write YOUR-COLUMN=COLUMN, as Serial=id")
        if wanted not in KNOWN_COLUMNS and not wanted.startswith("label_"):
            raise InputError(
                f"--map {part.strip()}: there is no column {wanted}"
                f"{suggest(wanted, KNOWN_COLUMNS)}; use {', '.join(KNOWN_COLUMNS)} or label_0 ..."
            )
        names[given] = wanted
    return names


def is_nowhere(row: Mapping[str, Any]) -> bool:
    """Whether a row has the coordinates 0,0, which devices without a position write."""
    places = [str(row.get(name, "")).strip() for name in ("latitude", "longitude")]
    return all(place and not place.strip("+-0.") for place in places)
