"""One self-contained HTML page: tables, charts, and the library that draws them, all inlined."""

from __future__ import annotations

import json
from contextlib import suppress
from html import escape
from importlib import metadata, resources
from string import Template
from typing import Any

import vl_convert

from camu import __version__
from camu.data.store import cache_root
from camu.errors import CamuError
from camu.files import write_text
from camu.report.groups import Group, looks
from camu.report.panels import PLAN_PANELS, WORLD_PANELS, Panel
from camu.report.plan_data import Rows
from camu.report.run_charts import AXES
from camu.report.runs import Findings
from camu.report.scenes import Scene
from camu.report.style import DARK_SHADES, theme, vega_lite_version
from camu.report.tables import runs_table, verdict_table


def render(title: str, findings: Findings, groups: list[Group], scenes: list[Scene]) -> str:
    """The page as text."""
    sections = [_verdicts(findings)] if findings.verdicts else []
    if scenes:
        sections += [_runs(findings, groups), _accuracy(), _plan()]
    return Template(_file("page.html")).substitute(
        version=escape(__version__),
        title=escape(title),
        lead=escape(_lead(findings, scenes)),
        style=_file("page.css"),
        sections="\n".join(sections),
        data=_embeddable(_document(groups, scenes)),
        library=chart_library(),
        script=_file("page.js"),
    )


def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script.

    Putting them together takes seconds, so the script is kept beside the data sets.
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


def _runs(findings: Findings, groups: list[Group]) -> str:
    note = "Mean ± 95 % interval over seeds; without an interval there is one seed."
    if any(not run.finished for run in findings.runs):
        note += " Where some runs are not finished, numbers and curves are those of the others."
    if findings.skipped:
        note += f" Passed over, without a round so far: {len(findings.skipped)}."
    return _section("runs", "What was run", note, f'<div class="card">{runs_table(groups)}</div>')


def _verdicts(findings: Findings) -> str:
    note = (
        "Reproduced: the mean has the claimed sign and its 95 % interval excludes 0. Contradicted: "
        "it excludes 0 on the other side. Open: neither."
    )
    table = f'<div class="card">{verdict_table(findings.verdicts)}</div>'
    return _section("verdicts", "Verdicts on the claims", note, table)


def _accuracy() -> str:
    options = "".join(f'<option value="{axis}">{escape(AXES[axis])}</option>' for axis in AXES)
    controls = (
        _choice("dataset", "data set")
        + _choice("setting", "setting")
        + _choice("axis", "x axis", options)
    )
    accuracy, energy = WORLD_PANELS[0], WORLD_PANELS[-1]
    cards = _card("accuracy", accuracy) + _card("energy", energy)
    body = f'<div class="controls">{controls}</div><div class="grid">{cards}</div>'
    return _section("results", "What it reaches, and what it costs", "", body)


def _plan() -> str:
    cards = "".join(_card(panel.key, panel) for panel in PLAN_PANELS)
    controls = f'<div class="controls">{_choice("scheme", "scheme")}</div>'
    text = '<p class="note" id="plan-text"></p>'
    body = f'{controls}{text}<div class="grid">{cards}</div>'
    return _section("plan", "Inside a scheme: who does what", "", body)


def _card(key: str, panel: Panel) -> str:
    wide = " wide" if panel.wide else ""
    return (
        f'<div class="card{wide}"><h3 id="{key}-title">{escape(panel.title)}</h3>'
        f'<p class="note">{escape(panel.note)}</p>'
        f'<div class="chart" id="chart-{key}" aria-labelledby="{key}-title"></div></div>'
    )


def _choice(name: str, words: str, options: str = "") -> str:
    return f'<label class="choice">{words} <select id="{name}">{options}</select></label>'


def _section(name: str, title: str, note: str, body: str) -> str:
    note = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{note}{body}</section>'
