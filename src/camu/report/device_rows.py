"""The rows about single devices: what each spent, who is empty, and how many are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from camu.report.groups import Group
from camu.report.rows import LARGEST_BARS, PlanDict, Rows, short
from camu.simulation.ledger import KINDS, DeviceEnergy

EMPTY_COLOUR = "#9AA3AF"


def alive_rows(groups: Sequence[Group]) -> Rows:
    """Devices that are not empty over rounds, mean over seeds; no rows if none ever is."""
    rows: Rows = []
    for group in groups:
        runs = group.counted
        rounds = [record.round for record in min((run.records for run in runs), key=len)]
        empty = np.zeros(len(rounds))
        for run in runs:
            known = [(record.round, record.empty) for record in run.records]
            empty += np.interp(rounds, *np.array(known, dtype=float).T) / len(runs)
        total = len(runs[0].plan["devices"])
        rows += [
            {"scheme": group.label, "x": x, "alive": short(total - gone), "n": len(runs)}
            for x, gone in zip(rounds, empty.tolist(), strict=True)
        ]
    any_empty = any(run.last.empty for group in groups for run in group.counted)
    return rows if any_empty else []


def spending_rows(devices: DeviceEnergy | None, plan: PlanDict) -> Rows:
    """Joules by device and kind, the largest first; of many devices those at equal steps."""
    if devices is None or not devices.joules.any():
        return []
    order = np.argsort(-devices.joules, kind="stable")
    if len(order) > LARGEST_BARS:
        order = order[np.linspace(0, len(order) - 1, LARGEST_BARS).round().astype(int)]
    leaders = {str(unit["leader"]) for unit in plan["units"]}
    rows: Rows = []
    for place, k in enumerate(order.tolist()):
        name = devices.ids[k]
        for kind in KINDS:
            joules = float(getattr(devices, f"{kind}_joules")[k])
            if joules > 0:
                rows.append(
                    {
                        "device": name,
                        "role": "leader" if name in leaders else "member",
                        "phase": kind,
                        "joules": short(joules),
                        "battery": _battery(devices, k),
                        "place": place,
                        "order": KINDS.index(kind),
                    }
                )
    return rows


def with_batteries(rows: Rows, devices: DeviceEnergy | None, plan: PlanDict) -> Rows:
    """The rows of the map, with what is left in each battery; empty devices are grey."""
    if devices is None or np.isnan(devices.battery_joules).all():
        return [row | {"battery": "mains power"} for row in rows]
    place = {str(device["id"]): k for k, device in enumerate(plan["devices"])}
    return [_with_battery(row, devices, place[row["device"]]) for row in rows]


def _with_battery(row: dict[str, Any], devices: DeviceEnergy, k: int) -> dict[str, Any]:
    grey = {"colour": EMPTY_COLOUR} if devices.empty_round[k] >= 0 else {}
    return {**row, "battery": _battery(devices, k), **grey}


def _battery(devices: DeviceEnergy, k: int) -> str:
    if np.isnan(devices.battery_joules[k]):
        return "mains power"
    if devices.empty_round[k] >= 0:
        return f"empty after round {devices.empty_round[k]}"
    left, full = devices.left_joules[k], devices.battery_joules[k]
    return f"{left:.4g} of {full:.4g} J left"
