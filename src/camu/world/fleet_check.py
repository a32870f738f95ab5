"""Every problem of a fleet's file at once, and a copy of the file without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.world.fleet_clean import Change, Cleaned
from camu.world.fleet_file import parse_fleet
from camu.world.fleet_repair import mended, tidied
from camu.world.tables import Problem

_MOST_LINES = 8  # of problems that are alike
_MOST_PASSES = 12  # a cell is repaired at most twice; a repair can show another problem


@dataclass(frozen=True)
class FleetCheck:
    """How a fleet's file is understood, and what is wrong with it."""

    cleaned: Cleaned
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """The check as plain data."""
        table = self.cleaned.table
        return {
            "file": str(table.path),
            "devices": len(table.rows),
            "notes": list(self.notes),
            "problems": [
                {"place": table.places[one.row], **one._asdict()} for one in self.problems
            ],
        }


def repair(found: FleetCheck, config: Config) -> tuple[FleetCheck, tuple[Change, ...]]:
    """The check of a repaired table, and every repair that was made."""
    now = checked(tidied(found.cleaned), config)
    tried: set[tuple[str, str]] = set()
    for _ in range(_MOST_PASSES):
        if not now.problems:
            break
        now = checked(mended(now.cleaned, now.problems, tried), config)
    return now, now.cleaned.changes[len(found.cleaned.changes) :]


def assumed(found: FleetCheck, left: FleetCheck, repairs: Sequence[Change]) -> list[str]:
    """What was understood in another way and what is assumed; repairs are said elsewhere."""
    said = set(Cleaned(found.cleaned.table, tuple(repairs)).notes)
    return [note for note in dict.fromkeys((*found.notes, *left.notes)) if note not in said]


def problem_rows(found: FleetCheck, repairs: Sequence[Change] | None) -> list[tuple[str, ...]]:
    """Lines, column, value, problem and repair; problems that are alike share a row."""
    places = found.cleaned.table.places
    done: dict[tuple[str, str], list[str]] = {}
    for change in repairs or ():
        for column in (change.column, ""):
            done.setdefault((change.place, column), []).append(change.said)
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in found.problems:
        place = places[one.row]
        made = done.get((place, one.column)) or done.get((place, "")) or []
        key = (one.column, one.value, one.text, "; ".join(dict.fromkeys(made)))
        alike.setdefault(key, []).append(place.removeprefix("line "))
    rows = list[tuple[str, ...]]()
    for about, lines in alike.items():
        more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
        rows.append((", ".join(lines[:_MOST_LINES]) + more, *about))
    return rows


def checked(cleaned: Cleaned, config: Config) -> FleetCheck:
    """All problems of a table; a table without the columns of a fleet is refused."""
    problems: list[Problem] = []
    table = replace(cleaned.table, problems=problems)
    try:
        fleet = parse_fleet(table, None, config.replace({"fleet.base_station_file": None}))
    except InputError:
        if not problems:  # the file as a whole: a column is missing
            raise
        found = tuple(sorted(set(problems), key=lambda one: one.row))
        return FleetCheck(cleaned, tuple(cleaned.notes), found)
    return FleetCheck(cleaned, (*cleaned.notes, *fleet.notes), ())
