"""Results as text: runs as CSV; tables, verdicts and the map of the air as Markdown."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from camu.experiments.design import LAST_EVALUATIONS
from camu.experiments.statistics import Verdict
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
        average, final = history.average_score, history.final
        labels = history.tail_label_accuracy(LAST_EVALUATIONS)
        rows.append(
            [
                cell,
                seed,
                f"{history.tail_score(LAST_EVALUATIONS):.5f}",
                "" if average is None else f"{average:.4f}",
                f"{history.final_score:.4f}",
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


_AIR = """Difference in points of accuracy (mean ± half of the 95 % interval, widened for the
choice of schemes): the best scheme over the air minus the digital scheme that is best against it.
**Bold**: the interval excludes 0. *level*: no difference above 1 point. Otherwise undecided.
"""


def air_page(answers: Sequence[Mapping[str, Any]]) -> str:
    """A table for each budget and bandwidth: devices down, signal-to-noise ratio across."""
    counts = Counter(row["answer"] for row in answers)
    parts = [", ".join(f"{count} {word}" for word, count in counts.items()) + ".\n", _AIR]
    for budget in dict.fromkeys(row["budget"] for row in answers):
        for hertz in sorted({row["bandwidth_hz"] for row in answers}):
            own = [r for r in answers if r["budget"] == budget and r["bandwidth_hz"] == hertz]
            parts += [f"## At equal {budget}, {hertz / 1e6:g} MHz\n", _air_table(own) + "\n"]
    return "\n".join(parts)


def _air_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Devices down, medians of the signal-to-noise ratio across."""
    first = rows[0]["devices"]
    head = ["devices", *(f"{r['snr_db']:.0f} dB" for r in rows if r["devices"] == first)]
    table = []
    for devices in dict.fromkeys(row["devices"] for row in rows):
        cells = [_air_cell(row) for row in rows if row["devices"] == devices]
        table.append([str(devices), *cells])
    return markdown_table(head, "r" * len(head), table)


def _air_cell(row: Mapping[str, Any]) -> str:
    """The difference with its interval, and what it means."""
    text = f"{row['points']:+.1f}"
    if row["low"] is not None:
        text += f" ± {(row['high'] - row['low']) / 2:.1f}"
    marks = {"over the air": "**", "digital": "**", "level": "*"}
    mark = marks.get(row["answer"], "")
    return f"{mark}{text}{mark}"


def wrapped(text: str) -> str:
    """Markdown with lines of at most 120 characters; rows of tables and code are left alone."""
    return "\n".join(_wrapped(line) for line in text.split("\n"))


def _wrapped(line: str) -> str:
    if line.startswith(("|", "```", "<!--")) or len(line) <= 120:
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(
        line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
