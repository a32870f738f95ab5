"""Charts without data: of a plan (map, labels, timeline) and of runs (accuracy, energy, PPO)."""

from __future__ import annotations

from typing import Any

import altair as alt

from camu.report.placeholders import AXES, COLOURS, DASHES, SCHEME_NAMES
from camu.report.style import FAINT, INK, PALETTE, PHASES

# Families have a shape too, since there are more of them than colours; no pair occurs twice.
_SHAPES = (
    "circle", "square", "diamond", "triangle-up", "triangle-down",
    "cross", "triangle-right", "triangle-left", "square", "diamond",
)  # fmt: skip


def rows(name: str) -> Any:
    """A chart of the rows with this name."""
    return alt.Chart(alt.NamedData(name=name))


def device_map() -> Any:
    """Where devices are, which cluster each belongs to, and who talks to whom."""
    over = alt.selection_point(name="over", fields=["cluster"], on="pointerover", empty=True)
    colour = alt.Color("colour:N", scale=None)
    axes: dict[str, Any] = {
        "x": alt.X("x:Q", title="x (m)", scale=alt.Scale(zero=False, padding=30)),
        "y": alt.Y("y:Q", title="y (m)", scale=alt.Scale(zero=False, padding=24)),
    }
    kinds = ["member to leader", "leader to base station"]
    lines = (
        rows("links")
        .mark_rule(strokeWidth=1.3)
        .encode(
            **axes,
            x2="x2:Q",
            y2="y2:Q",
            color=colour,
            opacity=alt.when(over).then(alt.value(0.6)).otherwise(alt.value(0.08)),
            strokeDash=alt.StrokeDash(
                "link:N", title=None, scale=alt.Scale(domain=kinds, range=[[1, 0], [4, 3]])
            ),
        )
    )
    roles = ["member", "leader"]
    devices = (
        rows("devices")
        .transform_calculate(heard="isValid(datum.snr) ? format(datum.snr, '.1f') + ' dB' : '?'")
        .mark_point(filled=True, stroke="white", strokeWidth=0.8)
        .encode(
            **axes,
            color=colour,
            opacity=alt.when(over).then(alt.value(1)).otherwise(alt.value(0.25)),
            shape=alt.Shape(
                "role:N", title=None, scale=alt.Scale(domain=roles, range=["circle", "diamond"])
            ),
            size=alt.when("datum.role == 'leader'").then(alt.value(230)).otherwise(alt.value(80)),
            tooltip=[
                alt.Tooltip("device:N"),
                alt.Tooltip("cluster:N"),
                alt.Tooltip("role:N"),
                alt.Tooltip("region:N"),
                alt.Tooltip("samples:Q", format=","),
                alt.Tooltip("main:N", title="main labels (samples)"),
                alt.Tooltip("heard:N", title="SNR to base station"),
                alt.Tooltip("updates:Q", title="local updates"),
                alt.Tooltip("battery:N"),
            ],
        )
        .add_params(over)
    )
    numbers = (
        rows("devices")
        .transform_filter("datum.role == 'leader'")
        .mark_text(dx=11, dy=-9, fontSize=11)
        .encode(**axes, text="cluster:N")
    )
    tower = rows("station").encode(**axes)
    mark = tower.mark_point(shape="triangle-up", size=260, filled=True, opacity=1, style=INK)
    name = tower.mark_text(dy=18, align="left", dx=-10).encode(text="name:N")
    return alt.layer(lines, mark, name, devices, numbers)


def label_histograms() -> Any:
    """A row of bars per cluster; dashes are the shares in all devices' data."""
    place = alt.Scale(reverse=True, nice=False, zero=False, padding=6)
    blank = alt.Axis(labels=False, ticks=False, domain=False, grid=False, titlePadding=26)
    x = alt.X("label:O", title="label", axis=alt.Axis(labelAngle=0))
    tip = [
        alt.Tooltip("cluster:Q"),
        alt.Tooltip("label:O"),
        alt.Tooltip("samples:Q", format=","),
        alt.Tooltip("share:Q", title="share in this cluster", format=".1%"),
        alt.Tooltip("everyone:Q", title="share in all data", format=".1%"),
    ]
    base = rows("labels").encode(x=x)
    base = base.transform_calculate(
        top="datum.place - datum.scale * datum.share",
        mark="datum.place - datum.scale * datum.everyone",
    )
    bars = base.mark_bar(color=PALETTE[0], opacity=0.85).encode(
        y=alt.Y("top:Q", title="cluster", scale=place, axis=blank), y2="place:Q", tooltip=tip
    )
    marks = base.mark_tick(thickness=2, color=PALETTE[5], bandSize=16).encode(
        y=alt.Y("mark:Q", scale=place), tooltip=tip
    )
    first = rows("labels").transform_filter("datum.label == 0")
    lines = first.mark_rule(style=FAINT, opacity=0.5).encode(y=alt.Y("place:Q", scale=place))
    names = first.mark_text(align="right", baseline="bottom", fontSize=11).encode(
        x=alt.value(-6), y=alt.Y("place:Q", scale=place), text="cluster:Q"
    )
    return alt.layer(lines, bars, marks, names)


