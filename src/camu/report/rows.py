"""The rows behind the charts of a plan: devices, links, labels, timeline, batteries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np

from camu.arrays import decibels
from camu.config import Config
from camu.errors import CamuError
from camu.planning.batteries import Batteries
from camu.planning.contribution import contribution, log_contribution, log_threshold
from camu.planning.plan import Plan
from camu.report.style import PALETTE, PHASES
from camu.schemes import ALIASES, SCHEMES, make_scheme
from camu.simulation.ledger import KINDS, DeviceEnergy, Ledger
from camu.world import Links, World, build_world
from camu.world.link_types import SHANNON

LARGEST_BARS = 40
LARGEST_MAP = 3000
LARGEST_MATRIX = 60
CROWD = 100  # devices from which on a map shows clusters as areas, and no number at each leader
_MAIN_LABELS = 3
_EMPTY_COLOUR = "#9AA3AF"

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
    if planned.shape != links.devices.positions.shape:
        return None
    return links if np.allclose(planned, links.devices.positions, equal_nan=True) else None


def plan_rows(
    plan: PlanDict,
    stations: Sequence[Sequence[float]],
    links: Links | None,
    spent: DeviceEnergy | None = None,
) -> dict[str, Rows]:
    """All rows that a plan and its batteries give, by the name that charts ask for."""
    placed = all(None not in device["position"] for device in plan["devices"])
    return {
        "devices": with_batteries(device_rows(plan, links), spent, plan),
        "links": link_rows(plan, stations, links) if placed else [],
        "hulls": hull_rows(plan) if placed else [],
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
    for index, unit, name in _shown_members(plan):
        device = plan["devices"][numbers[name]]
        rows.append(
            {
                **_at(device["position"]),
                **_of_cluster(index),
                "device": str(name),
                "role": "leader" if name == unit["leader"] else "member",
                "region": device["region"],
                "link": unit.get("link", SHANNON),
                "samples": device["samples"],
                "main": main_labels(device["label_counts"]),
                "snr": None if snr is None else round(float(snr[numbers[name]]), 1),
                "updates": unit["local_updates"],
                "order": len(rows),
            }
        )
    return rows


def _shown_members(plan: PlanDict) -> Iterator[tuple[int, dict[str, Any], Any]]:
    """The devices on the map: all, or those of every n-th unit, at most LARGEST_MAP."""
    step = -(-len(plan["devices"]) // LARGEST_MAP)
    members = (
        (index, plan["units"][index], name)
        for index in range(0, len(plan["units"]), step)
        for name in plan["units"][index]["members"]
    )
    return islice(members, LARGEST_MAP)


def _of_cluster(index: int) -> dict[str, str]:
    return {"cluster": str(index), "colour": PALETTE[index % len(PALETTE)]}


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
    for index, unit, name in _shown_members(plan):
        leads = name == unit["leader"]
        station = stations[0 if serving is None else int(serving[numbers[name]])]
        there = _at(station if leads else plan["devices"][numbers[unit["leader"]]]["position"])
        rows.append(
            {
                **_at(plan["devices"][numbers[name]]["position"]),
                **_of_cluster(index),
                "x2": there["x"],
                "y2": there["y"],
                "link": "leader to base station" if leads else "member to leader",
            }
        )
    return rows


def hull_rows(plan: PlanDict) -> Rows:
    """The corners of each cluster's area in a crowd: the convex hull of its devices, in order."""
    if len(plan["devices"]) <= CROWD:
        return []
    numbers = _numbers(plan)
    places: dict[int, list[tuple[float, float]]] = {}
    for index, _, name in _shown_members(plan):
        at = plan["devices"][numbers[name]]["position"]
        places.setdefault(index, []).append((float(at[0]), float(at[1])))
    return [
        {**_at(corner), **_of_cluster(index), "order": order}
        for index, own in places.items()
        for order, corner in enumerate(convex_hull(own))
    ]


