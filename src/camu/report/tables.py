"""The tables of a report as rows of text: the runs, and the verdicts on claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from camu.experiments.statistics import estimate
from camu.report.groups import Group
from camu.report.run_data import table_row

# Each verdict has a word, a symbol and a colour.
_SYMBOLS = {"reproduced": "✓", "contradicted": "✗", "open": "○"}


def runs_table(groups: Sequence[Group]) -> dict[str, Any]:
    """A head and a row per world and scheme: accuracy, joules, seconds, rounds, seeds."""
    several = any(group.setting for group in groups)
    words = ["data set", *(["setting"] if several else []), "scheme"]
    numbers = ["final accuracy (%)", "energy (J)", "virtual time (s)", "rounds"]
    rows = []
    for group in groups:
        values = table_row(group)
        rows.append(
            [group.dataset, *([group.setting] if several else []), group.label]
            + [_mean(values["accuracy"], 100, 1)]
            + [_mean(values[name]) for name in ("joules", "seconds")]
            + [_span(values["rounds"]), _seeds(group)]
        )
    head = [{"name": name, "number": name in numbers} for name in (*words, *numbers, "seeds")]
    return {"head": head, "rows": rows}


def _seeds(group: Group) -> str:
    """How many seeds, which, and how many of them are finished: 3 (seeds 0–2)."""
    count = len(group.runs)
    text = f"{count} (seed{'s' if count > 1 else ''} {seed_words([r.seed for r in group.runs])})"
    finished = sum(run.finished for run in group.runs)
    return text if finished == count else f"{text}: {finished} of {count} finished"


def verdict_rows(verdicts: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """A row per claim and data set: measured, interval, verdict, the paper's value."""
    rows = []
    for row in verdicts:
        word = str(row["verdict"])
        kind = word if word in _SYMBOLS else "open"
        unit = f" {row['unit']}" if row.get("unit") and _is_number(row.get("mean")) else ""
        known = _is_number(row.get("low")) and _is_number(row.get("high"))
        rows.append(
            {
                "claim": str(row["claim"]),
                "statement": str(row.get("statement") or ""),
                "dataset": _plain(row.get("dataset")),
                "word": word,
                "kind": kind,
                "symbol": _SYMBOLS[kind],
                "measured": _signed(row.get("mean")) + unit,
                "interval": f"{_signed(row['low'])} … {_signed(row['high'])}" if known else "–",
                "n": _plain(row.get("n")),
                "paper": _plain(row.get("paper")),
            }
        )
    return rows


def verdict_counts(verdicts: Iterable[dict[str, Any]]) -> str:
    """How many claims have which verdict: 3 reproduced, 1 contradicted, 7 open."""
    found = Counter(str(row["verdict"]) for row in verdicts)
    words = [*_SYMBOLS, *(word for word in found if word not in _SYMBOLS)]
    return ", ".join(f"{found[word]} {word}" for word in words if found[word]) + "."


def seed_words(seeds: Sequence[int]) -> str:
    """Seeds as people write them: 0–4, 7."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def _mean(values: Sequence[float], scale: float = 1.0, digits: int | None = None) -> str:
    """Mean ± half width of the 95 % interval; digits by size where not given."""
    found = estimate(values)
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _signed(value: Any) -> str:
    if not _is_number(value):
        return _plain(value)
    return f"{value:+.3g}" if abs(value) < 1e-3 and value else f"{value:+,.2f}"


def _plain(value: Any) -> str:
    return "–" if value is None else str(value)
