"""Which columns a fleet's file has: by the names of its headers, and by what stands below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from camu.errors import InputError, suggest
from camu.world.fleet_cells import NUMBER, PLAIN, Style, number, style_of, with_unit
from camu.world.fleet_words import (
    CAMU_UNITS,
    CHARGE,
    HELPERS,
    KNOWN_COLUMNS,
    UNITS,
    UNKNOWN,
    Unit,
    column_of,
    label_of,
    unit_of,
)

LABEL = "label_"
_LEAST_FITTING = 0.8  # of the rows in which columns add up to the samples
_GHZ, _MHZ = 20.0, 1e5  # clocks below are in GHz, in MHz
_LEAST_DBM = 5.0  # no small radio sends with so many watts


@dataclass(frozen=True)
class Column:
    """A column of a file: what it means, and the unit and the style of its numbers."""

    header: str
    name: str  # of camu's column or of a helper; the header if it means nothing
    known: bool = False
    exact: bool = False  # named as camu names it, or by --map
    unit: Unit | None = None
    written: str = ""  # the unit in its header
    style: Style = PLAIN
    said: str = ""  # more about it

    @property
    def is_count(self) -> bool:
        """Whether its numbers are whole."""
        return self.name == "samples" or self.name.startswith(LABEL)

    @property
    def is_helper(self) -> bool:
        """Whether it only says something of other columns."""
        return self.name in HELPERS

    @property
    def note(self) -> str:
        """How its header is understood; "" if there is nothing to say."""
        if not self.known or (self.name == self.header and not self.said):
            return ""
        unit = self.written or ("" if self.said else CAMU_UNITS.get(self.name, ""))
        about = self.said or (f"from {unit}" if self.written else f"in {unit}" if unit else "")
        return f"{self.header} is read as {self.name}" + (f" ({about})" if about else "")


def columns_of(
    path: object,
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    names: Mapping[str, str],
    commas_divide: bool,
) -> list[Column]:
    """The columns of a file; `names` says which of its headers are which."""
    for given, wanted in names.items():
        if given not in header:
            raise InputError(
                f"--map {given}={wanted}: {path} has no column {given}; it has {', '.join(header)}"
            )
    columns = _named(path, header, names)
    cells = [[_text(row[k]) for row in rows] for k in range(len(header))]
    columns = _labels_by_sum(_helpers(_boards_in(columns, cells), cells), cells)
    anywhere = not commas_divide and any(
        style_of(one, False, False, False).comma
        for column, one in zip(columns, cells, strict=True)
        if column.known
    )
    return [
        _measured(replace(column, style=_style(column, one, anywhere, commas_divide)), one)
        for column, one in zip(columns, cells, strict=True)
    ]


def _text(cell: Any) -> str:
    return cell.strip() if isinstance(cell, str) else "" if cell is None else str(cell)


def _style(column: Column, cells: Sequence[str], anywhere: bool, commas_divide: bool) -> Style:
    """How a column's numbers are written; thousandths of a degree are no thousands."""
    numbers = [with_unit(cell, column.name)[0] for cell in cells]
    if column.name in ("latitude", "longitude"):
        comma = any("," in cell for cell in numbers)
        return Style(comma, "")
    return style_of(numbers, anywhere, commas_divide, column.is_count)


def _named(path: object, header: Sequence[str], names: Mapping[str, str]) -> list[Column]:
    """What headers mean by their names; of two that mean the same, the surer one."""
    exact = {name for name in header if name in KNOWN_COLUMNS or name.startswith(LABEL)}
    taken = {name: name for name in exact - set(names)}
    said = {name: _said_to_be(name, wanted) for name, wanted in names.items()}
    for name, (wanted, _, _) in said.items():
        before = taken.get(wanted)
        if before is not None and before != name:
            raise InputError(
                f"{path}: the columns {before} and {name} both mean {wanted}; rename one, or say "
                "which with --map"
            )
        taken[wanted] = name
    found = {name: column_of(name) for name in header if name not in exact and name not in names}
    order = sorted(found, key=lambda name: one.rank if (one := found[name]) else 0)
    for name in order:
        if one := found[name]:
            taken.setdefault(one.column, name)
    columns = []
    for name in header:
        meaning = found.get(name)
        if name in said:
            own, unit, written = said[name]
            columns.append(Column(name, own, True, True, unit, written))
        elif name in exact:
            columns.append(Column(name, name, True, True))
        elif meaning and taken[meaning.column] == name:
            columns.append(Column(name, meaning.column, True, False, meaning.unit, meaning.written))
        elif label := label_of(name):
            columns.append(Column(name, f"{LABEL}{label}", True, True))
        else:
            columns.append(Column(name, name))
    return columns


def _said_to_be(header: str, wanted: str) -> tuple[str, Unit | None, str]:
    """The column that a header is said to be, and the unit in either of the two names."""
    if wanted in KNOWN_COLUMNS or wanted.startswith(LABEL):
        return (wanted, *unit_of(header, wanted))
    found = column_of(wanted)  # such as battery_mwh
    assert found is not None  # `parse_names` has refused other names
    return found.column, found.unit, found.written


