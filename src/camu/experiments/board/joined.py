"""Parts joined to a board: rows for each world and over all, for each table and budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from camu.errors import InputError
from camu.experiments.board.part import PARTS, REMEDY, read_part
from camu.experiments.board.protocol import AXES, TABLES, Protocol, Table
from camu.experiments.board.ranks import Standing, standings, world_means
from camu.files import to_csv
from camu.sealed import DamagedError

OVERALL = "all worlds"
BESIDE = ("worst_tenth", "steps", "uplinks", "megabytes", "joules", "seconds")


class Place(NamedTuple):
    """Which table of the board."""

    table: Table
    budget: str  # short, medium, ...
    axis: str  # joules or seconds
    world: str


_PLACE = ("table", "budget", "axis", "amount")
_FIGURES = ("score", "to_target", "rounds", *BESIDE, "weights_sha256", "note")
_COLUMNS = (*_PLACE, "world", "scheme", "seed", *_FIGURES)


@dataclass(frozen=True)
class Row:
    """A scheme in one table; no standing: it is not ranked, and the note says why."""

    scheme: str
    own: bool
    standing: Standing | None
    beside: Mapping[str, float | None] = field(default_factory=dict)  # means over seeds
    reached: str = ""  # how many runs reached the target, and the median of what it cost
    settings: str = ""
    note: str = ""


@dataclass(frozen=True)
class Board:
    """The tables of a protocol, as far as its parts are there."""

    protocol: Protocol
    tables: dict[Place, tuple[Row, ...]]
    missing: tuple[tuple[str, str], ...]  # world and scheme
    wall_seconds: float
    parts: tuple[dict[str, Any], ...]

    def to_csv(self) -> str:
        """A line per reported run, with a head."""
        rows = [
            [_number(row[name]) if name in _FIGURES else row[name] for name in row]
            for row in self.run_rows()
        ]
        return to_csv([_COLUMNS, *rows])

    def run_rows(self) -> list[dict[str, Any]]:
        """A row per reported run."""
        return [
            {name: entry[name] for name in _PLACE}
            | {"world": part["world"], "scheme": part["scheme"], "seed": run["seed"]}
            | {name: run.get(name) for name in _FIGURES}
            for part in self.parts
            for entry in part["entries"]
            for run in entry["runs"]
        ]


def _number(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else value


def read_parts(protocol: Protocol, folders: Iterable[Path]) -> list[dict[str, Any]]:
    """The parts of a protocol in these directories; one that is in several must be the same."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for folder in folders:
        paths = sorted((folder / PARTS).glob("*.json"))
        if not paths:
            raise InputError(f"{folder}: there are no results of `camu board run`")
        for path in paths:
            part = read_part(path)
            if part.get("protocol") != protocol.sha256:
                raise InputError(
                    f"{path}: it is of another protocol ({str(part.get('protocol'))[:12]}, not "
                    f"{protocol.sha256[:12]}); results of different protocols are never joined"
                )
            key = part["world"], part["scheme"]
            if key in found and found[key]["entries"] != part["entries"]:
                raise DamagedError(f"{path}: it differs from another part of the same; {REMEDY}")
            found[key] = part
    return list(found.values())


def joined(protocol: Protocol, parts: Sequence[dict[str, Any]]) -> Board:
    """The board of these parts."""
    there = {(part["world"], part["scheme"]): part for part in parts}
    schemes = list(dict.fromkeys([*protocol.rules.schemes, *(p["scheme"] for p in parts)]))
    # A scheme of the protocol has its name as its label, unless parameters are given with it.
    labels = [name for name in schemes if any(scheme == name for _, scheme in there)]
    wanted = [(world, name) for world in protocol.worlds for name in protocol.rules.schemes]
    known = {(part["world"], part["word"]) for part in parts}
    tables: dict[Place, tuple[Row, ...]] = {}
    for table in TABLES:
        for budget in _budgets(protocol):
            for axis in AXES:
                entries = {
                    key: next(
                        e
                        for e in part["entries"]
                        if (e["table"], e["budget"], e["axis"]) == (table, budget, axis)
                    )
                    for key, part in there.items()
                    if budget in protocol.worlds[part["world"]].budgets
                }
                own = {part["scheme"] for part in parts if part["own"]}
                for world, rows in _tables(protocol, entries, labels, own):
                    tables[Place(table, budget, axis, world)] = rows
    return Board(
        protocol,
        tables,
        tuple(pair for pair in wanted if pair not in known),
        sum(part["wall_seconds"] for part in parts),
        tuple(parts),
    )


