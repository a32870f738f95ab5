"""The rows behind the charts of runs: accuracy with bands against what it costs, and energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from camu.arrays import Float64
from camu.experiments.statistics import CONFIDENCE
from camu.report.groups import Group
from camu.report.plan_data import Rows, short
from camu.report.runs import SavedRun
from camu.simulation.history import accuracy_at, measure

_POINTS = 60


def curve_rows(groups: Sequence[Group], axis: str) -> Rows:
    """Mean accuracy of each group with its 95 % band, at points along rounds, joules or seconds.

    Accuracy is linear between evaluations. A curve ends where its shortest run ends, so every
    point averages all seeds.
    """
    rows: Rows = []
    for group in groups:
        runs = group.counted
        places = [np.array([measure(record, axis) for record in run.records]) for run in runs]
        grid = _grid(places)
        known = np.array([accuracy_at(run.records, axis, grid) for run in runs])
        for x, mean, low, high in zip(grid, *band(known), strict=True):
            rows.append(
                {"scheme": group.label, "x": short(x), "mean": short(mean), "n": len(runs)}
                | {"low": _or_none(low), "high": _or_none(high)}
            )
    return rows


def band(values: Float64) -> tuple[Float64, Float64, Float64]:
    """Mean and 95 % interval (Student's t) of each column; the interval of one row is nan."""
    mean, count = values.mean(axis=0), len(values)
    if count < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    times = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    half = times * values.std(axis=0, ddof=1) / np.sqrt(count)
    return mean, np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)


def energy_rows(groups: Sequence[Group]) -> Rows:
    """Joules of a run, mean over seeds, by what they were spent on."""
    rows: Rows = []
    for group in groups:
        runs = group.counted
        parts = {phase: _mean_joules(runs, phase) for phase in ("compute", "transmit")}
        total = sum(parts.values()) or 1.0
        rows += [
            {"scheme": group.label, "phase": phase, "joules": short(joules), "order": order}
            | {"share": short(joules / total), "n": len(runs)}
            for order, (phase, joules) in enumerate(parts.items())
        ]
    return rows


def _mean_joules(runs: Sequence[SavedRun], phase: str) -> float:
    return float(np.mean([run.last.joules[phase] for run in runs]))


def _grid(places: Sequence[Float64]) -> Float64:
    """The runs' own points where they agree and are few; else even steps to the shortest's end."""
    end = min(float(x[-1]) for x in places)
    first: Float64 = places[0][places[0] <= end]
    if len(first) <= 2 * _POINTS and all(np.array_equal(x[x <= end], first) for x in places):
        return first
    return np.linspace(0.0, end, _POINTS)


def _or_none(value: float) -> float | None:
    return short(value) if np.isfinite(value) else None


def table_row(group: Group) -> dict[str, Any]:
    """The numbers that the table of runs shows about a group, one list entry per run."""
    runs = group.counted
    return {
        "rounds": [run.last.round for run in runs],
        "accuracy": [run.records[-1].accuracy for run in runs],
        "joules": [run.last.total_joules for run in runs],
        "seconds": [run.last.virtual_seconds for run in runs],
    }
