"""Where devices are at a time: along a trace, or from one random waypoint to the next.

A place is a function of the configuration, the device and the time alone, so that a run that goes
on from a checkpoint needs no memory of where its devices were.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from camu.arrays import Float64, Int64
from camu.config import Config
from camu.errors import InputError
from camu.world.devices import Devices
from camu.world.fading import link_uniform
from camu.world.tables import read_trace

_DRAWS = 1 << 24  # above every number of a device, so that no device shares a draw with another
_MOST_LEGS = 10**6  # of a device; their number is finite in any case, but not the user's patience


class Movement(Protocol):
    """The places of all devices over time."""

    @property
    def end_seconds(self) -> float:
        """The last virtual second that is known; infinite: all are."""
        ...

    def positions(self, seconds: float) -> Float64:
        """Where the devices are at this virtual second (K, 3), metres."""
        ...


def movement_of(
    config: Config, devices: Devices, left_out: Collection[str] = ()
) -> Movement | None:
    """How these devices move; None: they stay. `left_out` are names that a trace may hold too."""
    fleet = config.fleet
    if fleet.position_trace is not None:
        return read_positions(fleet.position_trace, devices, left_out)
    if fleet.speed_mps is None:
        return None
    slowest, fastest = fleet.speed_mps
    low, high = _boxes(config, devices)
    return Waypoints(
        config.run.seed, devices.positions, low, high, slowest, fastest, fleet.pause_seconds
    )


def key_of_movement(config: Config) -> str | None:
    """The configuration key that lets devices move; None: they stay."""
    fleet = config.fleet
    if fleet.position_trace is not None:
        return "fleet.position_trace"
    return None if fleet.speed_mps is None else "fleet.speed_mps"


@dataclass(frozen=True, eq=False)
class Trace:
    """Rows of places: a device moves in a straight line from one of its rows to the next.

    Before its first row it is where that says, after its last one it stays.
    """

    start: Float64  # (K, 3): of devices without a row
    devices: Int64  # with a row, ascending
    first: Int64  # by device: where its rows begin in the arrays below
    seconds: Float64  # of each row, ascending within a device
    places: Float64  # (rows, 3)

    @property
    def end_seconds(self) -> float:
        """The last second of the trace; infinite if it moves nobody."""
        return float(self.seconds.max()) if len(self.seconds) else math.inf

    def positions(self, seconds: float) -> Float64:
        """Where the devices are at this virtual second (K, 3), metres."""
        found = self.start.copy()
        if not len(self.devices):
            return found
        last = np.append(self.first[1:], len(self.seconds)) - 1
        passed = np.add.reduceat((self.seconds <= seconds).astype(np.int64), self.first)
        before = self.first + np.maximum(passed - 1, 0)
        after = np.minimum(self.first + passed, last)
        lasting = self.seconds[after] - self.seconds[before]
        share = np.zeros(len(before))
        np.divide(seconds - self.seconds[before], lasting, out=share, where=lasting > 0)
        here, there = self.places[before], self.places[after]
        found[self.devices] = here + share[:, None] * (there - here)
        return found


def read_positions(path: str, devices: Devices, left_out: Collection[str]) -> Trace:
    """The places in a CSV file of `seconds,device,x,y` rows; with a column z, also heights."""
    key, header = "fleet.position_trace", ("seconds", "device", "x", "y")
    table = read_trace(path, key, header, optional=("z",))
    seconds = table.floats("seconds")
    table.refuse(~(seconds >= 0), "seconds", "write a finite number from 0")
    place = {name: index for index, name in enumerate(devices.ids)}
    names, known = table.texts("device"), {*place, *left_out}
    unknown = np.array([name not in known for name in names], dtype=np.bool_)
    table.refuse(unknown, "device", "no device is called so; write an id of the fleet")
    device = np.array([place.get(name, -1) for name in names], dtype=np.int64)
    columns = [table.numbers(axis) for axis in "xyz"]
    for axis, values in zip("xy", columns, strict=False):
        table.refuse(np.isnan(values), axis, "write the place in metres")
    height = devices.positions[device, 2] if len(device) else np.empty(0)
    columns[2] = np.where(np.isnan(columns[2]), height, columns[2])
    order = np.lexsort((seconds, device))
    twice = np.zeros(len(order), dtype=np.bool_)
    same = (np.diff(device[order]) == 0) & (np.diff(seconds[order]) == 0)
    twice[order[1:][same]] = True
    table.refuse(twice, "seconds", "the device has a row for this second already; remove one")
    order = order[device[order] >= 0]
    moving, first = np.unique(device[order], return_index=True)
    places = np.column_stack(columns)[order]
    return Trace(devices.positions, moving, first, seconds[order], places)


class Waypoints:
    """Random waypoints: a device goes straight to a random place in its box, pauses, and so on.

    The numbers of a leg are a hash of (seed, device, leg). The legs of the last time that was asked
    for are kept: later times cost the legs in between, an earlier one begins at second 0 again and
    comes to the same bits.
    """

    end_seconds = math.inf

    def __init__(
        self,
        seed: int,
        start: Float64,
        low: Float64,
        high: Float64,
        slowest_mps: float,
        fastest_mps: float,
        pause_seconds: float,
    ) -> None:
        self._seed, self._start, self._low, self._size = seed, start, low, high - low
        self._speeds_mps, self._pause_seconds = (slowest_mps, fastest_mps), pause_seconds
        # A device in a box without extent, or at an unknown place, stays.
        self._moving = np.flatnonzero((self._size > 0).any(axis=1) & ~np.isnan(start[:, 0]))
        self._begin()

    def _begin(self) -> None:
        count = len(self._start)
        self._asked, self._legs = 0.0, np.zeros(count, dtype=np.int64)
        self._here, self._there = self._start.copy(), self._start.copy()
        self._departs, self._arrives = np.zeros(count), np.full(count, -self._pause_seconds)

    def positions(self, seconds: float) -> Float64:
        """Where the devices are at this virtual second (K, 3), metres."""
        if seconds < self._asked:
            self._begin()
        self._asked = seconds
        late = self._moving
        while len(late := late[self._arrives[late] + self._pause_seconds <= seconds]):
            self._next_leg(late, seconds)
        share = np.zeros(len(self._start))
        going = self._moving
        lasting = self._arrives[going] - self._departs[going]
        np.divide(seconds - self._departs[going], lasting, out=lasting, where=lasting > 0)
        share[going] = np.clip(lasting, 0.0, 1.0)
        return np.asarray(self._here + share[:, None] * (self._there - self._here))

    def _next_leg(self, devices: Int64, seconds: float) -> None:
        """Let these devices depart for their next waypoint."""
        legs = self._legs[devices]
        if legs.max() >= _MOST_LEGS:
            raise InputError(
                f"fleet.speed_mps = {list(self._speeds_mps)}: until second {seconds:.6g} a device "
                f"would pass more than {_MOST_LEGS} waypoints; lower the speed, enlarge its "
                "region, or set fleet.pause_seconds"
            )
        numbers = _DRAWS + 4 * legs[:, None] + np.arange(4)
        drawn = link_uniform(self._seed, "waypoint", devices[:, None], numbers)
        slowest, fastest = self._speeds_mps
        speed = slowest + drawn[:, 3] * (fastest - slowest)
        self._here[devices] = self._there[devices]
        self._there[devices] = self._low[devices] + drawn[:, :3] * self._size[devices]
        metres = np.linalg.norm(self._there[devices] - self._here[devices], axis=1)
        self._departs[devices] = self._arrives[devices] + self._pause_seconds
        self._arrives[devices] = self._departs[devices] + metres / speed
        self._legs[devices] += 1


def _boxes(config: Config, devices: Devices) -> tuple[Float64, Float64]:
    """The lowest and the highest corner of each device's region (K, 3).

    That of a fleet file's region is the box around its devices.
    """
    if config.fleet.file is None:
        by_name = {r.name: np.array([r.x, r.y, r.z], float) for r in config.fleet.regions}
    else:
        by_name = {}
        for name in set(devices.regions):
            own = devices.positions[[one == name for one in devices.regions]]
            by_name[name] = np.stack([own.min(axis=0), own.max(axis=0)], axis=1)
    boxes = np.array([by_name[name] for name in devices.regions])
    return boxes[:, :, 0], boxes[:, :, 1]
