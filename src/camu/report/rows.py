"""The rows behind the charts: devices, links, labels, timelines, accuracy with bands, energy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np

from camu.arrays import Float64, decibels
from camu.config import Config
from camu.errors import CamuError
from camu.experiments.statistics import CONFIDENCE, student_quantile
from camu.planning.groups import contribution, log_contribution, log_threshold
from camu.planning.plan import Plan
from camu.report.groups import Group
from camu.report.runs import SavedRun
from camu.report.style import PALETTE, PHASES
from camu.schemes import SCHEMES, describe
from camu.simulation.history import accuracy_at, measure
from camu.world import Links, build_world

LARGEST_BARS = 40
LARGEST_MAP = 3000
LARGEST_MATRIX = 60
_MAIN_LABELS = 3

Rows = list[dict[str, Any]]
PlanDict = dict[str, Any]


def links_of(config: Config, plan: PlanDict) -> Links | None:
    """The links of a run's world; None where they cannot be rebuilt.

    Positions and links follow from configuration and seed alone, so that no data set is read.
    """
    counts = np.array([device["label_counts"] for device in plan["devices"]])
    try:
        links = build_world(config, int(plan["seed"]), counts).links
    except (CamuError, ValueError):  # a fleet file that is gone, or another number of devices
        return None
    planned = np.array([device["position"] for device in plan["devices"]], dtype=float)
    if planned.shape != links.positions.shape:
        return None
    return links if np.allclose(planned, links.positions, equal_nan=True) else None


def plan_rows(
    plan: PlanDict, stations: Sequence[Sequence[float]], links: Links | None
) -> dict[str, Rows]:
    """All rows that a plan alone gives, by the name that charts ask for."""
    placed = all(None not in device["position"] for device in plan["devices"])
    devices = device_rows(plan, links)
    return {
        "devices": devices,
        "links": link_rows(plan, stations, links) if placed else [],
        "station": [_at(one) | {"name": "base station"} for one in stations] if placed else [],
        "labels": label_rows(plan),
        "units": unit_rows(plan),
        "timeline": timeline_rows(Plan.from_dict(plan, "plan.json")),
    }


def device_rows(plan: PlanDict, links: Links | None) -> Rows:
    """A row per device, clusters together."""
    numbers = _numbers(plan)
    snr = None if links is None else decibels(links.uplink_snr())
    rows: Rows = []
    for index in shown_units(plan):
        unit = plan["units"][index]
        for name in unit["members"]:
            if len(rows) == LARGEST_MAP:
                return rows
            device = plan["devices"][numbers[name]]
            rows.append(
                {
                    **_at(device["position"]),
                    "device": str(name),
                    "cluster": str(index),
                    "colour": PALETTE[index % len(PALETTE)],
                    "role": "leader" if name == unit["leader"] else "member",
                    "region": device["region"],
                    "samples": device["samples"],
                    "main": main_labels(device["label_counts"]),
                    "snr": None if snr is None else round(float(snr[numbers[name]]), 1),
                    "updates": unit["local_updates"],
                    "order": len(rows),
                }
            )
    return rows


def shown_units(plan: PlanDict) -> range:
    """The units on the map: all, or every n-th, so that about LARGEST_MAP devices are drawn."""
    return range(0, len(plan["units"]), -(-len(plan["devices"]) // LARGEST_MAP))


def shown_bars(units: int) -> list[int]:
    """The units with a bar of their own: all, or LARGEST_BARS at equal steps."""
    if units <= LARGEST_BARS:
        return list(range(units))
    return [round(place) for place in np.linspace(0, units - 1, LARGEST_BARS).tolist()]


def main_labels(counts: Sequence[int]) -> str:
    """The most frequent labels with their numbers of samples."""
    ranked = sorted(range(len(counts)), key=lambda label: -counts[label])
    held = [label for label in ranked if counts[label]]
    shown = ", ".join(f"{label} ({counts[label]})" for label in held[:_MAIN_LABELS])
    more = len(held) - _MAIN_LABELS
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def link_rows(plan: PlanDict, stations: Sequence[Sequence[float]], links: Links | None) -> Rows:
    """Member to leader and leader to its base station, as far as a picture can show them."""
    numbers, rows = _numbers(plan), []
    serving = None if links is None else links.serving
    for index in shown_units(plan):
        unit = plan["units"][index]
        head = plan["devices"][numbers[unit["leader"]]]["position"]
        for name in unit["members"]:
            leads = name == unit["leader"]
            station = 0 if serving is None else int(serving[numbers[name]])
            there = _at(stations[station] if leads else head)
            rows.append(
                {
                    **_at(plan["devices"][numbers[name]]["position"]),
                    "x2": there["x"],
                    "y2": there["y"],
                    "cluster": str(index),
                    "colour": PALETTE[index % len(PALETTE)],
                    "link": "leader to base station" if leads else "member to leader",
                }
            )
    return rows[:LARGEST_MAP]


def label_rows(plan: PlanDict) -> Rows:
    """The share of each label in each cluster, and its share in all devices' data."""
    numbers = _numbers(plan)
    counts = np.array([device["label_counts"] for device in plan["devices"]], dtype=float)
    everyone = counts.sum(axis=0) / max(1.0, counts.sum())
    rows = []
    for place, index in enumerate(shown_bars(len(plan["units"]))):
        unit = plan["units"][index]
        own = counts[[numbers[name] for name in unit["members"]]].sum(axis=0)
        share = own / max(1.0, own.sum())
        rows += [
            {
                "cluster": index,
                "place": place,
                "label": label,
                "samples": int(own[label]),
                "share": short(share[label]),
                "everyone": short(everyone[label]),
            }
            for label in range(counts.shape[1])
        ]
    tallest = max((max(row["share"], row["everyone"]) for row in rows), default=1.0) or 1.0
    # A bar starts at its cluster's line; the largest share of all fills most of a row.
    return [row | {"scale": short(0.85 / tallest)} for row in rows]


