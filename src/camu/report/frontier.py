"""Accuracy against cost: a dot per scheme, and the line of those that no other scheme beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from camu.report.charts import AXES, rows
from camu.report.groups import Group
from camu.report.rows import Rows, short, table_row
from camu.report.style import FAINT, PALETTE

COSTS = ("joules", "seconds")
# Families have a shape too, since there are more of them than colours; no pair occurs twice.
_SHAPES = (
    "circle", "square", "diamond", "triangle-up", "triangle-down",
    "cross", "triangle-right", "triangle-left", "square", "diamond",
)  # fmt: skip


def frontier_rows(groups: Sequence[Group], cost: str) -> Rows:
    """A row per scheme: means over seeds at the end of its runs, and whether it is on the line."""
    found: Rows = []
    for group in groups:
        values = table_row(group)
        found.append(
            {
                "scheme": group.label,
                "family": group.family,
                "x": short(float(np.mean(values[cost]))),
                "accuracy": short(float(np.mean(values["accuracy"]))),
                "n": len(values["accuracy"]),
            }
        )
    best = unbeaten([(row["x"], row["accuracy"]) for row in found])
    return [row | {"best": number in best} for number, row in enumerate(found)]


def unbeaten(points: Sequence[tuple[float, float]]) -> set[int]:
    """The points (cost, accuracy) without another that is as good in both and better in one."""
    return {
        number
        for number, (cost, accuracy) in enumerate(points)
        if not any(
            other_cost <= cost
            and other_accuracy >= accuracy
            and (other_cost, other_accuracy) != (cost, accuracy)
            for other_cost, other_accuracy in points
        )
    }


def frontier(cost: str) -> Any:
    """Accuracy of each scheme over one of COSTS."""
    x = alt.X(
        "x:Q", title=AXES[cost], axis=alt.Axis(format="~s"), scale=alt.Scale(zero=False, padding=20)
    )
    y = alt.Y(
        "accuracy:Q",
        title="test accuracy",
        axis=alt.Axis(format=".0%"),
        scale=alt.Scale(zero=False, padding=16),
    )
    base = rows("frontier").encode(x=x, y=y)
    alone = alt.selection_point(name="family", fields=["family"], bind="legend")
    legend = alt.Legend(symbolOpacity=1, symbolSize=90)
    dots = base.mark_point(filled=True, size=90).encode(
        color=alt.Color(
            "family:N", title=None, sort=None, scale=alt.Scale(range=PALETTE), legend=legend
        ),
        shape=alt.Shape(
            "family:N", title=None, sort=None, scale=alt.Scale(range=list(_SHAPES)), legend=legend
        ),
        opacity=alt.when(alone).then(alt.value(0.9)).otherwise(alt.value(0.12)),
        tooltip=[
            alt.Tooltip("scheme:N"),
            alt.Tooltip("family:N"),
            alt.Tooltip("x:Q", title=AXES[cost].partition(",")[0], format=",.4~g"),
            alt.Tooltip("accuracy:Q", format=".2%"),
            alt.Tooltip("n:Q", title="seeds"),
        ],
    )
    best = base.transform_filter("datum.best")
    line = best.mark_line(strokeDash=[4, 3], strokeWidth=1.5, interpolate="step-after", style=FAINT)
    names = best.mark_text(align="left", dx=8, dy=-8, fontSize=11).encode(text="scheme:N")
    return alt.layer(line, dots.add_params(alone), names)
