"""A copy of a fleet's file that camu reads: what can be mended is, the rest is left out and named.

A cell that a device can do without is emptied; a row without what a device needs is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from camu.world.fleet_clean import Change, Cleaned, is_nowhere
from camu.world.tables import Problem

_EARTH = ("latitude", "longitude")
_PAIRS = {"x": ("x", "y"), "y": ("x", "y"), **dict.fromkeys(_EARTH, _EARTH)}
_NEEDED = ("id", "samples", "link")
_LABEL = "label_"
_DROPPED = "the row is left out"


def tidied(cleaned: Cleaned) -> Cleaned:
    """The table without repeated rows, repeated ids, empty ids, and coordinates of 0,0."""
    table, changes = cleaned.table, list(cleaned.changes)
    rows, places, seen = list[dict[str, Any]](), list[str](), dict[str, dict[str, Any]]()
    used: set[str] = set()
    for row, place in zip(table.rows, table.places, strict=True):
        own = dict(row)
        name = str(own.get("id", "")).strip()
        if name and seen.get(name) == row:
            changes.append(Change(place, "id", name, "the row is there twice and left out"))
            continue
        seen.setdefault(name, row)
        if not name or name in used:
            stem = name or "device"
            fresh = next(f"{stem}-{k}" for k in range(2, 10**6) if f"{stem}-{k}" not in used)
            why = "the id is there already" if name else "the id is missing"
            changes.append(Change(place, "id", name, f"{why}; it is {fresh} now"))
            own["id"] = name = fresh
        used.add(name)
        if is_nowhere(own):
            said = "0,0 is in the sea, and no place of a device; left out"
            changes.append(Change(place, "latitude", "0,0", said))
            own |= {"latitude": "", "longitude": ""}
        rows.append(own)
        places.append(place)
    return Cleaned(replace(table, rows=rows, places=places), tuple(changes))


def mended(cleaned: Cleaned, problems: Iterable[Problem], tried: set[tuple[str, str]]) -> Cleaned:
    """The table with one more repair per problem; `tried` remembers what has not helped."""
    table, changes = cleaned.table, list(cleaned.changes)
    rows = {number: dict(row) for number, row in enumerate(table.rows)}
    for problem in problems:
        number, place = problem.row, table.places[problem.row]
        if number not in rows:
            continue
        column = _LABEL if problem.column.startswith(_LABEL) else problem.column
        said = None
        for repair in ("swap", "empty"):
            key = (place, f"{repair} {column}")
            if key in tried:
                continue
            tried.add(key)
            said = _repair(repair, column, rows[number])
            if said:
                break
        changes.append(Change(place, problem.column, problem.value, said or _DROPPED))
        if not said:
            del rows[number]
    kept = list(rows)
    left = replace(
        table, rows=[rows[number] for number in kept], places=[table.places[k] for k in kept]
    )
    return Cleaned(left, tuple(changes))


def _repair(repair: str, column: str, row: dict[str, Any]) -> str | None:
    """Repair a cell in its row; what was done, None if this is no repair for it."""
    if repair == "swap":
        north, east = (_number(row.get(name)) for name in _EARTH)
        if column not in _EARTH or not (abs(east) <= 90 and abs(north) <= 180):
            return None
        row["latitude"], row["longitude"] = row["longitude"], row["latitude"]
        return "latitude and longitude are swapped"
    if column == _LABEL:
        labels = [name for name in row if name.startswith(_LABEL)]
        if math.isnan(_number(row.get("samples"))):
            return None
        row.update(dict.fromkeys(labels, ""))
        return "its counts of labels are left out, and its samples stay"
    if column == "samples":
        counts = [_number(cell) for name, cell in row.items() if name.startswith(_LABEL)]
        if not counts or not sum(counts) > 0 or min(counts) < 0:
            return None
        row["samples"] = str(int(sum(counts)))
        return f"samples are the sum of its labels, {row['samples']}"
    names = [name for name in _PAIRS.get(column, (column,)) if str(row.get(name) or "").strip()]
    if column in _NEEDED or not names:
        return None
    row.update(dict.fromkeys(names, ""))
    return "the position is left out" if column in _PAIRS else "the cell is left out"


def _number(cell: Any) -> float:
    """A number in a cell; nan where there is none."""
    try:
        return float(str(cell))
    except ValueError:
        return math.nan
