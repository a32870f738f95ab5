"""Charts of a plan, without data: who talks to whom, who holds what, who contributes, who waits.

A chart names its rows (see plan_data); the same chart then shows any plan, on a page or in a file.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from camu.report.style import FAINT, INK, PALETTE, PHASES


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
        top="datum.cluster - datum.scale * datum.share",
        mark="datum.cluster - datum.scale * datum.everyone",
    )
    bars = base.mark_bar(color=PALETTE[0], opacity=0.85).encode(
        y=alt.Y("top:Q", title="cluster", scale=place, axis=blank), y2="cluster:Q", tooltip=tip
    )
    marks = base.mark_tick(thickness=2, color=PALETTE[5], bandSize=16).encode(
        y=alt.Y("mark:Q", scale=place), tooltip=tip
    )
    first = rows("labels").transform_filter("datum.label == 0")
    lines = first.mark_rule(style=FAINT, opacity=0.5).encode(y=alt.Y("cluster:Q", scale=place))
    names = first.mark_text(align="right", baseline="bottom", fontSize=11).encode(
        x=alt.value(-6), y=alt.Y("cluster:Q", scale=place), text="cluster:Q"
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
