"""Figures for papers and slides: their width, font and title, and a comparison as one figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu.errors import InputError
from camu.report import charts, style
from camu.report.runs import SavedRun, group_runs, looks, read_runs
from camu.report.scenes import scenes_of

POINTS_PER_MM = 72 / 25.4
_RATIO = 0.62  # height of a figure, in widths


@dataclass(frozen=True)
class Print:
    """How figures are printed; the default is that of pages."""

    width_mm: float | None = None  # of a column; None: as drawn
    font: str | None = None
    title: bool = True

    def applied(self, spec: charts.Spec) -> charts.Spec:
        """The chart in this look."""
        found = dict(spec)
        if self.width_mm is not None:
            # Axes and legend are inside the width, so that the figure fits the column.
            points = self.width_mm * POINTS_PER_MM
            old = found.get("width")
            ratio = found["height"] / old if old and found.get("height") else _RATIO
            found |= {"width": points, "height": points * ratio, "padding": 2}
            found["autosize"] = {"type": "fit", "contains": "padding"}
            if isinstance(title := found.get("title"), str):  # a column has no room for all of it
                found["title"] = {"text": title.partition(":")[0], "fontSize": 11}
        if self.font is not None:
            found["config"] = {**found.get("config", {}), "font": self.font}
        if not self.title:
            found.pop("title", None)
        return found


AS_DRAWN = Print()


def comparison_figure(done: Sequence[SavedRun], axis: str, look: Print) -> charts.Spec:
    """The mean scores of all schemes over a cost, with their 95 % bands."""
    groups = group_runs(read_runs(done).runs)
    [scene, *others] = scenes_of(groups)
    if others:
        raise InputError("--figure: the runs are of several worlds; compare them in one")
    key = f"accuracy-{axis}"
    data: dict[str, Any] = {"curves": scene.tables[key]}
    if not data["curves"]:
        raise InputError(f"--figure-axis {axis}: the runs do not have it")
    [panel] = [one for one in charts.WORLD_PANELS if one.key == key]
    marks = {**charts.line_marks(data, looks(groups)), **style.score_marks(scene.metric)}
    size = {"width": charts.HEIGHT / _RATIO, "height": charts.HEIGHT}
    drawn = charts.chart(key, marks, title=panel.titled(scene.metric).title, **size)
    return look.applied(charts.quiet(drawn, data))


def save_comparison(done: Sequence[SavedRun], path: Path, axis: str, look: Print) -> None:
    """Write the figure of a comparison; the file's ending decides the format."""
    charts.save(comparison_figure(done, axis, look), path)
