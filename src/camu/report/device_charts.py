"""Charts about single devices: what each spent, and how many still take part."""

from __future__ import annotations

from typing import Any

import altair as alt

from camu.report.charts import rows
from camu.report.placeholders import COLOURS, DASHES, SCHEME_NAMES
from camu.report.style import PHASES
from camu.simulation.ledger import KINDS


def alive() -> Any:
    """Devices that still take part, over rounds, a line per scheme."""
    look: dict[str, Any] = {"title": None, "sort": None}
    return (
        rows("alive")
        .mark_line(strokeWidth=2.2, interpolate="step-after")
        .encode(
            x=alt.X("x:Q", title="rounds", axis=alt.Axis(format="~s", tickMinStep=1)),
            y=alt.Y("alive:Q", title="devices", scale=alt.Scale(zero=True)),
            color=alt.Color(
                "scheme:N", scale=alt.Scale(domain=[SCHEME_NAMES], range=[COLOURS]), **look
            ),
            strokeDash=alt.StrokeDash(
                "scheme:N", scale=alt.Scale(domain=[SCHEME_NAMES], range=[DASHES]), **look
            ),
            tooltip=[
                alt.Tooltip("scheme:N"),
                alt.Tooltip("x:Q", title="rounds"),
                alt.Tooltip("alive:Q", title="devices", format=".4~g"),
                alt.Tooltip("n:Q", title="seeds"),
            ],
        )
    )


def spending() -> Any:
    """Joules of each device, by kind, the largest first."""
    return (
        rows("spending")
        .mark_bar(height={"band": 0.75})
        .encode(
            x=alt.X(
                "joules:Q",
                title="joules of the run",
                stack="zero",
                axis=alt.Axis(format="~s", tickCount=6, labelOverlap=True),
            ),
            y=alt.Y(
                "device:N",
                title="device",
                sort=alt.EncodingSortField(field="place", op="min"),
                axis=alt.Axis(labelOverlap=True, labelFontSize=9),
            ),
            color=alt.Color(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=list(KINDS), range=[PHASES[kind] for kind in KINDS]),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("device:N"),
                alt.Tooltip("role:N"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("joules:Q", format=",.4~g"),
                alt.Tooltip("battery:N"),
            ],
        )
    )
