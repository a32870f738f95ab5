"""What devices harvest: at all times, from the sun, and by a trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.world import World
from camu.world.sun import Sunshine
from camu.world.tables import read_trace

SUN_SECONDS = 600.0  # of a stretch in which the sun gives its mean power


class Harvest:
    """The power that each device harvests at any time; time only moves forward."""

    def __init__(self, world: World) -> None:
        path = world.config.fleet.harvest_trace
        # From a virtual second on, these devices (all, or one) harvest this power.
        self._changes = _read_trace(Path(path), world) if path else []
        self._first_watts = world.devices.harvest_watts
        self._watts = np.array(self._first_watts)
        self._next = 0
        fleet = world.config.fleet
        self._panels = fleet.solar_share * world.devices.solar_watts_peak
        self._sun: Sunshine | None = None
        if self._panels.any():
            assert world.latitude is not None  # the world was refused otherwise
            self._sun = Sunshine(world.latitude, fleet.start_day, fleet.start_hour)
        # (K,) who ever harvests
        self.devices: npt.NDArray[np.bool_] = (self._watts > 0) | (self._panels > 0)
        for _, devices, watts in self._changes:
            if watts > 0:
                self.devices[devices] = True

    def fill(self, charge: Float64, capacity: Float64, start: float, end: float) -> None:
        """Add to these charges (K,) what is harvested from one virtual second to another.

        A battery never holds more than its capacity.
        """
        for begin, until, watts in self.stretches(start, end):
            np.minimum(charge + watts * (until - begin), capacity, out=charge)

    @property
    def settled_seconds(self) -> float:
        """From when on it is steady, or the same in every year."""
        return self._changes[-1][0] if self._changes else 0.0

    @property
    def sunny(self) -> Int64:
        """The devices that have panels."""
        return np.flatnonzero(self._panels > 0)

    @property
    def sunless(self) -> Int64:
        """The devices that have none."""
        return np.flatnonzero(~(self._panels > 0))

    def edges(self, end: float, *more: float) -> Float64:
        """Virtual seconds from 0 to `end` between which `powers` are taken to be steady.

        They are those of changes and, if there is an end, all hours and these others.
        """
        changes = [seconds for seconds, _, _ in self._changes]
        if np.isinf(end):
            return np.unique([0.0, *changes, end])
        return np.unique([*np.arange(0.0, end, 3600.0), *changes, *more, end])

    def powers(self, edges: Float64, devices: Int64) -> Float64:
        """The power of these devices between any two of these virtual seconds (N, k)."""
        watts = np.tile(self._first_watts[devices], (len(edges) - 1, 1))
        for seconds, who, power in self._changes:
            own = slice(None) if isinstance(who, slice) else devices == who
            watts[np.searchsorted(edges, seconds) :, own] = power
        if self._sun is None or np.isinf(edges[-1]):
            return watts
        return watts + self._sun.means(edges)[:, None] * self._panels[devices]

    def stretches(self, start: float, end: float) -> Iterator[tuple[float, float, Float64]]:
        """Stretches of time from one virtual second to another, with the power in each (K,).

        The power of the sun is its mean in each stretch of at most ten minutes.
        """
        now = start
        while now < end:
            until = end
            while self._next < len(self._changes):
                seconds, devices, watts = self._changes[self._next]
                if seconds > now:
                    until = min(end, seconds)
                    break
                self._watts[devices] = watts
                self._next += 1
            power = self._watts
            if self._sun is not None:
                until = min(until, (now // SUN_SECONDS + 1) * SUN_SECONDS)
                power = power + self._panels * self._sun.mean(now, until)
            yield now, until, power
            now = until


def _read_trace(path: Path, world: World) -> list[tuple[float, int | slice, float]]:
    """Rows `seconds,device,watts` in the order of time; devices go by their id, `*` is everyone."""
    place: dict[str, int | slice] = {name: k for k, name in enumerate(world.devices.ids)}
    place["*"] = slice(None)
    table = read_trace(path, "fleet.harvest_trace", ("seconds", "device", "watts"))
    seconds, watts = table.floats("seconds"), table.floats("watts")
    for column, values in (("seconds", seconds), ("watts", watts)):
        table.refuse(~(values >= 0), column, "write a finite number from 0")
    names = table.texts("device")
    unknown = np.array([name not in place for name in names], dtype=np.bool_)
    table.refuse(unknown, "device", "no device has this id; `*` is everyone")
    devices = [place[name] for name in names]
    changes = zip(seconds.tolist(), devices, watts.tolist(), strict=True)
    return sorted(changes, key=lambda change: change[0])
