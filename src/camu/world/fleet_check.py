"""Every problem of a fleet's file at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.world.fleet_clean import Cleaned, read_fleet, repaired
from camu.world.fleet_file import parse_fleet
from camu.world.tables import Problem


@dataclass(frozen=True)
class FleetCheck:
    """How a fleet's file is understood, and what is wrong with it."""

    cleaned: Cleaned
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]

    def repaired(self, config: Config) -> FleetCheck:
        """The same of the table after repairs."""
        return _checked(repaired(self.cleaned), config)

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


def check_fleet(path: Path, names: Mapping[str, str], config: Config) -> FleetCheck:
    """All problems of a fleet's file; `names` says which of its headers are which columns."""
    return _checked(read_fleet(path, names), config)


def _checked(cleaned: Cleaned, config: Config) -> FleetCheck:
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
