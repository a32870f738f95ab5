"""What is assumed of devices whose cells are empty: a sentence per column, with their number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.config import Config
from camu.world.tables import MAINS_CELL, Table

_UPLINKS = ("gain_db", "snr_db", "rssi_dbm")
_OF_BOARDS = ("cpu_hz", "cycles_per_sample", "capacitance", "idle_watts", "static_watts")
_OWN = (
    *("power_watts", "max_power_watts", "battery_joules", "harvest_watts", "sleep_watts"),
    "solar_watts_peak",
)


def assumed(table: Table, columns: dict[str, Float64], config: Config) -> list[str]:
    """The sentences; a column that is missing altogether is of the configuration, and not said.

    But for the power of devices with a measured uplink, on which the link between devices depends.
    """
    fleet = config.fleet
    found: list[tuple[npt.NDArray[np.bool_], str]] = []
    measured = np.any([~np.isnan(columns[name]) for name in _UPLINKS], axis=0)
    relative = ~np.isnan(columns["rssi_dbm"]) | ~np.isnan(columns["snr_db"])
    power = np.isnan(columns["power_watts"])
    limited = ", or the most of their link type" if "link" in table.columns else ""
    sends = f"send with fleet.power_watts = {fleet.power_watts:g} W{limited}"
    found.append(
        (relative & power, f"a measured uplink and no power_watts; they are taken to {sends}")
    )
    if measured.any():
        words = "no measured uplink; theirs follows from their places"
        found.append((~measured, words))
    boarded = np.array(
        [bool(str(row.get("board") or fleet.board or "").strip()) for row in table.rows]
    )
    for name in (*_OF_BOARDS, *_OWN):
        empty = np.isnan(columns[name])
        if name not in table.columns or (empty.all() and name not in _OWN):
            continue
        if name == "power_watts":
            empty &= ~relative
        elif name == "battery_joules":
            empty &= np.array([str(row.get(name)).strip() != MAINS_CELL for row in table.rows])
        elif name in _OF_BOARDS:
            found.append((empty & boarded, f"no {name}; theirs is that of their board"))
            empty &= ~boarded
        found.append((empty, f"no {name}; {_taken(name, config)}"))
    for name, usual in (("link", config.radio.link), ("board", fleet.board)):
        empty = np.array([not str(row.get(name) or "").strip() for row in table.rows])
        if name in table.columns:
            words = f"theirs is {usual}" if usual else "their numbers are those of [fleet]"
            found.append((empty, f"no {name}; {words}"))
    count = len(table.rows)
    return [
        f"{table.path}: {_devices(int(rows.sum()), count)} {words}"
        for rows, words in found
        if rows.any()
    ]


def _taken(name: str, config: Config) -> str:
    """What stands for an empty cell."""
    value = getattr(config.fleet, name)
    if name == "battery_joules" and value is None:
        return "they are taken to be on mains power"
    if value is None:
        return "they stay awake"  # sleep_watts
    if name == "cpu_hz":
        low, high = value
        return f"theirs is drawn from fleet.cpu_hz, {low:g} to {high:g} Hz"
    return (
        f"theirs is fleet.{name} = {value:g}"
        if isinstance(value, float | int)
        else (f"theirs is by fleet.{name} = {value}")
    )


def _devices(some: int, count: int) -> str:
    return f"{some} of {count} devices have" if some < count else f"{count} devices have"
