"""One self-contained HTML page: tables, charts, and the library that draws them."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from camu import __version__, notebook
from camu.data.store import cache_root
from camu.errors import CamuError
from camu.experiments.comparison import UNGROUPED_ROWS, Comparison
from camu.files import write_text
from camu.report.groups import Group, looks
from camu.report.panels import PLAN_PANELS, WORLD_PANELS
from camu.report.placeholders import AXES
from camu.report.rows import Rows
from camu.report.runs import Findings
from camu.report.scenes import Scene
from camu.report.style import DARK_SHADES, DARK_TO_LIGHT, VEGA_LITE_VERSION, theme
from camu.report.tables import comparison_table, runs_table, seed_words, seeds_table
from camu.simulation import ledger


def render(
    title: str,
    findings: Findings,
    groups: list[Group],
    scenes: list[Scene],
    comparison: Comparison | None = None,
) -> str:
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
        style=_safe(_file("page.css")),
        print_colours=DARK_TO_LIGHT,
        verdicts=verdict_rows(findings.verdicts),
        verdict_counts=verdict_counts(findings.verdicts),
        paper_names=paper_names(findings.verdicts),
        runs={**runs_table(groups), "note": _note(findings)} if scenes else None,
        comparison=None if comparison is None else _compared(comparison),
        axes=AXES,
        accuracy_panel=WORLD_PANELS[0],
        world_panels=[panel for panel in WORLD_PANELS if not panel.key.startswith("accuracy")],
        plan_panels=PLAN_PANELS,
        data=_safe(_embeddable(_document(groups, scenes))),
        library=_safe(chart_library()),
        script=_safe(_file("page.js")),
    )


def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; putting them together takes seconds."""
    name = f"vega-lite-{VEGA_LITE_VERSION}-vl-convert-{metadata.version('vl-convert-python')}.js"
    return _kept(name, _bundle)


def _bundle() -> str:
    # A browser would end the script at a closing tag within it; the function keeps names inside.
    bundle = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;", VEGA_LITE_VERSION)
    return "(() => {" + bundle.replace("</script", r"<\/script") + "})();"


def chart_specs() -> dict[str, Any]:
    """All charts of the page by key, without their data.

    They are the same for all runs, and Altair takes longer for them than the rest of the page.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    sources += [Path(str(module.__file__)) for module in (notebook, ledger)]  # colours, kinds
    digest = hashlib.sha256(metadata.version("altair").encode())
    for source in sources:
        digest.update(source.read_bytes())
    text = _kept(f"charts-{digest.hexdigest()[:16]}.json", _specs)
    try:
        specs: dict[str, Any] = json.loads(text)
    except ValueError:  # a damaged file
        specs = json.loads(_specs())
    return specs


def _specs() -> str:
    return json.dumps({p.key: p.spec("container") for p in (*WORLD_PANELS, *PLAN_PANELS)})


def _kept(name: str, make: Callable[[], str]) -> str:
    """A text that takes long to make, from the cache of the data sets if it is there."""
    path = cache_root() / "report" / name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    text = make()
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
    pool, specs = _Pool(), chart_specs()
    panels = {
        panel.key: {
            "title": panel.title,
            "table": panel.table,
            "row_pixels": panel.row_pixels,
            "spec": specs[panel.key],
        }
        for panel in (*WORLD_PANELS, *PLAN_PANELS)
    }
    return {
        "themes": {"light": theme(), "dark": theme(dark=True)},
        "panels": panels,
        "plan_panels": [panel.key for panel in PLAN_PANELS],
        "most_together": UNGROUPED_ROWS,
        "dark_shades": DARK_SHADES,
        "looks": looks(groups),
        "first": "camu",
        "scenes": [_scene(scene, pool) for scene in scenes],
        "tables": pool.tables,
    }


def _scene(scene: Scene, pool: _Pool) -> dict[str, Any]:
    return {
        "dataset": scene.dataset,
        "setting": scene.setting,
        "schemes": [group.label for group in scene.groups],
        "families": [group.family for group in scene.groups],
        "curves": {axis: pool.number(rows) for axis, rows in scene.curves.items()},
        "energy": pool.number(scene.energy),
        "alive": pool.number(scene.alive),
        "frontier": {cost: pool.number(rows) for cost, rows in scene.frontier.items()},
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


def _safe(text: str) -> Markup:
    """Text that goes into the page as it is: camu's own files, and JSON in which `<` is escaped."""
    return Markup(text)  # nosec B704


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


def _compared(table: Comparison) -> dict[str, Any]:
    """The tables of a comparison, and words above them."""
    count = len(table.seeds)
    note = (
        f"Accuracy in %, mean ± 95 % interval over {count} seed{'s' if count > 1 else ''} "
        f"({seed_words(table.seeds)}); differences to {table.rows[0].scheme} are paired by seed. "
        "A run that ended before a budget counts with its final accuracy."
    )
    return {"note": note, "table": comparison_table(table), "seeds": seeds_table(table)}


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
_PAPER_NAMES = {
    "Benchmark 1": "fedavg",
    "Benchmark 2": "compute-rounds",
    "Benchmark 3": "hti",
    "Configuration 1": "clustered",
    "Configuration 2": "wasserstein",
    "Configuration 3": "camu",
    "Configuration 4": "clustered",
    "Configuration 5": "camu-joint",
}
_CLASSES = {"no effect above 1 point": "none"}  # in the style sheet, where the word has spaces


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


def paper_names(verdicts: Iterable[dict[str, Any]]) -> str:
    """What the paper's names in the statements are called in the curves and tables of runs."""
    text = " ".join(str(row.get("statement", "")) for row in verdicts)
    known = [f"{name} is {scheme}" for name, scheme in _PAPER_NAMES.items() if name in text]
    return f"{'; '.join(known)}." if known else ""


def verdict_counts(verdicts: Iterable[dict[str, Any]]) -> str:
    """How many claims have which verdict: 3 reproduced, 1 contradicted, 7 undecided."""
    found = Counter(str(row["verdict"]) for row in verdicts)
    words = [*_SYMBOLS, *(word for word in found if word not in _SYMBOLS)]
    return ", ".join(f"{found[word]} {word}" for word in words if found[word]) + "."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _signed(value: Any) -> str:
    if not _is_number(value):
        return _plain(value)
    return f"{value:+.3g}" if abs(value) < 1e-3 and value else f"{value:+,.2f}"


def _plain(value: Any) -> str:
    return "–" if value is None else str(value)
