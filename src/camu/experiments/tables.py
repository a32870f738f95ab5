"""Results as text: runs as CSV; verdicts, contests and the leaderboard as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from camu.experiments.claims import BUDGETS, comparison_name
from camu.experiments.design import LAST_EVALUATIONS, NOISY, PROPOSED, Cell
from camu.experiments.ranking import Board, Row
from camu.experiments.statistics import CONTRADICTED, REPRODUCED, Verdict
from camu.files import to_csv
from camu.simulation.history import History


def markdown_table(head: Sequence[str], marks: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; `marks` has an l or an r per column, for its alignment."""
    edge = "".join({"l": "---|", "r": "--:|"}[mark] for mark in marks)
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{edge}", *lines[1:]])


def runs_csv(histories: Iterable[tuple[str, int, History]]) -> str:
    """Every run in a line, so that anyone can do other statistics; labels after a slash."""
    head = ["cell", "seed", "tail_accuracy", "average_accuracy", "final_accuracy"]
    more = ["label_accuracy", "joules", "virtual_seconds", "weights_sha256"]
    rows: list[list[object]] = [[*head, *more]]
    for cell, seed, history in histories:
        average, final = history.average_accuracy, history.final
        labels = history.tail_label_accuracy(LAST_EVALUATIONS)
        rows.append(
            [
                cell,
                seed,
                f"{history.tail_accuracy(LAST_EVALUATIONS):.5f}",
                "" if average is None else f"{average:.4f}",
                f"{history.final_accuracy:.4f}",
                "/".join(f"{label:.4f}" for label in labels),
                f"{final.total_joules:.6g}",
                f"{final.virtual_seconds:.6g}",
                history.weights_sha256,
            ]
        )
    return to_csv(rows)


