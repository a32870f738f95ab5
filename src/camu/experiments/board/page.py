"""The board as a page of Markdown: what was fixed, what was run, and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from camu.experiments.board.joined import BESIDE, OVERALL, Board, Place, Row
from camu.experiments.board.part import RATE
from camu.experiments.tables import markdown_table, wrapped

_TITLES = {"published": "As published", "tuned": "Tuned"}


def board_page(board: Board) -> str:
    """The whole page, from a heading of the second level on."""
    rules = board.protocol.rules
    run = len(board.parts)
    parts = [
        f"Protocol `{rules.name}` (SHA-256 `{board.protocol.sha256}`): {rules.about}\n",
        f"Worlds: {len(rules.worlds)}; schemes: {len(rules.schemes)}, each with {rules.trials} "
        f"trials on the tuning seeds {_list(rules.tuning_seeds)}, besides the learning rates "
        f"{_list(rules.rates)}; reported on the seeds {_list(rules.reporting_seeds)}. Of "
        f"{len(rules.worlds) * len(rules.schemes)} parts {run} are here; their runs took "
        f"{board.wall_seconds / 60:.0f} minutes, one after another.\n",
    ]
    if board.missing:
        parts.append(f"Not run: {_missing(board)}.\n")
    parts += [_worlds(board), _edges(board)]
    for place, rows in board.tables.items():
        if place.world == OVERALL:
            parts += [f"### {_title(place)}\n", _overall(rows, place)]
    for place, rows in board.tables.items():
        if place.world != OVERALL:
            parts += [f"### {_title(place)}\n", _of_world(rows, place)]
    return wrapped("\n".join(parts))


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _title(place: Place) -> str:
    return f"{_TITLES[place.table]}, {place.budget} budget of {place.axis}: {place.world}"


def _worlds(board: Board) -> str:
    rows = [
        [f"`{world.name}`", world.about, name, f"{one.joules:g}", f"{one.seconds:g}"]
        for world in board.protocol.rules.worlds
        for name, one in world.budgets.items()
    ]
    return markdown_table(["world", "", "budget", "joules", "seconds"], "lllrr", rows) + "\n"


def _missing(board: Board) -> str:
    """What is not run, by world."""
    lacking: dict[str, list[str]] = {}
    for world, scheme in board.missing:
        lacking.setdefault(world, []).append(scheme)
    whole = len(board.protocol.rules.schemes)
    return "; ".join(
        f"`{world}`: {'all schemes' if len(found) == whole else ', '.join(found)}"
        for world, found in lacking.items()
    )


def _edges(board: Board) -> str:
    """How often a scheme as published was best at the smallest or largest rate of the protocol."""
    tried = sorted(board.protocol.rules.rates)
    best = Counter(
        entry["settings"][RATE]
        for part in board.parts
        for entry in part["entries"]
        if entry["table"] == "published"
    )
    return (
        f"As published, {best[tried[0]]} of {best.total()} choices are the smallest rate that was "
        f"tried and {best[tried[-1]]} the largest: beyond these, a scheme may do better.\n"
    )


def _standing(row: Row) -> list[str]:
    """Score, rank, the difference to the first, the word for it, and what would be seen."""
    if row.standing is None:
        return ["not ranked", "", "", row.note, ""]
    own = row.standing
    return [
        own.score.show(),
        own.rank(),
        "" if own.behind is None else own.behind.show(),
        own.word,
        "" if own.detects is None else "> 100" if own.detects > 100 else f"{own.detects:.2f}",
    ]


def _name(row: Row) -> str:
    return f"**`{row.scheme}` (yours)**" if row.own else f"`{row.scheme}`"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


_HEAD = ("scheme", "accuracy", "rank", "to the first", "which is", "detects")


def _overall(rows: Sequence[Row], place: Place) -> str:
    head = [*_HEAD, "worst tenth", "steps", "uplinks", "MB", "J", "s"]
    lines = [
        [_name(row), *_standing(row), *(_number(value) for value in row.beside.values())]
        for row in rows
    ]
    lines = [line + [""] * (len(head) - len(line)) for line in lines]
    return markdown_table(head, "lrrrl" + "r" * (len(head) - 5), lines) + "\n"


def _of_world(rows: Sequence[Row], place: Place) -> str:
    """Two tables: who is ahead, and with which settings and at what cost."""
    unit = {"joules": "J", "seconds": "s"}[place.axis]
    head = [*_HEAD, f"target reached, {unit}", "worst tenth"]
    ranked = [
        [_name(row), *_standing(row), row.reached, _number(row.beside["worst_tenth"])]
        for row in rows
    ]
    spent = [
        [_name(row), *(_number(row.beside[name]) for name in BESIDE[1:]), _settings(row)]
        for row in rows
    ]
    titles = ["scheme", "steps", "uplinks", "MB", "J", "s", "settings"]
    return "\n".join(
        [
            markdown_table(head, "lrrrlrrr", ranked) + "\n",
            markdown_table(titles, "lrrrrrl", spent) + "\n",
        ]
    )


def _settings(row: Row) -> str:
    note = f"; {row.note}" if row.note and row.standing is not None else ""
    return row.settings + note
