"""Figures of a plan (map and timeline) and of allocations (what their budgets buy)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from camu.allocation.answer import Allocation, P2Answer
from camu.allocation.p1 import Problem
from camu.allocation.p2 import P2Problem
from camu.allocation.sweep import SweepRow, sweep_energy, trade_off
from camu.errors import InputError
from camu.planning.plan import Plan
from camu.report.charts import Spec, chart, quiet
from camu.report.rows import LARGEST_BARS, full_batteries, plan_rows, ppo_rows
from camu.report.style import JOULES, RATIO, SECONDS, TRADE_OFF
from camu.simulation.dry_run import RoundCost
from camu.world import World

_BUDGETS = 41
_FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)
_SPLIT = "Best split between computing and sending"
_LEARNING = "How PPO gets to the certified optimum"


def plan_figure(plan: Plan, world: World, cost: RoundCost) -> Spec:
    """Map and timeline side by side, with the cost of a round."""
    bars = min(len(plan.units), LARGEST_BARS)
    more = f" ({bars} of {len(plan.units)})" if len(plan.units) > bars else ""
    title = "What each cluster does in a round" + more
    parts = [chart("timeline", width=340, height=max(120, min(380, 24 * bars)), title=title)]
    if np.isfinite(world.devices.positions).all():
        where = "Who is where, and who talks to whom"
        parts.insert(0, chart("map", width=520, height=380, title=where))
    stations, full = world.base_stations.tolist(), full_batteries(world)
    data = plan_rows(plan.to_dict(world), stations, world.links, full)
    return _together(
        parts,
        {name: data[name] for name in ("devices", "links", "hulls", "station", "timeline")},
        f"{plan.scheme}: {len(plan.units)} units, {world.devices.count} devices",
        f"A round takes {cost.seconds:.3g} s, {cost.joules:.3g} J and {cost.megabytes:.3g} MB "
        f"(seed {plan.seed})",
    )


def allocation_figure(problem: Problem, answer: Allocation) -> Spec:
    """Objective and split against the budget; for PPO also its learning curve."""
    here = {"budget": problem.energy_joules, "objective": answer.objective}
    lowest = 1.01 * problem.smallest_budget_joules
    highest = max(3 * problem.energy_joules, 2 * lowest)
    budgets = np.geomspace(lowest, highest, _BUDGETS).tolist()
    parts = _budget_parts("What a joule buys (dot: this allocation)")
    data = {**_budget_rows(sweep_energy(problem, budgets)), "dots": [here], "here": [here]}
    if curve := answer.details.get("learning_curve"):
        parts.append(chart("ppo", title=_LEARNING, width=320, height=260))
        data["ppo"] = ppo_rows({"learning_curve": curve, "lower_bound": answer.lower_bound})
    return _together(
        parts,
        data,
        f"Allocation of {problem.energy_joules:.3g} J among {problem.size} clusters",
        f"{answer.solver}: objective {answer.objective:.4g}, "
        f"at most {answer.gap:.2%} above the certified optimum",
    )


def sweep_figure(rows: Sequence[SweepRow], problem: Problem) -> Spec:
    """Objective and split at the budgets of a sweep that have an answer."""
    data = _budget_rows(rows)
    if not data["budgets"]:
        raise InputError(
            "--sweep: no budget has an answer, so there is no figure; the smallest that has is "
            f"{problem.smallest_budget_joules:.4g} J"
        )
    return _together(
        _budget_parts("What a joule buys"),
        {**data, "dots": data["budgets"], "here": []},
        f"{len(data['budgets'])} energy budgets for {problem.size} clusters",
        f"The smallest budget with an answer is {problem.smallest_budget_joules:.3g} J",
    )


def p2_figure(problem: P2Problem, answer: P2Answer) -> Spec:
    """A map of both budgets for the gap and for each decision."""
    cells = [
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
    order = {
        JOULES: [f"{factor * problem.energy_joules:.3g}" for factor in _FACTORS[::-1]],
        SECONDS: [f"{factor * problem.seconds:.3g}" for factor in _FACTORS],
    }
    parts = [
        chart(f"trade-off-{name}", order, width=220, height=220, title=title)
        for name, title in TRADE_OFF.items()
    ]
    here = {"seconds": f"{problem.seconds:.3g}", "joules": f"{problem.energy_joules:.3g}"}
    return _together(
        parts,
        {"cells": cells, "here": [here]},
        f"{problem.energy_joules:.3g} J and {problem.seconds:.3g} s for {problem.size} clusters",
        f"{answer.solver}: {answer.rounds} rounds, gap {answer.objective:.4g}, "
        f"at most {answer.gap:.2%} above the certified optimum",
    )


def _budget_parts(title: str) -> list[Spec]:
    size = {"width": 320, "height": 260}
    return [
        chart("budget-objective", title=title, **size),
        chart("budget-split", title=_SPLIT, **size),
    ]


def _budget_rows(rows: Sequence[SweepRow]) -> dict[str, Any]:
    """Objective and split at every budget that has an answer."""
    solved = [row for row in rows if row.objective is not None]
    return {
        "budgets": [{"budget": row.budget_joules, "objective": row.objective} for row in solved],
        "split": [
            {"budget": row.budget_joules, "phase": phase, "joules": joules}
            for row in solved
            for phase, joules in (
                ("compute", row.compute_joules),
                ("transmit", row.transmit_joules),
            )
        ],
    }


def _together(parts: list[Spec], data: dict[str, Any], title: str, subtitle: str) -> Spec:
    """Charts side by side, at most three in a row, each with its own colours and shapes."""
    own = {"color": "independent", "shape": "independent", "strokeDash": "independent"}
    whole = {
        "$schema": parts[0]["$schema"],
        "title": {"text": title, "subtitle": subtitle, "offset": 16},
        "concat": [
            {key: value for key, value in part.items() if key not in ("$schema", "params")}
            for part in parts
        ],
        "columns": 3,
        "spacing": 40,
        "resolve": {"scale": own},
        "params": [_own_size(param, part) for part in parts for param in part.get("params", ())],
    }
    return quiet(whole, data, padding=16)


def _own_size(param: Spec, part: Spec) -> Spec:
    """Beside other charts, the width and height that a parameter names are those of the whole."""
    if param["name"] != RATIO:
        return param
    return {"name": RATIO, "value": part["width"] / part["height"]}


def air_figure(answers: Sequence[Mapping[str, Any]], about: str) -> Spec:
    """A map for each budget (down) and bandwidth (across): how far over the air is ahead."""
    budgets = list(dict.fromkeys(row["budget"] for row in answers))
    bands = sorted({row["bandwidth_hz"] for row in answers})
    lines, labels = [], _snr_labels(answers)
    for budget in budgets:
        key = "air-axis" if budget == budgets[-1] else "air"
        parts = []
        for hertz in bands:
            own = [r for r in answers if r["budget"] == budget and r["bandwidth_hz"] == hertz]
            title = f"at equal {budget}, {hertz / 1e6:g} MHz"
            part = chart(key, width=260, height=110, title=title)
            parts.append(part | {"data": {"values": [_air_cell(row, labels) for row in own]}})
        lines.append({"hconcat": parts})
    head = {"text": "Over the air against digital uplinks", "subtitle": about}
    return quiet({"vconcat": [_without_data(line) for line in lines], "title": head})


def _without_data(line: Spec) -> Spec:
    """The layers of these charts take the data of their chart."""
    for part in line["hconcat"]:
        part["layer"] = [{k: v for k, v in one.items() if k != "data"} for one in part["layer"]]
    return line


def _snr_labels(answers: Sequence[Mapping[str, Any]]) -> dict[float, int]:
    """One number for SNRs that differ only because fleets do: the mean over numbers of devices."""
    fleets = {row["devices"] for row in answers}
    levels = [sorted({r["snr_db"] for r in answers if r["devices"] == n}) for n in fleets]
    return {
        snr: round(float(np.mean(alike))) for alike in zip(*levels, strict=True) for snr in alike
    }


def _air_cell(row: Mapping[str, Any], labels: Mapping[float, int]) -> dict[str, Any]:
    """A square of the map; a star where the interval excludes 0, = where both are level."""
    mark = {"over the air": "*", "digital": "*", "level": "="}.get(row["answer"], "")
    interval = "" if row["low"] is None else f"{row['low']:+.1f} to {row['high']:+.1f}"
    return {
        "snr": labels[row["snr_db"]],
        "devices": row["devices"],
        "points": row["points"],
        "label": f"{row['points']:+.1f}{mark}",
        "interval": interval,
        **{key: row[key] for key in ("answer", "scheme", "rival")},
    }
