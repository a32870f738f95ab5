"""The figure of an answer to P2: the trade-off of joules and seconds, and what moves along it."""

from __future__ import annotations

from typing import Any

import altair as alt

from camu.allocation.horizon import HorizonProblem
from camu.allocation.horizon_answer import HorizonAnswer
from camu.allocation.horizon_sweep import trade_off
from camu.report.charts import learning_curve
from camu.report.rows import ppo_rows
from camu.report.style import quiet

_FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)
_PANELS = (
    ("objective", "Gap at the end (lower is better)"),
    ("rounds", "Rounds"),
    ("updates", "Updates per round, mean"),
    ("power", "Power of a leader, mean (W)"),
    ("gigahertz", "CPU frequency, mean (GHz)"),
)


def horizon_figure(problem: HorizonProblem, answer: HorizonAnswer) -> Any:
    """A map of both budgets for the gap and for each decision; for PPO its learning curve."""
    rows = [
        {
            "joules": f"{cell.energy_joules:.3g}",
            "seconds": f"{cell.seconds:.3g}",
            "objective": cell.objective,
            "rounds": cell.rounds,
            "updates": cell.updates,
            "power": cell.power_watts,
            "gigahertz": cell.cpu_hz / 1e9,
        }
        for cell in trade_off(problem, _FACTORS)
    ]
    parts = [_map(name, title, problem) for name, title in _PANELS]
    data: dict[str, Any] = {"cells": rows}
    if curve := answer.details.get("learning_curve"):
        how = "How PPO gets to the certified optimum"
        parts.append(learning_curve().properties(width=220, height=220, title=how))
        data["ppo"] = ppo_rows({"learning_curve": curve, "lower_bound": answer.lower_bound})
    title = alt.TitleParams(
        f"{problem.energy_joules:.3g} J and {problem.seconds:.3g} s for {problem.size} clusters",
        subtitle=f"{answer.solver}: {answer.rounds} rounds, gap {answer.objective:.4g}, "
        f"at most {answer.gap:.2%} above the certified optimum",
        offset=16,
    )
    chart = alt.concat(*parts, columns=3, spacing=40).resolve_scale(color="independent")
    return quiet(chart.properties(title=title, padding=16, datasets=data))


def _map(name: str, title: str, problem: HorizonProblem) -> Any:
    joules = [f"{factor * problem.energy_joules:.3g}" for factor in _FACTORS]
    seconds = [f"{factor * problem.seconds:.3g}" for factor in _FACTORS]
    base = alt.Chart(alt.NamedData("cells")).encode(
        x=alt.X("seconds:O", title="seconds of the run", sort=seconds),
        y=alt.Y("joules:O", title="joules of the run", sort=joules[::-1]),
    )
    colour = alt.Color(f"{name}:Q", title=None, scale=alt.Scale(scheme="viridis"))
    cells = base.mark_rect().encode(color=colour, tooltip=["joules:O", "seconds:O", f"{name}:Q"])
    here = [{"seconds": f"{problem.seconds:.3g}", "joules": f"{problem.energy_joules:.3g}"}]
    mark = (
        alt.Chart(alt.InlineData(values=here))
        .mark_point(color="#D55E00", size=90, strokeWidth=3)
        .encode(x=alt.X("seconds:O", sort=seconds), y=alt.Y("joules:O", sort=joules[::-1]))
    )
    return (cells + mark).properties(width=220, height=220, title=title)