def _budgets(protocol: Protocol) -> list[str]:
    return list(dict.fromkeys(name for world in protocol.rules.worlds for name in world.budgets))


def _tables(
    protocol: Protocol,
    entries: Mapping[tuple[str, str], dict[str, Any]],
    schemes: Sequence[str],
    own: set[str],
) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """A table over all worlds, if there are several, then one for each."""
    worlds = [name for name in protocol.worlds if any(world == name for world, _ in entries)]
    everywhere = [name for name in schemes if all(_ranked(entries.get((w, name))) for w in worlds)]
    if len(everywhere) > 1 and len(worlds) > 1:  # one world says nothing about others
        scores = [np.array([_scores(entries[w, name]) for name in everywhere]) for w in worlds]
        rows = [
            Row(name, name in own, standing, _mean_beside([entries[w, name] for w in worlds]))
            for name, standing in zip(everywhere, standings(world_means(scores)), strict=True)
        ]
        rows += [
            Row(name, name in own, None, note="not in every world, or not ranked in one")
            for name in schemes
            if name not in everywhere
        ]
        yield OVERALL, _sorted(rows)
    for world in worlds:
        here = [name for name in schemes if (world, name) in entries]
        ranked = [name for name in here if _ranked(entries[world, name])]
        found = (
            standings(np.array([_scores(entries[world, name]) for name in ranked]))
            if len(ranked) > 1
            else []
        )
        by_name = dict(zip(ranked, found, strict=False))
        yield (
            world,
            _sorted([_row(name, name in own, entries[world, name], by_name) for name in here]),
        )


def _row(name: str, own: bool, entry: Mapping[str, Any], standing: Mapping[str, Standing]) -> Row:
    runs = entry["runs"]
    notes = "; ".join(dict.fromkeys(run["note"] for run in runs if run["note"]))
    costs = [run.get("to_target") for run in runs]
    known = [cost for cost in costs if cost is not None]
    # Runs that never got there cost more than any that did, so they count in the median.
    censored = sorted([*known, *[np.inf] * (len(costs) - len(known))])
    middle = float(np.median(censored)) if np.isfinite(np.median(censored)) else None
    reached = f"{len(known)}/{len(costs)}"
    reached += f", {middle:.3g}" if middle is not None else ""
    settings = " ".join(
        f"{key.rpartition('.')[2]}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in entry["settings"].items()
    )
    beside = _mean_beside([entry])
    return Row(name, own, standing.get(name), beside, reached, settings, notes)


def _mean_beside(entries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Means over all runs; None where one run has no number."""
    found: dict[str, float | None] = {}
    for name in BESIDE:
        values = [run.get(name) for entry in entries for run in entry["runs"]]
        known = [value for value in values if value is not None]
        found[name] = float(np.mean(known)) if len(known) == len(values) else None
    return found


def _ranked(entry: Mapping[str, Any] | None) -> bool:
    return entry is not None and all(run["score"] is not None for run in entry["runs"])


def _scores(entry: Mapping[str, Any]) -> list[float]:
    return [float(run["score"]) for run in entry["runs"]]


def _sorted(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row.standing is None, -_mean(row))))


def _mean(row: Row) -> float:
    return 0.0 if row.standing is None else row.standing.score.mean
