"""Traces of devices: rounds in which they are absent, and seconds in which they are available."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.errors import InputError
from camu.files import read_text
from camu.world import World
from camu.world.table import csv_rows

LATEST_ROUND = 10**9
LATEST_SECOND = 1e15


@dataclass(frozen=True, eq=False)
class Availability:
    """When devices can take part; a device without an interval always can."""

    count: int
    device: Int64  # of each interval
    start_seconds: Float64  # on the virtual clock
    end_seconds: Float64  # not part of the interval

    def __bool__(self) -> bool:
        return bool(self.device.size)

    def present(self, seconds: float) -> npt.NDArray[np.bool_]:
        """Which devices are available at this time (K,)."""
        here = np.ones(self.count, dtype=np.bool_)
        here[self.device] = False
        now = (self.start_seconds <= seconds) & (seconds < self.end_seconds)
        here[self.device[now]] = True
        return here

    def opens_seconds(self, seconds: float) -> float:
        """The first time from `seconds` on at which a device is available.

        It is `seconds` itself if no device ever is again.
        """
        later = self.start_seconds[self.start_seconds > seconds]
        if not later.size or self.present(seconds).any():
            return seconds
        return float(later.min())


def read_availability(world: World) -> Availability:
    """The intervals of fleet.availability_trace, a CSV file with the columns start, end, device."""
    path = world.config.fleet.availability_trace
    found: list[tuple[int, float, float]] = []
    if path is not None:
        place = {name: index for index, name in enumerate(world.devices.ids)}
        for where, (start, end, device) in _rows(path, "fleet.availability_trace", 3, _INTERVALS):
            begin = _seconds(where, "start", start)
            finish = _seconds(where, "end", end)
            if finish <= begin:
                raise InputError(
                    f"{where}, column end: {finish:g} is not after the start {begin:g}; write a "
                    "later second"
                )
            if device not in world.left_out:
                found.append((_device(where, device, place), begin, finish))
    return Availability(
        world.devices.count,
        np.array([device for device, _, _ in found], dtype=np.int64),
        np.array([start for _, start, _ in found], dtype=np.float64),
        np.array([end for _, _, end in found], dtype=np.float64),
    )


def read_absences(world: World) -> dict[int, list[int]]:
    """The absent devices by round, from 1, of fleet.dropout_trace: rows `round,device`."""
    path = world.config.fleet.dropout_trace
    found: dict[int, list[int]] = {}
    if path is not None:
        place = {name: index for index, name in enumerate(world.devices.ids)}
        for where, (number, device) in _rows(path, "fleet.dropout_trace", 2, _ROUNDS):
            if not (number.isascii() and number.isdigit() and 1 <= len(number) <= 10) or not (
                1 <= int(number) <= LATEST_ROUND
            ):
                raise InputError(
                    f"{where}, column round: {number[:40]!r} is not a round; write a whole number "
                    f"from 1 to {LATEST_ROUND}"
                )
            if device not in world.left_out:
                found.setdefault(int(number), []).append(_device(where, device, place))
    return found


_ROUNDS, _INTERVALS = ("round", "device"), ("start", "end", "device")


def _rows(path: str, key: str, width: int, header: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """The place of each row below the header, and its cells."""
    wanted = f"a CSV file with the header {','.join(header)}"
    rows, places = csv_rows(Path(path), read_text(path, wanted))
    if not rows or tuple(cell.strip() for cell in rows[0]) != header:
        raise InputError(f"{path}, line 1: the header of {key} must be `{','.join(header)}`")
    for row, place in zip(rows, places, strict=True):
        if len(row) != width:
            raise InputError(
                f"{path}, {place}: {len(row)} cells for the columns {', '.join(header)}; write one "
                "cell per column"
            )
    return [
        (f"{path}, {place}", [cell.strip() for cell in row])
        for row, place in zip(rows[1:], places[1:], strict=True)
    ]


def _seconds(where: str, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value <= LATEST_SECOND:
        raise InputError(
            f"{where}, column {column}: {cell[:40]!r} is not a time; write virtual seconds from 0 "
            f"to {LATEST_SECOND:g}"
        )
    return value


def _device(where: str, name: str, place: Mapping[str, int]) -> int:
    if name not in place:
        raise InputError(
            f"{where}, column device: no device is called {name[:40]!r}; write an id of the fleet"
        )
    return place[name]
