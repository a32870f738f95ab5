"""Writes a report: one self-contained HTML page, and the same charts as files for papers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from camu import __version__
from camu.errors import InputError
from camu.experiments.comparison import UNGROUPED_ROWS, Comparison
from camu.experiments.conclusions import conclusions
from camu.files import open_regular, write_text
from camu.learning.chance import chance_words
from camu.learning.metrics import Metric
from camu.report import charts, style, tables
from camu.report.printed import AS_DRAWN, Print
from camu.report.rows import Rows
from camu.report.runs import Findings, Group, SavedRun, group_runs, looks, read_runs
from camu.report.scenes import Scene, scenes_of
from camu.work import Progress, silent

PAGE = "report.html"
RUNS_PAGE = "report-runs.html"  # next to the page of a comparison
_WIDTH = 520


def write_report(
    paths: str | Path | Sequence[str | Path | SavedRun],
    out: str | Path | None = None,
    figures: str | Path | None = None,
    title: str | None = None,
    comparison: Comparison | None = None,
    progress: Progress = silent,
    printed: Print = AS_DRAWN,
) -> Path:
    """Write one HTML page about runs; it needs no network and no other file.

    Parameters:
        paths: one or more directories that `camu run`, `camu compare` or `camu reproduce` wrote;
            a run that has just ended is not read again where it is given as `SavedRun.ended`.
        out: the page; by default report.html in the first directory, or report-runs.html where
            that is the page of a comparison.
        figures: a directory in which every chart is also saved as SVG and PDF.
        title: title of the page.
        comparison: its table is shown in place of the table of runs.
        progress: called after each figure.
        printed: width, font and title of the figures.

    Returns:
        Where the page is.
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    found = [one if isinstance(one, SavedRun) else Path(one) for one in given]
    folders = [one.path if isinstance(one, SavedRun) else one for one in found]
    findings = read_runs(found)
    groups = group_runs(findings.runs)
    scenes = scenes_of(groups)
    page = _place(folders[0], out) if comparison is None else Path(out or folders[0] / PAGE)
    names = dict.fromkeys(folder.resolve().name for folder in folders)
    title = title or f"camu report: {', '.join(names)}"
    write_text(page, render(title, findings, groups, scenes, comparison))
    if figures is not None:
        _write_figures(scenes, looks(groups), Path(figures), printed, progress)
    return page


def _place(folder: Path, out: str | Path | None) -> Path:
    """Where a page of runs goes: never over the page of a comparison, which has more."""
    page = folder / PAGE if out is None else Path(out)
    try:
        with open_regular(page) as stream:
            compared = b'<section id="comparison">' in stream.read()
    except OSError:
        return page
    if compared and out is not None:
        raise InputError(f"{page}: is the page of a comparison; give --out another name")
    return page.with_name(RUNS_PAGE) if compared else page


def _write_figures(
    scenes: list[Scene], look: charts.Look, folder: Path, printed: Print, progress: Progress
) -> None:
    """Every chart that has something to show, in a directory per world and scheme."""
    todo: list[tuple[Path, charts.Panel, dict[str, Rows], int, Metric]] = []
    for scene in scenes:
        place = folder.joinpath(*map(_slug, filter(None, (scene.dataset, scene.setting))))
        for panel in charts.WORLD_PANELS:
            data, titled = {panel.table: scene.tables[panel.key]}, panel.titled(scene.metric)
            todo.append((place / panel.key, titled, data, len(scene.groups), scene.metric))
        for label, view in scene.plans.items():
            rows = len(view.tables["units"])
            todo += [
                (place / _slug(label) / panel.key, panel, view.tables, rows, scene.metric)
                for panel in charts.PLAN_PANELS
            ]
    todo = [one for one in todo if one[2].get(one[1].table)]
    for done, (path, panel, data, rows, metric) in enumerate(todo, start=1):
        size = {"width": _WIDTH, "height": panel.height(rows)}
        marks = {**charts.line_marks(data, look), **style.score_marks(metric)}
        drawn = charts.chart(panel.key, marks, title=panel.title, **size)
        for ending in ("svg", "pdf"):
            whole = printed.applied(charts.quiet(drawn, data))
            charts.save(whole, path.with_name(f"{path.name}.{ending}"))
        progress("figures", done, len(todo))


def _slug(text: str) -> str:
    return re.sub(r"[^\w=.-]+", "-", text).strip("-.") or "run"


def render(
    title: str,
    findings: Findings,
    groups: list[Group],
    scenes: list[Scene],
    comparison: Comparison | None = None,
) -> str:
    """The page as text. Everything but our own style, script, library and JSON is escaped."""
    library, script = charts.chart_library(), scripts("points.js", "page.js")
    return charts.template("camu.report", "page.html").render(
        policy=charts.safe(charts.script_policy(library, script)),
        version=__version__,
        title=title,
        lead=_lead(findings, scenes),
        style=charts.safe(template_file("page.css")),
        print_colours=style.DARK_TO_LIGHT,
        verdicts=findings.verdicts,
        symbols=tables.SYMBOLS,
        signed=tables.signed,
        verdict_counts=tables.verdict_counts(findings.verdicts),
        paper_names=tables.paper_names(findings.verdicts),
        runs={**tables.runs_table(groups), "note": _note(findings)} if scenes else None,
        comparison=None if comparison is None else _compared(comparison),
        axes={
            axis: words
            for axis, words in style.AXES.items()
            if any(scene.tables[f"accuracy-{axis}"] for scene in scenes)
        },
        accuracy_panel=_titled(charts.WORLD_PANELS, scenes)[0],
        world_panels=_titled(_world_panels(), scenes),
        plan_panels=charts.PLAN_PANELS,
        data=charts.safe(charts.embeddable(_document(groups, scenes))),
        library=charts.safe(library),
        script=charts.safe(script),
    )


