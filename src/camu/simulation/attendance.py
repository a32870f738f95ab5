"""What goes wrong in a round: absent devices, failing leaders, corrupt updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.planning.batteries import with_members
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.seeding import derive
from camu.simulation.run import Run
from camu.world import World
from camu.world.tables import Table, read_trace

LATEST_ROUND = 10**9
LATEST_SECOND = 1e15


@dataclass(frozen=True)
class Attendance:
    """The units of one round as they take part, and what went wrong.

    A unit without some of its members has their weights shared among the others, and another
    leader if its own is missing.
    """

    units: Mapping[int, Unit]  # by their number in the plan
    corrupt: Mapping[int, str]  # units whose update will be "nan" or "huge"
    absent: tuple[int, ...]  # devices of the selected units
    leader_failures: int


@dataclass(frozen=True, eq=False)
class Faults:
    """Draws the faults of each round from the world's seed and configuration."""

    world: World
    trace: Mapping[int, list[int]]  # absent devices by round, from 1
    availability: Availability

    @classmethod
    def of(cls, world: World) -> Faults:
        """The faults that the configuration asks for."""
        return cls(world, read_absences(world), read_availability(world))

    def wait_to_begin(self, run: Run) -> None:
        """Let time pass until a round may begin, and a device is available.

        Where updates are on their way, it does not wait for devices.
        """
        every = self.world.config.run.every_seconds
        begin = next_multiple(run.clock.now_seconds, every)
        while not run.in_flight and (opens := self.availability.opens_seconds(begin)) > begin:
            begin = next_multiple(opens, every)
        run.clock.wait_until(begin)

    def attend(self, plan: Plan, units: list[int], round_: int, seconds: float) -> Attendance:
        """Which of these units take part in a round that starts at this time, and how."""
        faults, seed = self.world.config.faults, self.world.seed
        if not (
            self.trace
            or self.availability
            or faults.dropout_probability
            or faults.leader_failure_probability
            or faults.corrupt_probability
        ):
            return Attendance({unit: plan.units[unit] for unit in units}, {}, (), 0)
        count = self.world.devices.count
        absent = derive(seed, "dropout", round_).numpy().random(count) < faults.dropout_probability
        absent[self.trace.get(round_ + 1, [])] = True
        absent |= ~self.availability.present(seconds)
        # Drawn per device, so that a device fails in the same rounds whatever unit it leads.
        fails = (
            derive(seed, "leader-failure", round_).numpy().random(count)
            < faults.leader_failure_probability
        )
        corrupts = derive(seed, "corrupt", round_).numpy().random((count, 2))
        missing: list[int] = []
        failures = 0
        present: dict[int, Unit] = {}
        corrupt: dict[int, str] = {}
        for number in units:
            unit = plan.units[number]
            missing += [k for k in unit.members if absent[k]]
            # A failed leader takes no part: it neither trains nor sends in this round.
            failed = bool(fails[unit.leader] and not absent[unit.leader])
            failures += failed
            there = [k for k in unit.members if not absent[k] and not (failed and k == unit.leader)]
            if there:
                present[number] = with_members(unit, there, self.world.links.uplink_gain)
                if corrupts[unit.leader, 0] < faults.corrupt_probability:
                    corrupt[number] = "nan" if corrupts[unit.leader, 1] < 0.5 else "huge"
        return Attendance(present, corrupt, tuple(missing), failures)


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


def next_multiple(seconds: float, every: float | None) -> float:
    """The first multiple from this time on; the time itself where rounds follow each other."""
    if every is None:
        return seconds
    # A time that is a multiple but for rounding is one.
    return max(seconds, math.ceil(seconds / every * (1 - 1e-12)) * every)


def read_availability(world: World) -> Availability:
    """The intervals of faults.availability_trace: rows `start,end,device`."""
    path = world.config.faults.availability_trace
    if path is None:
        nothing = np.empty(0)
        return Availability(world.devices.count, np.empty(0, np.int64), nothing, nothing)
    table = read_trace(path, "faults.availability_trace", ("start", "end", "device"))
    start, end = table.floats("start"), table.floats("end")
    for column, seconds in (("start", start), ("end", end)):
        rule = f"write virtual seconds from 0 to {LATEST_SECOND:g}"
        table.refuse(~((seconds >= 0) & (seconds <= LATEST_SECOND)), column, rule)
    table.refuse(end <= start, "end", "it is not after the start; write a later second")
    devices = _devices(table, world)
    known = devices >= 0
    return Availability(world.devices.count, devices[known], start[known], end[known])


def read_absences(world: World) -> dict[int, list[int]]:
    """The absent devices by round, from 1, of faults.dropout_trace: rows `round,device`."""
    path = world.config.faults.dropout_trace
    found: dict[int, list[int]] = {}
    if path is not None:
        table = read_trace(path, "faults.dropout_trace", ("round", "device"))
        rounds = table.floats("round")
        good = (rounds >= 1) & (rounds <= LATEST_ROUND) & (rounds == np.floor(rounds))
        table.refuse(~good, "round", f"write a whole number from 1 to {LATEST_ROUND}")
        for number, device in zip(rounds.tolist(), _devices(table, world).tolist(), strict=True):
            if device >= 0:
                found.setdefault(int(number), []).append(device)
    return found


def _devices(table: Table, world: World) -> Int64:
    """The device of each row, -1 where it was left out of the fleet; others are refused."""
    place = {name: index for index, name in enumerate(world.devices.ids)}
    names, known = table.texts("device"), {*place, *world.left_out}
    unknown = np.array([name not in known for name in names], dtype=np.bool_)
    table.refuse(unknown, "device", "no device is called so; write an id of the fleet")
    return np.array([place.get(name, -1) for name in names], dtype=np.int64)