def verdicts_page(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a Markdown table, after how often each occurs."""
    counts = Counter(row.verdict for row in verdicts)
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    cells = [row.cells() | {"verdict": f"**{row.verdict}**"} for row in verdicts]
    head = list(cells[0])
    table = markdown_table(head, "l" * len(head), [list(row.values()) for row in cells])
    return f"{len(verdicts)} verdicts: {said}.\n\n{table}\n"


# A comparison has no printed claim: its verdict says who is ahead.
_WORDS = {REPRODUCED: "ahead", CONTRADICTED: "behind"}


def contest_page(worlds: Mapping[str, Sequence[Cell]], verdicts: Sequence[Verdict]) -> str:
    """Markdown: a summary over all worlds, each rival's count, and a table per world.

    The first cell of a world is the proposed scheme, and the others are its rivals.
    """
    known = {(row.dataset, row.claim): row for row in verdicts}
    found = {
        title: {
            rival: [known[rival.dataset, comparison_name(key, rival)] for key in BUDGETS]
            for rival in cells[1:]
        }
        for title, cells in worlds.items()
    }
    by_rival: dict[str, list[Verdict]] = {}
    for world in found.values():
        for rival, rows in world.items():
            by_rival.setdefault(_title(rival), []).extend(rows)
    parts = [
        f"`{PROPOSED}` against each rival: difference of accuracy in points, paired by seed, mean "
        "± half of the 95 % interval. Ahead or behind: the interval excludes 0; in brackets the "
        "verdict after Holm's correction over all comparisons, where it differs.",
        f"All comparisons: {_summary(by_rival.values())}",
        _counts(by_rival),
    ]
    for title, world in found.items():
        parts += [f"### {title}", _summary(world.values()), _contest_table(world)]
    return "\n\n".join(parts) + "\n"


def _summary(groups: Iterable[Sequence[Verdict]]) -> str:
    """How often the proposed scheme is ahead and behind."""
    rows = [row for group in groups for row in group]
    ahead, behind = (
        sum(row.verdict == word for row in rows) for word in (REPRODUCED, CONTRADICTED)
    )
    after = sum(row.holm == REPRODUCED for row in rows)
    text = f"ahead with the interval excluding 0 in {ahead} of {len(rows)} comparisons"
    return f"{text} ({after} after Holm's correction), behind in {behind}."


def _counts(by_rival: Mapping[str, Sequence[Verdict]]) -> str:
    """A line per rival over all worlds."""
    head = ["rival", "of", "ahead", "after Holm", "behind", "after Holm"]
    lines = []
    for title, rows in by_rival.items():
        counts = [
            sum(getattr(row, which) == word for row in rows)
            for word in (REPRODUCED, CONTRADICTED)
            for which in ("verdict", "holm")
        ]
        lines.append([title, str(len(rows)), *map(str, counts)])
    return markdown_table(head, "lrrrrr", lines)


def _title(rival: Cell) -> str:
    """A rival with what it was given, or the proposed scheme without a rule."""
    words = (rival.variation or "").removeprefix(NOISY).strip(", ")
    if rival.scheme == PROPOSED:
        return f"`{rival.scheme}` {words}"
    return f"`{rival.scheme}`" + (f" + {words}" if words else "")


def _contest_table(world: Mapping[Cell, Sequence[Verdict]]) -> str:
    head = ["rival", *(c for key in BUDGETS for c in (f"at equal {key}", "sd", "n", "verdict"))]
    lines = [
        [
            _title(rival),
            *(c for row in rows for c in (row.measured, row.spread, str(row.n), _verdict(row))),
        ]
        for rival, rows in world.items()
    ]
    return markdown_table(head, "l" + "rrrl" * len(BUDGETS), lines)


def _verdict(row: Verdict) -> str:
    word, after = (_WORDS.get(one or "", one or "") for one in (row.verdict, row.holm))
    shown = f"**{word}**" if row.verdict in _WORDS else word
    return shown if after in ("", word) else f"{shown} ({after})"


_INTRODUCTION = """# Leaderboard

Every scheme in the same worlds, compared at equal energy and at equal time: accuracies in % with
half of the 95 % interval over {seeds} seeds, and ranks with their 95 % intervals. The page
"Leaderboard" of camu's documentation says how they are computed. Written by

```sh
{command}
```
"""


def leaderboard_page(board: Board) -> str:
    """The worlds of the leaderboard, and a table over all and for each of them."""
    size = " --quick" if board.scale == "quick" else ""
    command = f"camu reproduce leaderboard{size} --seeds {board.seeds}"
    head = ["world", "samples per device", "learning rate", f"rounds of `{board.reference}`"]
    worlds = [
        [
            world.about,
            str(world.samples_per_device),
            f"{world.learning_rate:g}",
            str(world.rounds),
            f"{world.joules:.3g}",
            f"{world.seconds:.3g}",
        ]
        for world in board.worlds
    ]
    parts = [
        _INTRODUCTION.format(command=command, seeds=board.seeds),
        "## Worlds\n",
        markdown_table([*head, "joules", "seconds"], "lrrrrr", worlds) + "\n",
        "## All worlds\n\nFor each seed, the mean over the worlds.\n",
        *_standings(board.overall, None),
    ]
    for world in board.worlds:
        parts += [f"## {world.about}\n", *_standings(board.of_world(world.name), world.rounds)]
    return "\n".join(parts)


def _standings(rows: Sequence[Row], rounds: int | None) -> list[str]:
    """A table, and its notes below; with the accuracy after so many rounds."""
    head = ["scheme", "family", "at equal joules", "rank", "at equal seconds", "rank"]
    head += [] if rounds is None else [f"after {rounds} rounds"]
    notes = dict(
        zip(dict.fromkeys(note for row in rows for note in row.notes), "*†‡", strict=False)
    )
    lines = []
    for row in rows:
        name = f"**`{row.scheme}` (yours)**" if row.is_own else f"`{row.scheme}`"
        cells = [" ".join([name, *(notes[note] for note in row.notes)]), row.family]
        cells += [*row.joules.show(), *row.seconds.show()]
        cells += [] if row.at_rounds is None else [row.at_rounds.show()]
        lines.append(cells)
    table = markdown_table(head, "ll" + "r" * (len(head) - 2), lines)
    return [f"{table}\n", *(f"{mark} {note}.\n" for note, mark in notes.items())]
