"""The picture of a plan: a map of devices, clusters, leaders and links, and a round per cluster."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from camu.report.plan_charts import device_map, timeline
from camu.report.plan_data import LARGEST_BARS, plan_rows
from camu.report.style import quiet
from camu.schemes import Plan
from camu.world import World


def plan_figure(plan: Plan, world: World) -> Any:
    """Map and timeline side by side."""
    seconds, joules = plan.round_seconds, plan.round_joules
    title = alt.TitleParams(
        f"{plan.scheme}: {len(plan.units)} units, {world.devices.count} devices",
        subtitle=f"A round takes {seconds:.3g} s and {joules:.3g} J (seed {plan.seed})",
        offset=16,
    )
    bars = min(len(plan.units), LARGEST_BARS)
    more = f" (first {bars})" if len(plan.units) > bars else ""
    parts = [
        timeline().properties(
            width=340,
            height=max(120, min(380, 24 * bars)),
            title="What each cluster does in a round" + more,
        )
    ]
    if np.isfinite(world.devices.positions).all():
        where = "Who is where, and who talks to whom"
        parts.insert(0, device_map().properties(width=520, height=380, title=where))
    both = alt.hconcat(*parts, spacing=40).resolve_scale(
        color="independent", shape="independent", strokeDash="independent"
    )
    data = plan_rows(plan.to_dict(world), world.base_station.tolist(), world.links)
    shown = {name: data[name] for name in ("devices", "links", "station", "timeline")}
    return quiet(both.properties(title=title, padding=16, datasets=shown))
