"""The leaderboard as a Markdown page: what it is, the tables, and how to add a scheme."""

from __future__ import annotations

from collections.abc import Sequence

from camu.experiments.leaderboard_table import Board, Row

_INTRODUCTION = """# Leaderboard

Every scheme of camu in the same worlds, compared at equal energy and at equal time. This page is
`leaderboard.md` as this command writes it:

<!-- not run: trains every scheme in every world -->
```sh
{command}
```

A scheme trains in each world until it has spent both budgets: the joules and the virtual seconds of
a fixed number of rounds of `{reference}` in that world. Its accuracy at a budget, in % of the test
samples, is the mean at 85, 90, 95 and 100 % of it, interpolated between evaluations. All schemes of
a data set have the same learning rate, chosen on `fedavg` alone with seeds that no comparison uses.
Parameters are the defaults; none was tuned here. The kinds of worlds were fixed before any scheme
was run in them; their sizes and the budgets were set by computing time, in trials with seed 1000.

± is half of the 95 % interval over {seeds} seeds (Student's t). A rank is the place by the mean.
The interval in brackets holds the true rank with a confidence of 95 %. It counts the schemes that
are measurably better or worse: by a paired t-test over seeds at 5 %, with Holm's correction over
all comparisons of that scheme. Schemes whose intervals overlap may be tied.
"""

_OWN = """## Your own scheme

Write a class as [Your own scheme](own-scheme.md) says, and name it as `module:Class`, with
parameters if you like. It trains in the same worlds with the same seeds, and its row is marked.
Finished runs are used again, so that only yours are trained.

<!-- not run: mine.py is yours -->
```sh
{command} --scheme mine:Scheme@k=5
```
"""


def page(board: Board) -> str:
    """The whole page."""
    size = " --quick" if board.scale == "quick" else ""
    command = f"camu reproduce leaderboard{size} --seeds {board.seeds}"
    parts = [
        _INTRODUCTION.format(command=command, reference=board.reference, seeds=board.seeds),
        _worlds(board),
        "## All worlds\n\nFor each seed, the mean over the worlds.\n",
        *_table(board.overall, None),
    ]
    for world in board.worlds:
        parts += [f"## {world.about}\n", *_table(board.of_world(world.name), world.rounds)]
    return "\n".join([*parts, _OWN.format(command=command)])


def _worlds(board: Board) -> str:
    """What the worlds are; budgets are means over seeds."""
    lines = [
        "## Worlds",
        "",
        f"| world | samples per device | learning rate | rounds of `{board.reference}` | "
        "joules | seconds |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for world in board.worlds:
        cells = (
            world.about,
            str(world.samples_per_device),
            f"{world.learning_rate:g}",
            str(world.rounds),
            f"{world.joules:.3g}",
            f"{world.seconds:.3g}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row], rounds: int | None) -> list[str]:
    """A table, and its notes below; with the accuracy after so many rounds."""
    head = ["scheme", "family", "at equal joules", "rank", "at equal seconds", "rank"]
    head += [] if rounds is None else [f"after {rounds} rounds"]
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "--:|" * (len(head) - 2)]
    for row in rows:
        marks = "".join(f" {mark(notes.index(note))}" for note in row.notes)
        name = f"**`{row.scheme}` (yours)**" if row.is_own else f"`{row.scheme}`"
        cells = [name + marks, row.family, *row.joules.show(), *row.seconds.show()]
        cells += [] if row.at_rounds is None else [row.at_rounds.show()]
        lines.append(f"| {' | '.join(cells)} |")
    below = [f"{mark(number)} {note}." for number, note in enumerate(notes)]
    return ["\n".join(lines) + "\n", *(f"{line}\n" for line in below)]


def mark(number: int) -> str:
    """The sign of a note."""
    return "*†‡"[number]