def unit_rows(plan: PlanDict) -> Rows:
    """Contribution and updates of each cluster."""
    return [
        {
            "cluster": str(index),
            "contribution": short(unit["contribution"]),
            "wasserstein": short(unit["wasserstein"]),
            "samples": unit["samples"],
            "updates": unit["local_updates"],
            "weight": short(unit["weight"]),
            "gate": "may update repeatedly" if unit["multi_update"] else "updates once",
        }
        for index in shown_bars(len(plan["units"]))
        for unit in [plan["units"][index]]
    ]


def timeline_rows(plan: Plan) -> Rows:
    """When each cluster computes, sends and waits in a round as planned.

    Members send to their leader after every update; that is drawn in one piece after computing.
    """
    last = plan.round_seconds
    rows: Rows = []
    for index in shown_bars(len(plan.units)):
        unit = plan.units[index]
        end = float(plan.arrival_seconds[index])
        start = end - unit.uplink_seconds
        down = unit.downlink_seconds
        computed = down + unit.compute_seconds + unit.slow_seconds
        ready = unit.ready_seconds + unit.slow_seconds
        times = (0.0, down, computed, ready, start, end, last)
        phases = ("receive", "compute", "transmit", "wait", "transmit", "wait")
        for phase, (begin, finish) in zip(phases, pairwise(times), strict=True):
            if finish - begin > 1e-9 * last:
                rows.append(
                    {
                        "cluster": str(index),
                        "phase": phase,
                        "start": short(begin),
                        "end": short(finish),
                        "seconds": short(finish - begin),
                        "updates": unit.local_updates,
                        "order": list(PHASES).index(phase),
                    }
                )
    return rows


def snr_rows(plan: PlanDict, links: Links) -> Rows:
    """The SNR matrix in dB; its diagonal is the link to the base station."""
    shown = np.arange(min(links.count, LARGEST_MATRIX))
    if links.count > LARGEST_MAP:  # only devices on the map: the chart gets their clusters there
        numbers, drawn = _numbers(plan), [plan["units"][index] for index in shown_units(plan)]
        names_drawn = chain.from_iterable(unit["members"] for unit in drawn)
        shown = np.array([numbers[name] for name in islice(names_drawn, LARGEST_MATRIX)])
    count = len(shown)
    matrix = links.device_snr_db(shown, shown)
    np.fill_diagonal(matrix, decibels(links.uplink_snr())[shown])
    names = [str(plan["devices"][k]["id"]) for k in shown.tolist()]
    return [
        {"a": names[i], "b": names[j], "snr": round(float(matrix[i, j]), 1)}
        for i in range(count)
        for j in range(count)
    ]


def threshold_of(config: Config, plan: PlanDict) -> float | None:
    """The contribution from which a cluster may update repeatedly, where the scheme has one."""
    name, scheme = config.scheme.name, config.scheme
    if name not in SCHEMES or "threshold" not in describe(name, SCHEMES[name])["parameters"]:
        return None
    units = plan["units"]
    logs = log_contribution(
        [unit["samples"] for unit in units],
        np.array([unit["wasserstein"] for unit in units]),
        config.contribution.w_min,
    )
    limit = log_threshold(logs, scheme.threshold, scheme.threshold_quantile)
    return float(contribution(np.asarray(limit))) if math.isfinite(limit) else None


def threshold_rows(config: Config, plan: PlanDict) -> Rows:
    """The threshold; where there is none, a mark at a contribution, not to be seen.

    A scale over no rows at all would have no extent.
    """
    found = threshold_of(config, plan)
    value = plan["units"][0]["contribution"] if found is None else found
    return [{"threshold": short(value), "seen": found is not None}]


def ppo_rows(document: dict[str, Any]) -> Rows:
    """PPO's best objective so far, in % above the certified lower bound."""
    bound = document["lower_bound"]
    return [
        {"steps": int(steps), "excess": short(100 * (best / bound - 1))}
        for steps, best, *_ in document["learning_curve"]
        if best is not None and math.isfinite(best)
    ]


def _numbers(plan: PlanDict) -> dict[Any, int]:
    return {device["id"]: index for index, device in enumerate(plan["devices"])}


def _at(position: Sequence[float | None]) -> dict[str, float | None]:
    x, y = (None if value is None else round(float(value), 3) for value in position[:2])
    return {"x": x, "y": y}


def short(value: float) -> float:
    """Five digits are more than a chart can show."""
    return float(f"{value:.5g}")


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
    times = student_quantile((1 + CONFIDENCE) / 2, count - 1)
    half = times * values.std(axis=0, ddof=1) / np.sqrt(count)
    return mean, np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)


def energy_rows(groups: Sequence[Group]) -> Rows:
    """Joules of a run, mean over seeds, by what they were spent on."""
    rows: Rows = []
    for group in groups:
        runs = group.counted
        parts = {phase: _mean_joules(runs, phase) for phase in ("compute", "transmit", "receive")}
        if not parts["receive"]:
            del parts["receive"]
        total = sum(parts.values()) or 1.0
        rows += [
            {"scheme": group.label, "phase": phase, "joules": short(joules), "order": order}
            | {"share": short(joules / total), "n": len(runs)}
            for order, (phase, joules) in enumerate(parts.items())
        ]
    return rows


def _mean_joules(runs: Sequence[SavedRun], phase: str) -> float:
    return float(np.mean([run.last.joules.get(phase, 0.0) for run in runs]))


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
