"""Edits of a fleet file on the page: devices moved, added and removed, as a new CSV text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from camu.errors import InputError
from camu.world.devices import Devices
from camu.world.table import Table

Coordinate = Annotated[float, Field(ge=-1e7, le=1e7)]


class Added(BaseModel):
    """A new device that is otherwise like another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1, max_length=80)]
    like: str
    x: Coordinate
    y: Coordinate


class FleetEdits(BaseModel):
    """What a page changed in a fleet file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    moved: dict[str, tuple[Coordinate, Coordinate]] = Field(default={}, max_length=2000)
    removed: list[str] = Field(default=[], max_length=2000)
    added: list[Added] = Field(default=[], max_length=2000)


def edited_csv(table: Table, edits: FleetEdits) -> str:
    """The fleet with its edits. A moved device loses its measured gain: it was for another place.

    A new device has the values of the one that it is like.
    """
    rows = {str(row["id"]).strip(): dict(row) for row in table.rows}
    for name in (*edits.moved, *edits.removed, *(one.like for one in edits.added)):
        if name not in rows and name not in {one.id for one in edits.added}:
            raise InputError(f"fleet.file: there is no device {name[:80]!r} in {table.path}")
    for one in edits.added:
        if one.id in rows:
            raise InputError(f"fleet.file: the device {one.id!r} is there already")
        rows[one.id] = _placed({**rows[one.like], "id": one.id}, one.x, one.y)
    for name, (x, y) in edits.moved.items():
        rows[name] = _placed(rows[name], x, y)
    kept = [row for name, row in rows.items() if name not in set(edits.removed)]
    if not kept:
        raise InputError("fleet.file: a fleet needs at least one device")
    columns = list(table.columns)
    columns += [name for name in ("x", "y") if name not in columns]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in kept)
    return text.getvalue()


def _placed(row: dict[str, Any], x: float, y: float) -> dict[str, Any]:
    measured: dict[str, Any] = {name: "" for name in ("gain_db", "distance_m") if name in row}
    return {**row, **measured, "x": x, "y": y}


def _cell(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def fleet_csv(devices: Devices) -> str:
    """Devices as a fleet file that reads back as the same devices, to the last bit."""
    numbers = {
        "x": devices.positions[:, 0],
        "y": devices.positions[:, 1],
        "z": devices.positions[:, 2],
        "cpu_hz": devices.cpu_hz,
        "cycles_per_sample": devices.cycles_per_sample,
        "capacitance": devices.capacitance,
        "power_watts": devices.power_watts,
        "max_power_watts": devices.max_power_watts,
        "battery_joules": devices.battery_joules,
    }
    labels = [f"label_{label}" for label in range(devices.label_counts.shape[1])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "region", *numbers, *labels])
    for k, name in enumerate(devices.ids):
        cells: Sequence[str] = [_known(float(column[k])) for column in numbers.values()]
        writer.writerow([name, devices.regions[k], *cells, *devices.label_counts[k].tolist()])
    return text.getvalue()


def _known(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
