"""Figures of a plan (map and timeline) and of an allocation (objective and split by budget)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np

from camu.allocation.answer import Allocation
from camu.allocation.exact import solve_exact
from camu.allocation.problem import Problem
from camu.allocation.sweep import SweepRow
from camu.errors import InputError
from camu.planning.batteries import Batteries
from camu.report.charts import device_map, learning_curve, timeline
from camu.report.device_rows import with_batteries
from camu.report.rows import LARGEST_BARS, plan_rows, ppo_rows
from camu.report.style import PHASES, quiet
from camu.schemes import Plan
from camu.simulation.ledger import DeviceEnergy, Ledger
from camu.world import World

_BUDGETS = 41
_SPLIT = "Best split between computing and sending"


def plan_figure(plan: Plan, world: World) -> Any:
    """Map and timeline side by side."""
    seconds, joules = plan.round_seconds, plan.round_joules
    title = alt.TitleParams(
        f"{plan.scheme}: {len(plan.units)} units, {world.devices.count} devices",
        subtitle=f"A round takes {seconds:.3g} s and {joules:.3g} J (seed {plan.seed})",
        offset=16,
    )
    bars = min(len(plan.units), LARGEST_BARS)
    more = f" ({bars} of {len(plan.units)})" if len(plan.units) > bars else ""
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
    document = plan.to_dict(world)
    data = plan_rows(document, world.base_stations.tolist(), world.links)
    full = DeviceEnergy.of(world.devices.ids, Ledger.new(world.devices.count), Batteries(world))
    data["devices"] = with_batteries(data["devices"], full, document)
    shown = {name: data[name] for name in ("devices", "links", "station", "timeline")}
    return quiet(both.properties(title=title, padding=16, datasets=shown))


def allocation_figure(problem: Problem, answer: Allocation) -> Any:
    """Objective and split against the budget; for PPO also its learning curve."""
    rows = sweep(problem)
    parts = [_objective(rows, problem, answer), _split(rows, problem)]
    data: dict[str, Any] = {}
    if curve := answer.details.get("learning_curve"):
        how = "How PPO gets to the certified optimum"
        parts.append(learning_curve().properties(width=320, height=260, title=how))
        learned = {"learning_curve": curve, "lower_bound": answer.lower_bound}
        data = {"ppo": ppo_rows(learned)}
    title = alt.TitleParams(
        f"Allocation of {problem.energy_joules:.3g} J among {problem.size} clusters",
        subtitle=f"{answer.solver}: objective {answer.objective:.4g}, "
        f"at most {answer.gap:.2%} above the certified optimum",
        offset=16,
    )
    both = alt.hconcat(*parts, spacing=40).resolve_scale(color="independent")
    return quiet(both.properties(title=title, padding=16, datasets=data))


def sweep_figure(rows: Sequence[SweepRow], problem: Problem) -> Any:
    """Objective and split at the budgets of a sweep that have an answer."""
    solved = [
        {
            "budget": row.budget_joules,
            "objective": row.objective,
            "transmit": row.transmit_joules,
            "compute": row.compute_joules,
        }
        for row in rows
        if row.objective is not None
    ]
    if not solved:
        raise InputError(
            "--sweep: no budget has an answer, so there is no figure; the smallest that has is "
            f"{problem.smallest_budget_joules:.4g} J"
        )
    title = alt.TitleParams(
        f"{len(solved)} energy budgets for {problem.size} clusters",
        subtitle=f"The smallest budget with an answer is {problem.smallest_budget_joules:.3g} J",
        offset=16,
    )
    line = _line(solved)
    points = line.mark_point(filled=True, size=60, color=PHASES["compute"], opacity=1)
    parts = (line + points).properties(width=320, height=260, title="What a joule buys")
    area = _area(solved).properties(width=320, height=260, title=_SPLIT)
    both = alt.hconcat(parts, area, spacing=40).resolve_scale(color="independent")
    return quiet(both.properties(title=title, padding=16))


def sweep(problem: Problem) -> list[dict[str, float]]:
    """The exact answer for budgets from just above the smallest to three times the given one."""
    lowest = 1.01 * problem.smallest_budget_joules
    highest = max(3 * problem.energy_joules, 2 * lowest)
    rows = []
    for budget in np.geomspace(lowest, highest, _BUDGETS):
        changed = replace(problem, energy_joules=float(budget))
        answer = solve_exact(changed, "round")
        transmit = float(problem.transmit_joules(answer.power_watts).sum())
        rows.append(
            {
                "budget": float(budget),
                "objective": answer.objective,
                "transmit": transmit,
                "compute": answer.energy_joules - transmit,
            }
        )
    return rows


def _line(rows: list[dict[str, Any]]) -> Any:
    return (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(color=PHASES["compute"], strokeWidth=2.5)
        .encode(
            x=alt.X("budget:Q", title="energy budget (J)"),
            y=alt.Y("objective:Q", title="objective", scale=alt.Scale(type="log")),
            tooltip=["budget:Q", "objective:Q"],
        )
    )


def _objective(rows: list[dict[str, float]], problem: Problem, answer: Allocation) -> Any:
    here = [{"budget": problem.energy_joules, "objective": answer.objective}]
    mark = (
        alt.Chart(alt.InlineData(values=here))
        .mark_point(filled=True, size=110, color="#D55E00", opacity=1)
        .encode(x="budget:Q", y="objective:Q")
    )
    return (_line(rows) + mark).properties(
        width=320, height=260, title="What a joule buys (dot: this allocation)"
    )


def _area(rows: list[dict[str, Any]]) -> Any:
    long = [
        {"budget": row["budget"], "phase": phase, "joules": row[phase]}
        for row in rows
        for phase in ("compute", "transmit")
    ]
    return (
        alt.Chart(alt.InlineData(values=long))
        .mark_area()
        .encode(
            x=alt.X("budget:Q", title="energy budget (J)"),
            y=alt.Y("joules:Q", title="joules spent", stack="zero"),
            color=alt.Color(
                "phase:N",
                title="spent on",
                scale=alt.Scale(
                    domain=["compute", "transmit"], range=[PHASES["compute"], PHASES["transmit"]]
                ),
            ),
            tooltip=["budget:Q", "phase:N", "joules:Q"],
        )
    )


def _split(rows: list[dict[str, float]], problem: Problem) -> Any:
    rule = (
        alt.Chart(alt.InlineData(values=[{"budget": problem.energy_joules}]))
        .mark_rule(strokeDash=[4, 3], color="#333")
        .encode(x="budget:Q")
    )
    return (_area(rows) + rule).properties(width=320, height=260, title=_SPLIT)