def _boards_in(columns: list[Column], cells: Sequence[Sequence[str]]) -> list[Column]:
    """The same; a column that sounds like clocks but holds names of computers is `board`."""
    names = [column.name for column in columns]
    if "cpu_hz" not in names or "board" in names:
        return columns
    place = names.index("cpu_hz")
    given = [cell for cell in cells[place] if cell.lower() not in {"", *UNKNOWN}]
    numbers = any(NUMBER.fullmatch(with_unit(cell, "cpu_hz")[0]) for cell in given)
    if columns[place].exact or numbers or not given:
        return columns
    said = "it holds names of computers"
    changed = Column(columns[place].header, "board", True, False, said=said)
    return [changed if k == place else column for k, column in enumerate(columns)]


def _helpers(columns: list[Column], cells: Sequence[Sequence[str]]) -> list[Column]:
    """The same without helpers that nothing needs."""
    by_name = {column.name: k for k, column in enumerate(columns) if column.known}
    battery = by_name.get("battery_joules")
    in_charge = battery is not None and (
        columns[battery].written.lower() in CHARGE
        or any(with_unit(cell, "battery_joules")[2].lower() in CHARGE for cell in cells[battery])
    )
    needed = {
        "place": "latitude" not in by_name and "x" not in by_name,
        "volts": in_charge,
        "spreading": True,
    }
    return [
        replace(column, name=column.header, known=False)
        if column.name in HELPERS and not needed[column.name]
        else column
        for column in columns
    ]


def _labels_by_sum(columns: list[Column], cells: Sequence[Sequence[str]]) -> list[Column]:
    """The same; columns that mean nothing, but add up to the samples, are counts of labels."""
    names = [column.name for column in columns]
    if "samples" not in names or any(name.startswith(LABEL) for name in names):
        return columns
    total = _whole(cells[names.index("samples")])
    counts = [
        None if column.known else _whole(one) for column, one in zip(columns, cells, strict=True)
    ]
    best: tuple[int, int] | None = None
    for start in range(len(columns)):
        for end in range(start + 2, len(columns) + 1):
            own = counts[start:end]
            if own[-1] is None or any(one is None for one in own):
                break
            if (best is None or end - start > best[1] - best[0]) and _add_up(own, total):
                best = start, end
    if best is None:
        return columns
    said = "such columns add up to the samples"
    return [
        Column(column.header, f"{LABEL}{column.header}", True, True, said=said)
        if best[0] <= k < best[1]
        else column
        for k, column in enumerate(columns)
    ]


def _whole(cells: Sequence[str]) -> list[int | None] | None:
    """Whole numbers, None where a cell is empty; None if a cell holds anything else."""
    found: list[int | None] = []
    for cell in cells:
        text = number(
            cell, style_of(cells, True, False, True) if "." in cell else Style(False, ",")
        )
        if text.isdecimal() and len(text) < 13:
            found.append(int(text))
        elif cell.lower() in UNKNOWN or not cell:
            found.append(None)
        else:
            found.append(-1)
    wrong = Counter(found)[-1]
    return found if wrong <= (1 - _LEAST_FITTING) * len(found) else None


def _add_up(counts: Sequence[list[int | None] | None], total: list[int | None] | None) -> bool:
    """Whether counts add up to the totals in most rows that have all of them, and in some rows."""
    if total is None:
        return False
    fits = given = 0
    for row, wanted in enumerate(total):
        own = [one[row] for one in counts if one is not None]
        if wanted is None or any(one is None for one in own):
            continue
        given += 1
        fits += sum(one for one in own if one is not None) == wanted
    return fits >= 2 and fits >= _LEAST_FITTING * given


def _measured(column: Column, cells: Sequence[str]) -> Column:
    """The same with the unit that its numbers must be in, where none is written."""
    if column.exact or not column.known or column.written:
        return column
    found = []
    for cell in cells:
        try:
            found.append(abs(float(number(cell, column.style))))
        except ValueError:
            continue
    if not found:
        return column
    guess = ""
    if column.name == "cpu_hz":
        guess = "GHz" if max(found) < _GHZ else "MHz" if max(found) < _MHZ else ""
    elif column.name in ("power_watts", "max_power_watts") and min(found) >= _LEAST_DBM:
        guess = "dBm"
    if not guess:
        return column
    said = f"taken to be in {guess}"
    return replace(column, unit=UNITS[guess.lower()], written=guess, said=said)


def parse_names(text: str) -> dict[str, str]:
    """The columns that headers are said to be: "Serial=id,Akku=battery_joules".

    A column may have a unit that is converted, as in "Akku=battery_mwh".
    """
    names = {}
    for part in filter(None, text.split(",")):
        given, _, wanted = (piece.strip() for piece in part.partition("="))
        if not given or not wanted:
            raise InputError(f"--map {part.strip()}: write YOUR-COLUMN=COLUMN, as Serial=id")
        found = column_of(wanted)
        in_unit = found is not None and found.written and found.column in KNOWN_COLUMNS
        if wanted not in KNOWN_COLUMNS and not wanted.startswith(LABEL) and not in_unit:
            raise InputError(
                f"--map {part.strip()}: there is no column {wanted}"
                f"{suggest(wanted, KNOWN_COLUMNS)}; use {', '.join(KNOWN_COLUMNS)} or label_0 ..."
            )
        names[given] = wanted
    return names