class _Pool:
    """Tables by content: plans of one world share most of theirs, and a page holds each once."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}

    def numbers(self, tables: Mapping[str, Rows]) -> dict[str, int]:
        """The place of each of these among the tables of the page."""
        return {name: self._number(rows) for name, rows in tables.items()}

    def _number(self, rows: Rows) -> int:
        columns: dict[str, Any] = {}
        for name in rows[0] if rows else ():
            values = [row[name] for row in rows]
            # A column of equal values is that value.
            columns[name] = values[0] if all(value == values[0] for value in values) else values
        table = {"rows": len(rows), "columns": columns}
        number = self._numbers.setdefault(json.dumps(table), len(self.tables))
        if number == len(self.tables):
            self.tables.append(table)
        return number


def _document(groups: list[Group], scenes: list[Scene]) -> dict[str, Any]:
    """Everything that the script needs."""
    pool = _Pool()
    return {
        "themes": {"light": style.theme(), "dark": style.theme(dark=True)},
        "panels": {
            panel.key: {
                "table": panel.table,
                "row_pixels": panel.row_pixels,
                "spec": panel.spec("container"),
            }
            for panel in (*charts.WORLD_PANELS, *charts.PLAN_PANELS)
        },
        "world_panels": [panel.key for panel in _world_panels()],
        "plan_panels": [panel.key for panel in charts.PLAN_PANELS],
        "most_together": UNGROUPED_ROWS,
        "dark_shades": style.DARK_SHADES,
        "looks": looks(groups),
        "first": "camu",
        "scenes": [
            {
                "dataset": scene.dataset,
                "setting": scene.setting,
                "score": style.score_marks(scene.metric),
                "titles": {p.key: p.titled(scene.metric).title for p in charts.WORLD_PANELS},
                "schemes": [group.label for group in scene.groups],
                "families": [group.family for group in scene.groups],
                "tables": pool.numbers(scene.tables),
                "plans": {
                    label: {"text": view.text, "tables": pool.numbers(view.tables)}
                    for label, view in scene.plans.items()
                },
            }
            for scene in scenes
        ],
        "tables": pool.tables,
    }


def _world_panels() -> list[charts.Panel]:
    """The charts of a world but its curves, which share one place."""
    return [panel for panel in charts.WORLD_PANELS if panel.table != "curves"]


def _titled(panels: Sequence[charts.Panel], scenes: list[Scene]) -> list[charts.Panel]:
    """The panels with the titles of the first scene."""
    return [panel.titled(scenes[0].metric) for panel in panels] if scenes else list(panels)


def template_file(name: str) -> str:
    """The text of a file beside the page's template."""
    return (resources.files("camu.report") / "templates" / name).read_text(encoding="utf-8").strip()


def scripts(*names: str) -> str:
    """These scripts of the package as one."""
    return "\n".join(template_file(name) for name in names)


def _lead(findings: Findings, scenes: list[Scene]) -> str:
    if not findings.runs:
        return f"{len(findings.verdicts)} verdicts; no runs."
    schemes = {group.label for scene in scenes for group in scene.groups}
    counts = {"run": len(findings.runs), "scheme": len(schemes), "setting": len(scenes)}
    runs, schemes_, settings = (f"{n} {name}{'s' if n > 1 else ''}" for name, n in counts.items())
    return f"{runs}: {schemes_} in {settings}."


def _compared(table: Comparison) -> dict[str, Any]:
    """The sentences and tables of a comparison, and words above them."""
    count, seeds = len(table.seeds), tables.seed_words(table.seeds)
    note = (
        f"{table.heading}, mean ± 95 % interval over {count} seed{'s' if count > 1 else ''} "
        f"({seeds}); differences to {table.baseline} are paired by seed. "
        f"A run that ended before a budget counts with its final {table.judged.title}."
    )
    note = f"{note} {table.blown_up}".rstrip()
    whole, seeds_ = tables.comparison_table(table), tables.seeds_table(table)
    return {"note": note, "table": whole, "seeds": seeds_, "found": conclusions(table)}


def _note(findings: Findings) -> str:
    """Words above the table of runs."""
    note = "Mean ± 95 % interval over seeds; without an interval there is one seed."
    if any(not run.finished for run in findings.runs):
        note += " Where some runs are not finished, numbers and curves are those of the others."
    if findings.skipped:
        note += f" Left out, without a round so far: {len(findings.skipped)}."
    return note + _chance(findings)


def _chance(findings: Findings) -> str:
    """A sentence if models name one class only."""
    last = [(run, run.records[-1]) for run in findings.runs]
    words = [(run, chance_words(one.accuracy, one.label_accuracy)) for run, one in last]
    found = [(run, text) for run, text in words if text is not None]
    if not found:
        return ""
    run, text = found[0]
    more = f" The same goes for {len(found) - 1} more." if len(found) > 1 else ""
    return f" {run.config.scheme.name}, seed {run.seed}: {text}.{more}"
