"""The runs and verdicts of a study as tables: CSV for statistics, Markdown for people."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence

from camu.experiments.design import LAST_EVALUATIONS, Cell
from camu.experiments.verdicts import Verdict
from camu.simulation.history import History


def runs_table(histories: Mapping[tuple[Cell, int], History]) -> str:
    """Every run in a line, so that anyone can do other statistics; labels after a slash."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["cell", "seed", "tail_accuracy", "average_accuracy", "final_accuracy"]
    writer.writerow([*head, "label_accuracy", "joules", "virtual_seconds", "weights_sha256"])
    for (cell, seed), history in histories.items():
        average, final = history.average_accuracy, history.final
        labels = history.tail_label_accuracy(LAST_EVALUATIONS)
        writer.writerow(
            [
                cell.name,
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
    return text.getvalue()


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a Markdown table, after how often each occurs."""
    counts = Counter(row.verdict for row in verdicts)
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    columns = ["claim", "data set", "verdict", "after Holm", "measured", "sd", "n", "seeds needed"]
    columns += ["by server average", "paper", "statement"]
    lines = [f"{len(verdicts)} verdicts: {said}.", ""]
    lines += [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(_cells(row))} |" for row in verdicts]
    return "\n".join(lines) + "\n"


def _cells(row: Verdict) -> list[str]:
    unit = "" if row.unit == "points" else f" {row.unit}"
    needed = "" if row.seeds_needed is None else str(row.seeds_needed)
    average = "" if row.average is None else f"{row.average:.2f} ({row.average_verdict})"
    return [
        row.claim,
        row.dataset,
        f"**{row.verdict}**",
        row.holm or "",
        f"{row.measured}{unit}",
        row.spread,
        str(row.n),
        needed,
        average,
        "" if row.paper is None else str(row.paper),
        row.statement,
    ]
