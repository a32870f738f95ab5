"""What a page says of a fleet's file: what has no effect on it, what edits lose, how long it lasts.

Batteries are those of a steady state: every round costs what the first one does.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.config import Config
from camu.live.settings import MEASURED, FleetEdits
from camu.planning.battery_days import seconds_until_empty
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.simulation.dry_run import first_round
from camu.world import World
from camu.world.fleet_clean import read_fleet
from camu.world.link_types import SHANNON
from camu.world.sun import DAY_SECONDS
from camu.world.tables import Table, read_table

_MOST_NAMED = 3
# What deals the data of devices, where the file does not say how many of each label they hold.
_DEALT = ("partition", "noniid_devices", "labels_per_device", "alpha", "shards_per_device")
_OF_BOARDS = ("cpu_hz", "capacitance", "idle_watts", "static_watts")
_OWN = ("power_watts", "max_power_watts", "battery_joules", "harvest_watts")


def idle_keys(base: Config) -> frozenset[str]:
    """The keys that change nothing in the plan of this fleet's file, since its rows say it all."""
    if base.fleet.file is None:
        return frozenset()
    table = read_fleet(Path(base.fleet.file)).table
    full = {name for name in table.columns if all(map(_filled, _cells(table, name)))}
    boarded = "board" in full or bool(base.fleet.board)
    found = [f"data.{name}" for name in ("samples_per_device", "size_exponent")]
    if any(name.startswith("label_") for name in table.columns):
        found += [f"data.{name}" for name in _DEALT]
    found += [f"fleet.{name}" for name in _OWN if name in full]
    found += [f"fleet.{name}" for name in _OF_BOARDS if name in full or boarded]
    if boarded or "cycles_per_sample" in full:
        found += ["fleet.cycles_per_sample", "fleet.flops_per_cycle"]
    if "link" in full:
        found += ["radio.link"]
    return frozenset(found)


def beside(base: Config) -> str:
    """The scheme that a page shows beside the configured one at first.

    P1 of `camu-joint` knows no link types; there it is `fedsgd`, where every device sends.
    """
    links = [base.radio.link]
    if base.fleet.file is not None:
        links += map(str, filter(_filled, _cells(read_fleet(Path(base.fleet.file)).table, "link")))
    return "camu-joint" if set(links) == {SHANNON} else "fedsgd"


def _cells(table: Table, name: str) -> list[Any]:
    return [row.get(name) for row in table.rows]


def _filled(cell: Any) -> bool:
    return cell is not None and bool(str(cell).strip())


def lost(table: Table, edits: FleetEdits) -> dict[str, str]:
    """What was measured of devices at a place that they have left, by id; table without edits."""
    rows = {str(row["id"]).strip(): row for row in table.rows}
    origins = {name: name for name in edits.moved} | {one.id: one.like for one in edits.added}
    found = {}
    for name, origin in origins.items():
        row = rows.get(origin, {})
        columns = [column for column in MEASURED if _filled(row.get(column))]
        if columns and name not in edits.removed:
            found[name] = ", ".join(columns)
    return found


def lost_words(found: dict[str, str]) -> list[str]:
    """A sentence on devices that have lost a measurement, or none."""
    if not found:
        return []
    named = ", ".join(list(found)[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    columns = ", ".join(dict.fromkeys(", ".join(found.values()).split(", ")))
    return [
        f"moved or new: {named}{more}; what was measured elsewhere ({columns}) is left out, and "
        "the uplink follows from the new place"
    ]


def station_names(config: Config) -> tuple[str, ...]:
    """The ids of the base stations in fleet.base_station_file; empty without such a file."""
    if config.fleet.base_station_file is None:
        return ()
    return read_table(Path(config.fleet.base_station_file)).texts("id")


def battery_rows(world: World, scheme: Scheme, plan: Plan) -> dict[str, Any] | None:
    """Days until each battery is empty with learning and without; None without batteries."""
    if np.isnan(world.devices.battery_joules).all():
        return None
    joules, seconds = first_round(world, scheme, plan)
    resting = world.devices.resting_watts
    watts = np.maximum(joules / seconds, resting) if seconds > 0 else resting
    mains = np.isnan(world.devices.battery_joules)
    days = {
        name: np.where(mains, np.nan, seconds_until_empty(world, drawn) / DAY_SECONDS)
        for name, drawn in (("with", watts), ("without", resting))
    }
    return {name: [_days(value) for value in values.tolist()] for name, values in days.items()} | {
        f"{when}_{name}": _days(value)
        for name, values in days.items()
        for when, value in (("first", _ranked(values, 0.0)), ("median", _ranked(values, 0.5)))
    }


def _ranked(days: Float64, share: float) -> float:
    """The days of the battery at this place of the order, from the first to be empty."""
    known = np.sort(days[~np.isnan(days)])
    return float(known[math.ceil(share * (len(known) - 1))])


def _days(value: float) -> float | str | None:
    """Days as JSON holds them; None on mains power."""
    if math.isnan(value):
        return None
    return "inf" if math.isinf(value) else float(f"{value:.4g}")
