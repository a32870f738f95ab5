"""The tables of a report as HTML: what was run, and the verdicts on claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from camu.experiments.statistics import estimate
from camu.report.groups import Group
from camu.report.run_data import table_row

# Word, symbol and colour say the same, so that none of them is needed alone.
_SYMBOLS = {"reproduced": "✓", "contradicted": "✗", "open": "○"}


def runs_table(groups: Sequence[Group]) -> str:
    """A row per world and scheme: seeds, rounds, accuracy, joules, seconds."""
    several = any(group.setting for group in groups)
    head = ["data set", *(["setting"] if several else []), "scheme", "seeds", "rounds"]
    numbers = ["final accuracy (%)", "energy (J)", "virtual time (s)"]
    rows = []
    for group in groups:
        values = table_row(group)
        finished = sum(run.finished for run in group.runs)
        seeds = seed_words([run.seed for run in group.runs])
        if finished < len(group.runs):
            seeds += f" — {finished} of {len(group.runs)} finished"
        rows.append(
            [group.dataset, *([group.setting] if several else []), group.label, seeds]
            + [_span(values["rounds"])]
            + [_mean(values["accuracy"], 100, 1)]
            + [_mean(values[name]) for name in ("joules", "seconds")]
        )
    return _table([*head, *numbers], rows, numeric=len(numbers) + 1)


def verdict_table(verdicts: Iterable[dict[str, Any]]) -> str:
    """A row per claim and data set: measured, interval, verdict, what the paper says."""
    head = ["claim", "data set", "verdict", "measured", "95 % interval", "seeds", "paper"]
    body = []
    for row in verdicts:
        word = str(row["verdict"])
        kind = word if word in _SYMBOLS else "open"
        badge = f'<span class="verdict {kind}">{_SYMBOLS[kind]} {escape(word)}</span>'
        claim = f"<strong>{escape(str(row['claim']))}</strong>"
        if row.get("statement"):
            claim += f" {escape(str(row['statement']))}"
        unit = f" {row['unit']}" if row.get("unit") and _is_number(row.get("mean")) else ""
        interval = (
            f"{_signed(row.get('low'))} … {_signed(row.get('high'))}"
            if _is_number(row.get("low")) and _is_number(row.get("high"))
            else "–"
        )
        cells = [
            escape(_signed(row.get("mean")) + unit),
            interval,
            escape(_plain(row.get("n"))),
            escape(_plain(row.get("paper"))),
        ]
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells[:3])
        body.append(
            f'<tr><td class="claim">{claim}</td><td>{escape(_plain(row.get("dataset")))}</td>'
            f"<td>{badge}</td>{numbers}<td>{cells[3]}</td></tr>"
        )
    kinds = ["", "", "", *[' class="number"'] * 3, ""]
    top = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, head, strict=True))
    return _frame(top, "".join(body))


def seed_words(seeds: Sequence[int]) -> str:
    """Seeds as people write them: 0–4, 7."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: int) -> str:
    """A table whose last `numeric` columns hold numbers."""
    first = len(head) - numeric
    kinds = ["" if index < first else ' class="number"' for index in range(len(head))]
    top = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, head, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return _frame(top, body)


def _frame(head: str, body: str) -> str:
    return (
        '<div class="scroll" tabindex="0"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


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
