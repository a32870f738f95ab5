"""One self-contained HTML page: tables, charts, and the library that draws them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import metadata, resources
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from camu import __version__
from camu.data.store import cache_root
from camu.errors import CamuError
from camu.experiments.statistics import estimate
from camu.files import write_text
from camu.report.charts import AXES
from camu.report.groups import Group, looks
from camu.report.panels import PLAN_PANELS, WORLD_PANELS, Panel
from camu.report.rows import Rows, table_row
from camu.report.runs import Findings
from camu.report.scenes import Scene
from camu.report.style import DARK_SHADES, DARK_TO_LIGHT, theme, vega_lite_version


def render(title: str, findings: Findings, groups: list[Group], scenes: list[Scene]) -> str:
    """The page as text. Everything but our own style, script, library and JSON is escaped."""
    environment = Environment(
        loader=PackageLoader("camu.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        version=__version__,
        title=title,
        lead=_lead(findings, scenes),
        style=Markup(_file("page.css")),
        print_colours=DARK_TO_LIGHT,
        verdicts=verdict_rows(findings.verdicts),
        verdict_counts=verdict_counts(findings.verdicts),
        runs={**runs_table(groups), "note": _note(findings)} if scenes else None,
        axes=AXES,
        accuracy_panel=WORLD_PANELS[0],
        energy_panel=WORLD_PANELS[-2],
        alive_panel=WORLD_PANELS[-1],
        plan_panels=PLAN_PANELS,
        data=Markup(_embeddable(_document(groups, scenes))),
        library=Markup(chart_library()),
        script=Markup(_file("page.js")),
    )


def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script.

    Putting them together takes seconds, so the script is kept in the cache of the data sets.
    """
    version = vega_lite_version()
    name = f"vega-lite-{version}-vl-convert-{metadata.version('vl-convert-python')}.js"
    path = cache_root() / "report" / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        pass
    # A browser would end the script at a closing tag within it; the function keeps names inside.
    bundle = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;", version)
    text = "(() => {" + bundle.replace("</script", r"<\/script") + "})();"
    with suppress(CamuError):  # a cache that cannot be written costs time, nothing else
        write_text(path, text)
    return text


class _Pool:
    """Tables by content: plans of one world share most of theirs, and a page holds each once."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}

    def number(self, rows: Rows) -> int:
        """The place of these rows among the tables."""
        columns: dict[str, Any] = {}
        for name in rows[0] if rows else ():
            values = [row[name] for row in rows]
            # A column of equal values is that value.
            columns[name] = values[0] if all(value == values[0] for value in values) else values
        table = {"rows": len(rows), "columns": columns}
        key = json.dumps(table)
        if key not in self._numbers:
            self._numbers[key] = len(self.tables)
            self.tables.append(table)
        return self._numbers[key]


def _document(groups: list[Group], scenes: list[Scene]) -> dict[str, Any]:
    """Everything that the script needs."""
    pool = _Pool()
    return {
        "themes": {"light": theme(), "dark": theme(dark=True)},
        "panels": {panel.key: _panel(panel) for panel in (*WORLD_PANELS, *PLAN_PANELS)},
        "plan_panels": [panel.key for panel in PLAN_PANELS],
        "dark_shades": DARK_SHADES,
        "looks": looks(groups),
        "first": "camu",
        "scenes": [_scene(scene, pool) for scene in scenes],
        "tables": pool.tables,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "table": panel.table,
        "row_pixels": panel.row_pixels,
        "spec": panel.spec("container"),
    }


def _scene(scene: Scene, pool: _Pool) -> dict[str, Any]:
    return {
        "dataset": scene.dataset,
        "setting": scene.setting,
        "schemes": [group.label for group in scene.groups],
        "curves": {axis: pool.number(rows) for axis, rows in scene.curves.items()},
        "energy": pool.number(scene.energy),
        "alive": pool.number(scene.alive),
        "plans": {
            label: {
                "text": view.text,
                "tables": {name: pool.number(rows) for name, rows in view.tables.items()},
            }
            for label, view in scene.plans.items()
        },
    }


def _embeddable(document: dict[str, Any]) -> str:
    """JSON that no text within it can end."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _file(name: str) -> str:
    return (resources.files("camu.report") / "templates" / name).read_text(encoding="utf-8").strip()


def _lead(findings: Findings, scenes: list[Scene]) -> str:
    count = len(findings.runs)
    if not count:
        return f"{len(findings.verdicts)} verdicts; no runs."
    schemes = len({group.label for scene in scenes for group in scene.groups})
    worlds = len(scenes)
    return (
        f"{count} run{'s' if count > 1 else ''}: {schemes} scheme{'s' if schemes > 1 else ''} "
        f"in {worlds} setting{'s' if worlds > 1 else ''}."
    )


def _note(findings: Findings) -> str:
    """Words above the table of runs."""
    note = "Mean ± 95 % interval over seeds; without an interval there is one seed."
    if any(not run.finished for run in findings.runs):
        note += " Where some runs are not finished, numbers and curves are those of the others."
    if findings.skipped:
        note += f" Left out, without a round so far: {len(findings.skipped)}."
    return note


# Each verdict has a word, a symbol and a colour.
_SYMBOLS = {
    "reproduced": "✓",
    "contradicted": "✗",
    "no effect above 1 point": "≈",
    "undecided": "○",
}
_CLASSES = {"no effect above 1 point": "none"}  # in the style sheet, where the word has spaces


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
        kind = word if word in _SYMBOLS else "undecided"
        unit = f" {row['unit']}" if row.get("unit") and _is_number(row.get("mean")) else ""
        known = _is_number(row.get("low")) and _is_number(row.get("high"))
        rows.append(
            {
                "claim": str(row["claim"]),
                "statement": str(row.get("statement") or ""),
                "dataset": _plain(row.get("dataset")),
                "word": word,
                "kind": _CLASSES.get(kind, kind),
                "symbol": _SYMBOLS[kind],
                "measured": _signed(row.get("mean")) + unit,
                "interval": f"{_signed(row['low'])} … {_signed(row['high'])}" if known else "–",
                "sd": f"{row['sd']:.2f}" if _is_number(row.get("sd")) else "–",
                "holm": str(row.get("holm") or "–"),
                "n": _plain(row.get("n")),
                "needed": _plain(row.get("seeds_needed")),
                "paper": _plain(row.get("paper")),
            }
        )
    return rows


def verdict_counts(verdicts: Iterable[dict[str, Any]]) -> str:
    """How many claims have which verdict: 3 reproduced, 1 contradicted, 7 undecided."""
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
