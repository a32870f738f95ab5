"""Writes a report: the page, and the same charts as files for papers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from camu.experiments.comparison import Comparison
from camu.files import write_text
from camu.report.groups import group_runs, looks
from camu.report.page import render
from camu.report.panels import PLAN_PANELS, WORLD_PANELS, Panel
from camu.report.placeholders import COLOURS, DASHES, SCHEME_NAMES, fill
from camu.report.rows import Rows
from camu.report.runs import read_runs
from camu.report.scenes import Scene, scenes_of
from camu.report.style import save_spec, theme
from camu.work import Progress, silent

PAGE = "report.html"
_WIDTH = 520

Look = dict[str, tuple[str, list[int]]]


def write_report(
    paths: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    figures: str | Path | None = None,
    title: str | None = None,
    comparison: Comparison | None = None,
    progress: Progress = silent,
) -> Path:
    """Write one HTML page about runs; it needs no network and no other file.

    Parameters:
        paths: one or more directories that `camu run`, `camu compare` or `camu reproduce` wrote.
        out: the page; by default report.html in the first directory.
        figures: a directory in which every chart is also saved as SVG and PDF.
        title: title of the page.
        comparison: its table is shown in place of the table of runs.
        progress: called after each figure.

    Returns:
        Where the page is.
    """
    folders = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    findings = read_runs(folders)
    groups = group_runs(findings.runs)
    scenes = scenes_of(groups)
    page = folders[0] / PAGE if out is None else Path(out)
    names = dict.fromkeys(folder.resolve().name for folder in folders)
    title = title or f"camu report: {', '.join(names)}"
    write_text(page, render(title, findings, groups, scenes, comparison))
    if figures is not None:
        _write_figures(scenes, looks(groups), Path(figures), progress)
    return page


def _write_figures(scenes: list[Scene], look: Look, folder: Path, progress: Progress) -> None:
    """Every chart that has something to show, in a directory per world and scheme."""
    todo: list[tuple[Path, Panel, dict[str, Rows], int]] = []
    for scene in scenes:
        place = folder.joinpath(*map(_slug, filter(None, (scene.dataset, scene.setting))))
        for panel in WORLD_PANELS:
            axis = panel.key.partition("-")[2]
            tables = {
                "curves": scene.curves.get(axis, []),
                "energy": scene.energy,
                "alive": scene.alive,
                "frontier": scene.frontier.get(axis, []),
            }
            todo.append((place / panel.key, panel, tables, len(scene.groups)))
        for label, view in scene.plans.items():
            rows = len(view.tables["units"])
            todo += [
                (place / _slug(label) / panel.key, panel, view.tables, rows)
                for panel in PLAN_PANELS
            ]
    todo = [one for one in todo if one[2].get(one[1].table)]
    specs = {panel.key: panel.spec(_WIDTH, title=True) for panel in (*WORLD_PANELS, *PLAN_PANELS)}
    for done, (path, panel, tables, rows) in enumerate(todo, start=1):
        spec = {**specs[panel.key], "height": panel.height(rows)}
        save_spec(_finished(spec, tables, look), path, ("svg", "pdf"))
        progress("figures", done, len(todo))


def _finished(spec: dict[str, Any], tables: dict[str, Rows], look: Look) -> dict[str, Any]:
    """The chart with its rows, its scheme colours and the light theme."""
    lines = tables.get("curves") or tables.get("alive", [])
    shown = list(dict.fromkeys(row["scheme"] for row in lines))
    marks = {
        SCHEME_NAMES: shown,
        COLOURS: [look[label][0] for label in shown],
        DASHES: [look[label][1] for label in shown],
    }
    data = {**spec.get("datasets", {}), **tables}
    return {**fill(spec, marks), "datasets": data, "config": theme(), "padding": 8}


def _slug(text: str) -> str:
    return re.sub(r"[^\w=.-]+", "-", text).strip("-.") or "run"