def snr_matrix() -> Any:
    """How well devices hear each other, clusters side by side."""
    own = ["order", "cluster"]
    order = alt.EncodingSortField(field="order", op="min")
    axis = alt.Axis(labelOverlap=True, labelAngle=0, labelFontSize=9, ticks=False, domain=False)
    devices = alt.NamedData(name="devices")
    return (
        rows("snr")
        .transform_lookup("a", from_=alt.LookupData(data=devices, key="device", fields=own))
        .transform_lookup(
            "b",
            from_=alt.LookupData(data=devices, key="device", fields=["cluster"]),
            **{"as": ["other"]},
        )
        .transform_lookup(
            "b",
            from_=alt.LookupData(data=devices, key="device", fields=["order"]),
            **{"as": ["second"]},
        )
        .mark_rect()
        .encode(
            x=alt.X(
                "b:N",
                title="device, by cluster",
                sort=alt.EncodingSortField(field="second", op="min"),
                axis=axis,
            ),
            y=alt.Y("a:N", title="device, by cluster", sort=order, axis=axis),
            color=alt.Color(
                "snr:Q",
                title="SNR (dB)",
                scale=alt.Scale(scheme="viridis"),
                legend=alt.Legend(gradientLength=160),
            ),
            tooltip=[
                alt.Tooltip("a:N", title="device"),
                alt.Tooltip("cluster:N", title="its cluster"),
                alt.Tooltip("b:N", title="other device"),
                alt.Tooltip("other:N", title="its cluster "),
                alt.Tooltip("snr:Q", title="SNR (dB)", format=".1f"),
            ],
        )
    )


def contributions() -> Any:
    """Contribution per cluster on a logarithmic scale, and the threshold."""
    gates = ["may update repeatedly", "updates once"]
    scale = alt.Scale(type="log", nice=False, padding=16)
    x = alt.X(
        "contribution:Q",
        title="contribution theta (samples, log scale)",
        scale=scale,
        axis=alt.Axis(format="~s", tickCount=5, labelOverlap="greedy"),
    )
    dots = (
        rows("units")
        .mark_point(filled=True, size=110, opacity=1)
        .encode(
            x=x,
            y=alt.Y("cluster:N", title="cluster", sort=None, axis=alt.Axis(grid=True)),
            color=alt.Color(
                "gate:N",
                title=None,
                scale=alt.Scale(domain=gates, range=[PALETTE[2], PALETTE[7]]),
            ),
            shape=alt.Shape(
                "gate:N", title=None, scale=alt.Scale(domain=gates, range=["diamond", "circle"])
            ),
            tooltip=[
                alt.Tooltip("cluster:N"),
                alt.Tooltip("contribution:Q", title="contribution theta", format=",.4~g"),
                alt.Tooltip("wasserstein:Q", title="distance W", format=".3f"),
                alt.Tooltip("samples:Q", format=","),
                alt.Tooltip("weight:Q", title="aggregation weight", format=".1%"),
                alt.Tooltip("updates:Q", title="local updates"),
            ],
        )
    )
    line = rows("threshold").encode(
        x=alt.X("threshold:Q", scale=scale),
        opacity=alt.when("datum.seen").then(alt.value(1)).otherwise(alt.value(0)),
    )
    rule = line.mark_rule(color=PALETTE[5], strokeWidth=2, strokeDash=[5, 3]).encode(
        tooltip=[alt.Tooltip("threshold:Q", format=",.4~g")]
    )
    name = line.mark_text(text="threshold", color=PALETTE[5], dy=-7, align="center").encode(
        y=alt.value(0)
    )
    return alt.layer(rule, name, dots)


def timeline() -> Any:
    """A bar per cluster: when it computes, sends and waits in a round."""
    return (
        rows("timeline")
        .mark_bar(height={"band": 0.7})
        .encode(
            x=alt.X(
                "start:Q",
                title="virtual seconds since the round began",
                axis=alt.Axis(tickCount=6, labelOverlap=True),
                scale=alt.Scale(nice=False),
            ),
            x2="end:Q",
            y=alt.Y("cluster:N", title="cluster", sort=None),
            color=alt.Color(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=list(PHASES), range=list(PHASES.values())),
            ),
            tooltip=[
                alt.Tooltip("cluster:N"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("seconds:Q", format=".3~g"),
                alt.Tooltip("updates:Q", title="local updates"),
            ],
        )
    )


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
    # The pointer finds the nearest evaluation, wherever it is in the chart.
    near = alt.selection_point(name="near", on="pointerover", nearest=True, empty=False)
    points = points.mark_point(size=70, filled=True).encode(
        y=y,
        opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(0)),
        tooltip=[
            alt.Tooltip("scheme:N"),
            alt.Tooltip("x:Q", title=AXES[axis].partition(",")[0], format=",.4~g"),
            alt.Tooltip("mean:Q", title="accuracy", format=".2%"),
            alt.Tooltip("interval:N", title="95 % interval"),
            alt.Tooltip("n:Q", title="seeds"),
        ],
    )
    return alt.layer(band, line.add_params(alone), points.add_params(near))


def energy() -> Any:
    """Joules per scheme, split into computing, sending and receiving."""
    phases = ["compute", "transmit", "receive"]
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


def frontier(cost: str) -> Any:
    """Accuracy of each scheme over joules or seconds."""
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
