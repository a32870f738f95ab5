"""The picture of a plan: a map of devices, clusters, leaders and links, and a round per cluster."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from camu.report.style import PALETTE, PHASES, quiet
from camu.schemes import Plan
from camu.world import World

_LARGEST_BARS = 40
_LARGEST_LINKS = 3000
# Below this many clusters each has its own place in the legend of the map.
_LARGEST_LEGEND = 24


def plan_figure(plan: Plan, world: World) -> Any:
    """Map and timeline side by side."""
    seconds, joules = plan.round_seconds, plan.round_joules
    title = alt.TitleParams(
        f"{plan.scheme}: {len(plan.units)} units, {world.devices.count} devices",
        subtitle=f"A round takes {seconds:.3g} s and {joules:.3g} J (seed {plan.seed})",
        offset=16,
    )
    parts = [timeline(plan)]
    if np.isfinite(world.devices.positions).all():
        parts.insert(0, plan_map(plan, world))
    both = alt.hconcat(*parts, spacing=40).resolve_scale(color="independent")
    return quiet(both.properties(title=title, padding=16))


def plan_map(plan: Plan, world: World) -> Any:
    """Where devices are, which cluster each belongs to, and who talks to whom."""
    where, station = world.devices.positions, world.base_station
    colour = alt.Color(
        "cluster:N",
        title="cluster",
        scale=alt.Scale(range=PALETTE),
        sort=[str(c) for c in range(len(plan.units))],
        legend=alt.Legend(columns=2) if len(plan.units) <= _LARGEST_LEGEND else None,
    )
    axes: dict[str, Any] = {
        "x": alt.X("x:Q", title="x (m)", scale=alt.Scale(zero=False, padding=30)),
        "y": alt.Y("y:Q", title="y (m)", scale=alt.Scale(zero=False, padding=20)),
    }
    points = _records(plan, where)
    links = _links(plan, where, station)
    lines = (
        alt.Chart(alt.InlineData(values=links))
        .mark_rule(opacity=0.55)
        .encode(
            **axes,
            x2="x2:Q",
            y2="y2:Q",
            color=colour,
            strokeDash=alt.StrokeDash(
                "link:N",
                title="link",
                scale=alt.Scale(domain=["member", "uplink"], range=[[1, 0], [4, 3]]),
            ),
        )
    )
    devices = (
        alt.Chart(alt.InlineData(values=points))
        .mark_point(filled=True, opacity=1, stroke="white", strokeWidth=0.8)
        .encode(
            **axes,
            color=colour,
            shape=alt.Shape(
                "role:N",
                title="role",
                scale=alt.Scale(domain=["member", "leader"], range=["circle", "diamond"]),
            ),
            size=alt.Size(
                "role:N", scale=alt.Scale(domain=["member", "leader"], range=[70, 220]), legend=None
            ),
            tooltip=["device:N", "cluster:N", "role:N", "samples:Q"],
        )
    )
    heads = [point for point in points if point["role"] == "leader"]
    numbers = (
        alt.Chart(alt.InlineData(values=heads))
        .mark_text(dx=11, dy=-9, fontSize=11, color="#333")
        .encode(**axes, text="cluster:N")
    )
    tower = [{"x": float(station[0]), "y": float(station[1]), "name": "base station"}]
    base = alt.Chart(alt.InlineData(values=tower)).encode(**axes)
    mark = base.mark_point(shape="triangle-up", size=260, filled=True, color="#333", opacity=1)
    name = base.mark_text(dy=18, color="#333").encode(text="name:N")
    return (
        alt.layer(lines, devices, numbers, mark, name)
        .properties(width=520, height=380, title="Who is where, and who talks to whom")
        .resolve_scale(size="independent")
    )


def timeline(plan: Plan) -> Any:
    """A bar per cluster: how long it computes, sends and waits in a round."""
    shown = range(min(len(plan.units), _LARGEST_BARS))
    rows = []
    for index in shown:
        unit = plan.units[index]
        spans = (unit.compute_seconds, unit.transmit_seconds, plan.idle_seconds(index))
        for order, (phase, length) in enumerate(zip(PHASES, spans, strict=True)):
            rows.append(
                {"cluster": str(index), "phase": phase, "seconds": length, "order": order}
                | {"updates": unit.local_updates}
            )
    more = len(plan.units) - len(shown)
    return (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("seconds:Q", title="seconds of a round", stack="zero"),
            y=alt.Y("cluster:N", title="cluster", sort=[str(c) for c in shown]),
            color=alt.Color(
                "phase:N",
                title="phase",
                scale=alt.Scale(domain=list(PHASES), range=list(PHASES.values())),
            ),
            order=alt.Order("order:Q"),
            tooltip=["cluster:N", "phase:N", "seconds:Q", "updates:Q"],
        )
        .properties(
            width=340,
            height=max(120, min(380, 24 * len(shown))),
            title="What each cluster does in a round" + (f" (first {len(shown)})" if more else ""),
        )
    )


def _records(plan: Plan, where: Any) -> list[dict[str, Any]]:
    return [
        {
            "device": device,
            "x": float(where[device, 0]),
            "y": float(where[device, 1]),
            "cluster": str(index),
            "role": "leader" if device == unit.leader else "member",
            "samples": unit.samples,
        }
        for index, unit in enumerate(plan.units)
        for device in unit.members
    ]


def _links(plan: Plan, where: Any, station: Any) -> list[dict[str, Any]]:
    """Member to leader and leader to base station, as far as a picture can show them."""
    links = []
    for index, unit in enumerate(plan.units):
        head = where[unit.leader]
        for device in unit.members:
            to, kind = (station, "uplink") if device == unit.leader else (head, "member")
            links.append(
                {
                    "x": float(where[device, 0]),
                    "y": float(where[device, 1]),
                    "x2": float(to[0]),
                    "y2": float(to[1]),
                    "cluster": str(index),
                    "link": kind,
                }
            )
    return links[:_LARGEST_LINKS]
