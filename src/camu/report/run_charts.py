"""Charts of runs, without data: accuracy against what it costs, where energy goes, how PPO learns.

In place of scheme names and their colours stand markers, which `fill` replaces.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from camu.report.plan_charts import rows
from camu.report.style import PALETTE, PHASES

AXES = {"rounds": "rounds", "joules": "joules, all devices together", "seconds": "virtual seconds"}
# Markers in a chart; the page and the figures put the values of a world in their place.
SCHEME_NAMES, COLOURS, DASHES = "$schemes", "$colours", "$dashes"


def fill(spec: Any, values: dict[str, list[Any]]) -> Any:
    """The specification with every list that holds a marker alone replaced by its values."""
    if isinstance(spec, dict):
        return {key: fill(value, values) for key, value in spec.items()}
    if isinstance(spec, list):
        if len(spec) == 1 and isinstance(spec[0], str) and spec[0] in values:
            return values[spec[0]]
        return [fill(value, values) for value in spec]
    return spec


def accuracy(axis: str) -> Any:
    """Mean accuracy of each scheme with its band, over one of AXES."""
    # Bands and points are faint or unseen; the legend shows the line.
    legend = alt.Legend(symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=3, symbolSize=220)
    colour = alt.Color(
        "scheme:N",
        title=None,
        scale=alt.Scale(domain=[SCHEME_NAMES], range=[COLOURS]),
        sort=None,
        legend=legend,
    )
    dash = alt.StrokeDash(
        "scheme:N",
        title=None,
        scale=alt.Scale(domain=[SCHEME_NAMES], range=[DASHES]),
        sort=None,
        legend=legend,
    )
    alone = alt.selection_point(name="alone", fields=["scheme"], bind="legend")
    steps: dict[str, Any] = {"tickMinStep": 1} if axis == "rounds" else {}
    ticks = alt.Axis(format="~s", labelOverlap=True, **steps)
    percent = alt.Axis(format=".0%")
    y = alt.Y("mean:Q", title="test accuracy", axis=percent, scale=alt.Scale(zero=False))
    base = rows("curves").encode(
        x=alt.X("x:Q", title=AXES[axis], axis=ticks),
        color=colour,
    )
    # One seed has no interval; its band has no width, so that the scale has an extent.
    sides = {side: f"datum.n > 1 ? datum.{side} : datum.mean" for side in ("low", "high")}
    words = "format(datum.low, '.1%') + ' to ' + format(datum.high, '.1%')"
    band = base.transform_calculate(**{"from": sides["low"], "to": sides["high"]})
    band = band.mark_area().encode(
        y=alt.Y("from:Q", title="test accuracy", axis=percent, scale=alt.Scale(zero=False)),
        y2="to:Q",
        opacity=alt.when(alone).then(alt.value(0.15)).otherwise(alt.value(0)),
    )
    line = base.mark_line(strokeWidth=2.2).encode(
        y=y,
        strokeDash=dash,
        opacity=alt.when(alone).then(alt.value(1)).otherwise(alt.value(0.12)),
    )
    points = base.transform_calculate(interval=f"datum.n > 1 ? {words} : 'one seed has none'")
    points = points.mark_point(opacity=0, size=90, filled=True).encode(
        y=y,
        tooltip=[
            alt.Tooltip("scheme:N"),
            alt.Tooltip("x:Q", title=AXES[axis].partition(",")[0], format=",.4~g"),
            alt.Tooltip("mean:Q", title="accuracy", format=".2%"),
            alt.Tooltip("interval:N", title="95 % interval"),
            alt.Tooltip("n:Q", title="seeds"),
        ],
    )
    return alt.layer(band, line.add_params(alone), points)


def energy() -> Any:
    """Joules per scheme, split into computing and sending."""
    phases = ["compute", "transmit"]
    return (
        rows("energy")
        .mark_bar(height={"band": 0.7})
        .encode(
            x=alt.X(
                "joules:Q",
                title="joules of a run, all devices",
                stack="zero",
                axis=alt.Axis(format="~s", tickCount=8, labelOverlap=True, labelSeparation=8),
            ),
            y=alt.Y("scheme:N", title=None, sort=None, axis=alt.Axis(labelLimit=170)),
            color=alt.Color(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=phases, range=[PHASES[phase] for phase in phases]),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("scheme:N"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("joules:Q", format=",.4~g"),
                alt.Tooltip("share:Q", title="of the scheme's energy", format=".1%"),
                alt.Tooltip("n:Q", title="seeds"),
            ],
        )
    )


def learning_curve() -> Any:
    """PPO's best objective so far, above the certified optimum."""
    line = (
        rows("ppo")
        .mark_line(color=PALETTE[2], strokeWidth=2.5)
        .encode(
            x=alt.X("steps:Q", title="environment steps", axis=alt.Axis(format="~s")),
            y=alt.Y("excess:Q", title="% above the certified optimum"),
            tooltip=[
                alt.Tooltip("steps:Q", format=","),
                alt.Tooltip("excess:Q", title="% above the optimum", format=".3~g"),
            ],
        )
    )
    zero = alt.Chart(alt.InlineData(values=[{"excess": 0}])).mark_rule(
        color=PALETTE[5], strokeWidth=2, strokeDash=[5, 3]
    )
    return line + zero.encode(y="excess:Q")
