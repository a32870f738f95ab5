"""The tables of a page: runs and comparisons, divided by family where there are many schemes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from camu.experiments.comparison import UNGROUPED_ROWS, Comparison, SeedRow
from camu.experiments.statistics import Estimate, estimate
from camu.report.groups import Group
from camu.report.rows import table_row

Table = dict[str, Any]  # a head, and families with a title, a note and rows


def runs_table(groups: Sequence[Group]) -> Table:
    """A head and a row per world and scheme: accuracy, joules, seconds, rounds, seeds."""
    several = any(group.setting for group in groups)
    words = ["data set", *(["setting"] if several else []), "scheme"]
    numbers = ["final accuracy (%)", "energy (J)", "virtual time (s)", "rounds"]
    rows = []
    for group in groups:
        values = table_row(group)
        rows.append(
            [group.dataset, *([group.setting] if several else []), group.label]
            + [_mean(estimate(values["accuracy"]), 100, 1)]
            + [_mean(estimate(values[name])) for name in ("joules", "seconds")]
            + [_span(values["rounds"]), _seeds(group)]
        )
    head = [{"name": name, "number": name in numbers} for name in (*words, *numbers, "seeds")]
    families = _by_family([group.family for group in groups], rows)
    return {"head": head, "families": families}


def comparison_table(table: Comparison) -> Table:
    """A row per scheme: accuracies and differences at equal cost, and what its runs spent."""
    titles = [title for title, _ in table.equal_columns()]
    numbers = [*titles, "energy (J)", "virtual time (s)"]
    rows = [
        [row.scheme, *table.equal_cells(row), _mean(row.joules), _mean(row.virtual_seconds)]
        for row in table.rows
    ]
    best = {}
    for row in sorted(table.rows, key=lambda row: row.final_accuracy.mean):
        best[row.family] = f"best at the end: {row.scheme} ({row.final_accuracy.show(100, 1)} %)"
    return {
        "head": [{"name": "scheme", "number": False}]
        + [{"name": name, "number": True} for name in numbers],
        "families": _by_family([row.family for row in table.rows], rows, best),
    }


def seeds_table(table: Comparison) -> Table:
    """A row per scheme and seed: accuracies in %, and differences to the first scheme."""
    columns = table.equal_columns()
    rows = [
        [run.scheme, str(run.seed), *(_percent(run, name) for _, name in columns)]
        for run in table.runs
    ]
    words = [{"name": "scheme", "number": False}, {"name": "seed", "number": True}]
    head = [*words, *({"name": title, "number": True} for title, _ in columns)]
    return {"head": head, "families": [{"title": "", "note": "", "rows": rows}]}


def _by_family(
    names: Sequence[str], rows: Sequence[list[str]], notes: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Rows under the name of their family; few rows are one part without a name."""
    if len(rows) <= UNGROUPED_ROWS:
        return [{"title": "", "note": "", "rows": list(rows)}]
    parts: dict[str, list[list[str]]] = {}
    for name, row in zip(names, rows, strict=True):
        parts.setdefault(name, []).append(row)
    found = []
    for name, own in parts.items():
        count = f"{len(own)} scheme{'s' if len(own) > 1 else ''}"
        note = "; ".join(filter(None, (count, (notes or {}).get(name))))
        found.append({"title": name, "note": note, "rows": own})
    return found


def _percent(run: SeedRow, name: str) -> str:
    value = getattr(run, name)
    if value is None:
        return "–"
    return f"{100 * value:+.2f}" if name.endswith("difference") else f"{100 * value:.2f}"


def _seeds(group: Group) -> str:
    """How many seeds, which, and how many of them are finished: 3 (seeds 0–2)."""
    count = len(group.runs)
    text = f"{count} (seed{'s' if count > 1 else ''} {seed_words([r.seed for r in group.runs])})"
    finished = sum(run.finished for run in group.runs)
    return text if finished == count else f"{text}: {finished} of {count} finished"


def seed_words(seeds: Sequence[int]) -> str:
    """Seeds as people write them: 0–4, 7."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def _mean(found: Estimate, scale: float = 1.0, digits: int | None = None) -> str:
    """Mean ± half width of the 95 % interval; digits by size where not given."""
    if digits is None:
        size = abs(found.mean)
        digits = max(0, 2 - math.floor(math.log10(size))) if size > 0 else 0
        digits = min(digits, 6)
    text = f"{scale * found.mean:,.{digits}f}"
    if found.low is None or found.high is None:
        return text
    return f"{text} ± {scale * (found.high - found.low) / 2:,.{digits}f}"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