def convex_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the least convex area with all points, against the clock."""
    ranked = sorted(set(points))
    if len(ranked) < 3:
        return ranked

    def side(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        kept: list[tuple[float, float]] = []
        for x, y in line:
            while len(kept) > 1:
                (ax, ay), (bx, by) = kept[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    return side(ranked) + side(ranked[::-1])


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
            "gate": gate(unit["multi_update"]),
        }
        for index in shown_bars(len(plan["units"]))
        for unit in [plan["units"][index]]
    ]


def gate(allowed: bool) -> str:
    """Whether a cluster is above the threshold, in the words of charts."""
    return "extra updates allowed" if allowed else "one update"


def repeating(plan: PlanDict) -> int:
    """The number of clusters with more than one local update in a round."""
    return sum(unit["local_updates"] > 1 for unit in plan["units"])


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
        computed = down + unit.compute_seconds + unit.dvfs_seconds
        gathering = max(computed, down + unit.compute_seconds + unit.wait_seconds)
        ready = unit.ready_seconds + unit.late_seconds
        times = (0.0, down, computed, gathering, ready, start, end, last)
        phases = ("receive", "compute", "wait", "gather", "wait", "uplink", "wait")
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
        numbers, drawn = _numbers(plan), islice(_shown_members(plan), LARGEST_MATRIX)
        shown = np.array([numbers[name] for *_, name in drawn])
    matrix = links.device_snr_db(shown, shown)
    np.fill_diagonal(matrix, decibels(links.uplink_snr())[shown])
    names = [str(plan["devices"][k]["id"]) for k in shown.tolist()]
    return [
        {"a": a, "b": b, "snr": round(snr, 1)}
        for a, row in zip(names, matrix.tolist(), strict=True)
        for b, snr in zip(names, row, strict=True)
    ]


def threshold_rows(config: Config, plan: PlanDict) -> Rows:
    """The contribution from which a cluster may update repeatedly.

    Where the scheme has none, it is an invisible placeholder at a contribution, because Vega needs
    a scale that is not empty.
    """
    name = ALIASES.get(config.scheme.name, config.scheme.name)
    scheme: Any = make_scheme(config) if name in SCHEMES else None
    units, limit = plan["units"], -math.inf
    if hasattr(scheme, "threshold_quantile"):
        samples, distance = ([unit[key] for unit in units] for key in ("samples", "wasserstein"))
        logs = log_contribution(samples, np.array(distance), config.readings.w_min)
        limit = log_threshold(logs, scheme.threshold, scheme.threshold_quantile)
    seen = math.isfinite(limit)
    value = float(contribution(np.asarray(limit))) if seen else units[0]["contribution"]
    return [{"threshold": short(value), "seen": seen}]


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


def spending_rows(devices: DeviceEnergy | None, plan: PlanDict) -> Rows:
    """Joules by device and kind, the largest first; of many devices those at equal steps."""
    if devices is None or not devices.joules.any():
        return []
    ranked = np.argsort(-devices.joules, kind="stable")
    ranked = ranked[shown_bars(len(ranked))]
    leaders = {str(unit["leader"]) for unit in plan["units"]}
    return [
        {
            "device": devices.ids[k],
            "role": "leader" if devices.ids[k] in leaders else "member",
            "phase": kind,
            "joules": short(joules),
            "battery": _battery(devices, k),
            "place": place,
            "order": order,
        }
        for place, k in enumerate(ranked.tolist())
        for order, kind in enumerate(KINDS)
        if (joules := float(getattr(devices, f"{kind}_joules")[k])) > 0
    ]


def full_batteries(world: World) -> DeviceEnergy:
    """The batteries of a fleet before its first round."""
    return DeviceEnergy.of(world.devices.ids, Ledger.new(world.devices.count), Batteries(world))


def with_batteries(rows: Rows, devices: DeviceEnergy | None, plan: PlanDict) -> Rows:
    """The rows of the map, with what is left in each battery; empty devices are grey.

    It is not known of runs that have not ended.
    """
    if devices is None:
        return [row | {"battery": "not known"} for row in rows]
    place = {str(device["id"]): k for k, device in enumerate(plan["devices"])}
    found = []
    for row in rows:
        k = place[row["device"]]
        grey = {"colour": _EMPTY_COLOUR} if devices.empty_round[k] >= 0 else {}
        found.append({**row, "battery": _battery(devices, k), **grey})
    return found


def _battery(devices: DeviceEnergy, k: int) -> str:
    if np.isnan(devices.battery_joules[k]):
        return "mains power"
    if devices.empty_round[k] >= 0:
        return f"empty after round {devices.empty_round[k]}"
    left, full = devices.left_joules[k], devices.battery_joules[k]
    return f"{left:.4g} of {full:.4g} J left"
