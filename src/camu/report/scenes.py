"""What a report shows, as plain rows: a scene per world, with a table per chart and its plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.experiments.statistics import estimate
from camu.learning.chance import balanced_accuracy, is_lopsided
from camu.learning.metrics import Metric, finite
from camu.report import rows
from camu.report.rows import Rows, short
from camu.report.runs import Group, SavedRun
from camu.report.style import AXES, COSTS, TRAFFIC
from camu.simulation.history import measure, score_at
from camu.simulation.ledger import KINDS, DeviceEnergy

_POINTS = 60
_NAMED = 8  # dots of up to so many schemes all have their name


@dataclass(frozen=True)
class PlanView:
    """The plan of one scheme in one world, that of its first seed."""

    text: str
    tables: dict[str, Rows]  # by the name that charts ask for


EXPLODED = 10.0


@dataclass(frozen=True)
class Scene:
    """One world: all schemes that ran in it."""

    dataset: str
    setting: str
    groups: tuple[Group, ...]
    tables: dict[str, Rows]  # by chart
    plans: dict[str, PlanView]  # by label

    @property
    def metric(self) -> Metric:
        """What its models are judged by."""
        return self.groups[0].metric


def scenes_of(groups: Sequence[Group]) -> list[Scene]:
    """The scenes of these groups, in their order."""
    places: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        places.setdefault((group.dataset, group.setting), []).append(group)
    matrices: dict[str, Rows] = {}
    return [
        Scene(
            dataset=dataset,
            setting=setting,
            groups=tuple(own),
            tables={
                **{f"accuracy-{axis}": curve_rows(own, axis) for axis in AXES},
                "energy": energy_rows(own),
                "traffic": traffic_rows(own),
                "alive": alive_rows(own),
                **{f"frontier-{cost}": frontier_rows(own, cost) for cost in COSTS},
            },
            plans={group.label: _plan_view(group.counted[0], matrices) for group in own},
        )
        for (dataset, setting), own in places.items()
    ]


def curve_rows(groups: Sequence[Group], axis: str) -> Rows:
    """Mean score of each group with its 95 % band, at points along an axis.

    Scores are linear between evaluations. A curve ends where its shortest run ends, or a model
    blows up, so every point averages all seeds. An error that has grown to `EXPLODED` times that of
    the first point would leave no room for the others, so its curve ends there, too.
    """
    found: Rows = []
    for group in groups:
        if not _measured(group, axis):
            continue
        runs = group.counted
        places = [np.array([measure(record, axis) for record in run.records]) for run in runs]
        grid = _grid(places)
        known = np.array([score_at(run.records, axis, grid) for run in runs])
        lowest, highest = _limits(group.metric)
        falls = not (group.metric.share or group.metric.higher_is_better)
        most = EXPLODED * abs(known[:, 0].mean()) if falls else math.inf
        for x, values in zip(grid.tolist(), known.T, strict=True):
            if not np.isfinite(values).all() or values.mean() > most:
                break
            band = estimate(values)
            row = {"scheme": group.label, "x": short(x), "mean": short(band.mean), "n": len(runs)}
            row["low"] = None if band.low is None else short(max(band.low, lowest))
            row["high"] = None if band.high is None else short(min(band.high, highest))
            found.append(row)
    return found


def _grid(places: Sequence[Float64]) -> Float64:
    """The runs' own points where they agree and are few; else even steps to the shortest's end."""
    end = min(float(x[-1]) for x in places)
    first: Float64 = places[0][places[0] <= end]
    if len(first) <= 2 * _POINTS and all(np.array_equal(x[x <= end], first) for x in places):
        return first
    return np.linspace(0.0, end, _POINTS)


def _measured(group: Group, axis: str) -> bool:
    """Whether all runs of a group have such numbers; earlier versions counted no bits."""
    return axis != "megabytes" or all(run.last.bits is not None for run in group.counted)


def energy_rows(groups: Sequence[Group]) -> Rows:
    """Joules of a run, mean over seeds, by what they were spent on."""
    return _parts(groups, "joules", KINDS, lambda run: run.last.joules, 1.0)


def traffic_rows(groups: Sequence[Group]) -> Rows:
    """Megabytes of a run, mean over seeds, by the link; none of runs that counted no bits."""
    counted = [group for group in groups if _measured(group, "megabytes")]
    return _parts(counted, "megabytes", tuple(TRAFFIC), lambda run: run.last.bits or {}, 8e6)


def _parts(
    groups: Sequence[Group],
    name: str,
    kinds: Sequence[str],
    spent: Callable[[SavedRun], Mapping[str, float]],
    scale: float,
) -> Rows:
    """A row per scheme and kind, without kinds of which nothing was spent."""
    found: Rows = []
    for group in groups:
        means = {
            kind: float(np.mean([spent(run).get(kind, 0.0) for run in group.counted])) / scale
            for kind in kinds
        }
        total = sum(means.values()) or 1.0
        found += [
            {"scheme": group.label, "phase": kind, name: short(mean), "order": order}
            | {"share": short(mean / total), "n": len(group.counted)}
            for order, (kind, mean) in enumerate(means.items())
            if mean or kind in kinds[:2]
        ]
    return found


def alive_rows(groups: Sequence[Group]) -> Rows:
    """Devices that are not empty over rounds, mean over seeds; no rows if none ever is."""
    if not any(run.last.empty for group in groups for run in group.counted):
        return []
    found: Rows = []
    for group in groups:
        runs = group.counted
        rounds = [record.round for record in min((run.records for run in runs), key=len)]
        empty = np.zeros(len(rounds))
        for run in runs:
            known = [(record.round, record.empty) for record in run.records]
            empty += np.interp(rounds, *np.array(known, dtype=float).T) / len(runs)
        total = len(runs[0].plan["devices"])
        found += [
            {"scheme": group.label, "x": x, "alive": short(total - gone), "n": len(runs)}
            for x, gone in zip(rounds, empty.tolist(), strict=True)
        ]
    return found


def final_numbers(group: Group) -> dict[str, list[float]]:
    """What the runs of a group end with, one entry per run: rounds, scores, and costs.

    There are no scores where a model has blown up.
    """
    runs = group.counted
    scores = [finite(run.records[-1].score) for run in runs]
    return {
        "rounds": [run.last.round for run in runs],
        **({} if None in scores else {"score": [score for score in scores if score is not None]}),
        **_balanced(group),
        **{
            cost: [measure(run.last, cost) for run in runs]
            for cost in COSTS
            if _measured(group, cost)
        },
    }


def _balanced(group: Group) -> dict[str, list[float]]:
    """The balanced accuracy of each run, where runs are judged by accuracy and it says more."""
    if group.metric.name != "accuracy":
        return {}
    last = [run.records[-1] for run in group.counted]
    found = [(one.accuracy, balanced_accuracy(one.label_accuracy)) for one in last]
    known = [(one, mean) for one, mean in found if one is not None and mean is not None]
    if len(known) < len(found) or not any(is_lopsided(*pair) for pair in known):
        return {}
    return {"balanced": [mean for _, mean in known]}


def frontier_rows(groups: Sequence[Group], cost: str) -> Rows:
    """A row per scheme: means with 95 % intervals at the end of its runs, and who is on the line.

    `right` says that it is in the right half, where a name has room on its left.
    """
    if len(groups) < 2 or not all(_measured(group, cost) for group in groups):
        return []
    found: Rows = []
    for group in groups:
        values = final_numbers(group)
        if "score" not in values:
            continue
        about = {"scheme": group.label, "family": group.family, "n": len(values["score"])}
        costs = _interval("x", values[cost], 0.0, math.inf)
        found.append(about | costs | _interval("score", values["score"], *_limits(group.metric)))
    if not found:
        return []
    sign = groups[0].metric.sign
    middle = sum(end(row["x"] for row in found) for end in (min, max)) / 2
    best = unbeaten([(row["x"], sign * row["score"]) for row in found])
    few = len(found) <= _NAMED
    return [
        row | {"best": number in best, "named": few or number in best, "right": row["x"] > middle}
        for number, row in enumerate(found)
    ]


def _interval(name: str, values: Sequence[float], lowest: float, highest: float) -> dict[str, Any]:
    """The mean of these and the ends of its 95 % interval; None for the ends with one seed."""
    found = estimate(values)
    return {
        name: short(found.mean),
        f"{name}_low": None if found.low is None else short(max(found.low, lowest)),
        f"{name}_high": None if found.high is None else short(min(found.high, highest)),
    }


def _limits(metric: Metric) -> tuple[float, float]:
    """The lowest and the highest score that there can be."""
    lowest, highest = (0.0, 1.0) if metric.share else sorted((metric.limit, metric.worst))
    return lowest, highest


def unbeaten(points: Sequence[tuple[float, float]]) -> set[int]:
    """The points (cost, gain) without another that is as good in both and better in one."""
    return {
        number
        for number, (cost, gain) in enumerate(points)
        if not any(
            other_cost <= cost and other_gain >= gain and (other_cost, other_gain) != (cost, gain)
            for other_cost, other_gain in points
        )
    }


def _plan_view(run: SavedRun, matrices: dict[str, Rows]) -> PlanView:
    config, plan, links = run.config, run.plan, run.links
    key = f"{config.fleet!r} {config.radio!r} {run.seed}"
    if len(plan["devices"]) > rows.LARGEST_MAP:  # then the matrix depends on the plan
        key += plan["scheme"]
    if key not in matrices:
        matrices[key] = [] if links is None else rows.snr_rows(plan, links)
    known = None if links is None else links.stations
    stations = [config.fleet.base_station] if known is None else known.tolist()
    tables: dict[str, Rows] = {
        **rows.plan_rows(plan, stations, links, run.devices),
        "threshold": rows.threshold_rows(config, plan),
        "snr": matrices[key],
        "ppo": [] if run.ppo is None else rows.ppo_rows(run.ppo),
        "spending": rows.spending_rows(run.devices, plan),
    }
    first, last = run.records[0], run.last
    cost = None
    if (rounds := last.round - first.round) > 0:
        spent = last.total_joules - first.total_joules
        cost = (last.virtual_seconds - first.virtual_seconds) / rounds, spent / rounds
    text = plan_sentences(plan, run.seed, links is not None, run.devices, cost)
    return PlanView(text, tables)


def plan_sentences(
    plan: dict[str, Any],
    seed: int,
    linked: bool,
    spent: DeviceEnergy | None,
    cost: tuple[float, float] | None,
) -> str:
    """What a plan is in words, and which part of it the charts show.

    `cost` is the mean of the run's rounds in seconds and joules; None before the first one.
    """
    units, devices = plan["units"], plan["devices"]
    repeated = rows.repeating(plan)
    clusters = "1 cluster" if len(units) == 1 else f"{len(units)} clusters"
    taken = "A round of all clusters takes" if cost is None else "A round took"
    seconds, joules = cost or (plan["round_seconds"], plan["round_joules"])
    text = (
        f"{clusters} of {len(devices)} devices (seed {seed}). {taken} "
        f"{seconds:.3g} virtual seconds and {joules:.3g} J; "
        f"{repeated or 'no'} cluster{'' if repeated == 1 else 's'} with more than one local update."
    )
    if spent is not None and (empty := int((spent.empty_round >= 0).sum())):
        text += f" At the end of the run {empty} of {len(devices)} devices had been empty."
    if len(units) > rows.LARGEST_BARS:
        text += f" Charts per cluster show {rows.LARGEST_BARS} clusters at equal steps."
    if len(devices) > rows.LARGEST_MATRIX:
        text += f" The SNR matrix shows {rows.LARGEST_MATRIX} devices."
    if len(devices) > rows.LARGEST_MAP:
        text += f" The map shows the devices of every n-th cluster, about {rows.LARGEST_MAP}."
    if not linked:
        text += " SNR is left out: the links cannot be rebuilt from the run's configuration."
    return text
