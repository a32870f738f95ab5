"""Energy that devices harvest: a steady power each, or a trace over virtual seconds."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.errors import InputError
from camu.files import read_text
from camu.world import World

_HEADER = ["seconds", "device", "watts"]
_EVERYONE = "*"


class Change(NamedTuple):
    """From this virtual second on, a device harvests this power; device -1 is everyone."""

    seconds: float
    device: int
    watts: float


class Harvest:
    """The power that each device harvests at any time; time only moves forward."""

    def __init__(self, world: World) -> None:
        path = world.config.fleet.harvest_trace
        self._changes = _read_trace(Path(path), world) if path else []
        self._watts = np.array(world.devices.harvest_watts)
        self._next = 0
        self.devices: npt.NDArray[np.bool_] = self._watts > 0  # (K,) who ever harvests
        for change in self._changes:
            if change.watts > 0:
                self.devices[slice(None) if change.device < 0 else change.device] = True

    def fill(self, charge: Float64, capacity: Float64, start: float, end: float) -> None:
        """Add to these charges (K,) what is harvested from one virtual second to another.

        A battery never holds more than its capacity.
        """
        now = start
        while now < end:
            while self._next < len(self._changes) and self._changes[self._next].seconds <= now:
                change = self._changes[self._next]
                self._watts[slice(None) if change.device < 0 else change.device] = change.watts
                self._next += 1
            until = end
            if self._next < len(self._changes):
                until = min(end, self._changes[self._next].seconds)
            np.minimum(charge + self._watts * (until - now), capacity, out=charge)
            now = until


def _read_trace(path: Path, world: World) -> list[Change]:
    """Rows `seconds,device,watts`; devices go by their id, and `*` is everyone."""
    place = {name: index for index, name in enumerate(world.devices.ids)} | {_EVERYONE: -1}
    text = read_text(path, "a CSV file as fleet.harvest_trace")
    try:
        lines = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise InputError(f"{path}: is not CSV ({error}); write it again as text") from None
    if not lines or [cell.strip() for cell in lines[0]] != _HEADER:
        raise InputError(f"{path}: row 1: the header must be `{','.join(_HEADER)}`")
    changes = []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        where = f"{path}: row {number}"
        if len(line) != len(_HEADER):
            raise InputError(f"{where}: write {len(_HEADER)} cells: {', '.join(_HEADER)}")
        seconds, name, watts = (cell.strip() for cell in line)
        if name not in place:
            raise InputError(f"{where}, column device: no device `{name[:40]}`; `*` is everyone")
        changes.append(
            Change(
                _not_negative(seconds, f"{where}, column seconds"),
                place[name],
                _not_negative(watts, f"{where}, column watts"),
            )
        )
    return sorted(changes, key=lambda change: change.seconds)


def _not_negative(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{where}: `{cell[:40]}`; write a finite number from 0")
    return value
