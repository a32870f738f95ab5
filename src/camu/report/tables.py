"""The tables of a page: runs, comparisons and verdicts; many schemes are divided by family."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from camu.experiments.comparison import UNGROUPED_ROWS, Comparison, SeedRow
from camu.experiments.statistics import Estimate, Verdict, estimate, show_score
from camu.learning.metrics import Metric
from camu.report.runs import Group
from camu.report.scenes import final_numbers
from camu.report.style import COSTS

Table = dict[str, Any]  # a head, and families with a title, a note and rows


def _table(text: Sequence[str], numbers: Sequence[str], families: list[dict[str, Any]]) -> Table:
    """Families of rows below a head; columns of `text` come first."""
    head = [{"name": name, "number": False} for name in text]
    return {"head": head + [{"name": n, "number": True} for n in numbers], "families": families}


def plain_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], text: Collection[str] = ()
) -> Table:
    """Rows without families; all columns but those of `text` are numbers."""
    head = [{"name": name, "number": name not in text} for name in names]
    return {"head": head, "families": [{"title": "", "note": "", "rows": list(rows)}]}


def runs_table(groups: Sequence[Group]) -> Table:
    """A row per world and scheme: seeds, score, costs, rounds."""
    several = any(group.setting for group in groups)
    metrics = dict.fromkeys(group.metric for group in groups)
    found = [final_numbers(group) for group in groups]
    lopsided = any("balanced" in values for values in found)
    rows = []
    for group, values in zip(groups, found, strict=True):
        costs = [_mean(estimate(values[name])) if name in values else "–" for name in COSTS]
        world = [group.dataset, group.setting] if several else [group.dataset]
        score = "blown up"
        if "score" in values:
            score = show_score(group.metric, estimate(values["score"]), 1)
        if len(metrics) > 1:
            score = f"{group.metric.heading}: {score}"
        rounds = _span(values["rounds"])
        balanced = [_balanced(group, values)] if lopsided else []
        rows.append([*world, group.label, _seeds(group), score, *balanced, *costs, rounds])
    [one, *more] = metrics
    final = "final score" if more else f"final {one.title}{' (%)' if one.share else ''}"
    return _table(
        ["data set", *(["setting"] if several else []), "scheme", "seeds"],
        [
            final,
            *(["balanced accuracy (%)"] if lopsided else []),
            "energy (J)",
            "virtual time (s)",
            "sent (MB)",
            "rounds",
        ],
        _by_family([group.family for group in groups], rows),
    )


def _balanced(group: Group, values: dict[str, list[float]]) -> str:
    """The balanced accuracy, where it says something else than the accuracy."""
    if "balanced" not in values:
        return "–"
    return show_score(group.metric, estimate(values["balanced"]), 1)


def comparison_table(table: Comparison) -> Table:
    """A row per scheme: scores and differences at equal cost, and what its runs spent."""
    columns = table.equal_columns()
    rows = [
        [row.scheme, *table.cells(row, columns)]
        + [_mean(spent) for spent in (row.joules, row.virtual_seconds, row.megabytes)]
        for row in table.rows
    ]
    metric, best = table.judged, {}
    known = [(row, row.final_score) for row in table.rows if row.final_score is not None]
    for row, score in sorted(known, key=lambda one: metric.sign * one[1].mean):
        shown = show_score(metric, score, 1) + (" %" if metric.share else "")
        best[row.family] = f"best at the end: {row.scheme} ({shown})"
    families = _by_family([row.family for row in table.rows], rows, best)
    costs = ["energy (J)", "virtual time (s)", "sent (MB)"]
    return _table(["scheme"], [*(title for title, _ in columns), *costs], families)


def seeds_table(table: Comparison) -> Table:
    """A row per scheme and seed: scores, and differences to the first scheme."""
    columns = table.equal_columns()
    rows = [
        [run.scheme, str(run.seed), *(_score(table.judged, run, name) for _, name in columns)]
        for run in table.runs
    ]
    names = ["seed", *(title for title, _ in columns)]
    return _table(["scheme"], names, [{"title": "", "note": "", "rows": rows}])


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


def _score(metric: Metric, run: SeedRow, name: str) -> str:
    value = getattr(run, name)
    if value is None:
        return "–"
    sign = "+" if name.endswith("difference") else ""
    return f"{100 * value:{sign}.2f}" if metric.share else f"{value:{sign}.4g}"


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


def _mean(found: Estimate) -> str:
    """Mean ± half width of the 95 % interval, with digits by size."""
    size = abs(found.mean)
    digits = min(6, max(0, 2 - math.floor(math.log10(size)))) if size > 0 else 0
    text = f"{found.mean:,.{digits}f}"
    if found.low is None or found.high is None:
        return text
    return f"{text} ± {(found.high - found.low) / 2:,.{digits}f}"


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


# Each verdict has a word, a symbol and a colour.
SYMBOLS = {
    "reproduced": "✓",
    "contradicted": "✗",
    "no effect above 1 point": "≈",
    "undecided": "○",
}
_PAPER_NAMES = {
    "Benchmark 1": "fedsgd",
    "Benchmark 2": "compute-rounds",
    "Benchmark 3": "hti",
    "Configuration 1": "clustered",
    "Configuration 2": "wasserstein",
    "Configuration 3": "camu",
    "Configuration 4": "clustered",
    "Configuration 5": "camu-joint",
}


def paper_names(verdicts: Iterable[Verdict]) -> str:
    """What the paper's names in the statements are called in the curves and tables of runs."""
    text = " ".join(row.statement for row in verdicts)
    known = [f"{name} is {scheme}" for name, scheme in _PAPER_NAMES.items() if name in text]
    return f"{'; '.join(known)}." if known else ""


def verdict_counts(verdicts: Iterable[Verdict]) -> str:
    """How many claims have which verdict: 3 reproduced, 1 contradicted, 7 undecided."""
    found = Counter(row.verdict for row in verdicts)
    return ", ".join(f"{found[word]} {word}" for word in {**SYMBOLS, **found} if found[word]) + "."


def signed(value: float) -> str:
    """A difference for people."""
    return f"{value:+.3g}" if abs(value) < 1e-3 and value else f"{value:+,.2f}"
