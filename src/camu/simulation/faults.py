"""What goes wrong in a round: absent devices, failing leaders, corrupt updates."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from camu.errors import InputError
from camu.planning.plan import Plan, Unit
from camu.planning.reduced import with_members
from camu.seeding import derive
from camu.world import World


@dataclass(frozen=True)
class Attendance:
    """The units of one round as they take part, and what went wrong.

    A unit without some of its members has their weights shared among the others, and another
    leader if its own is missing.
    """

    units: Mapping[int, Unit]  # by their number in the plan
    corrupt: Mapping[int, str]  # units whose update will be "nan" or "huge"
    absent: int  # devices
    leader_failures: int


@dataclass(frozen=True, eq=False)
class Faults:
    """Draws the faults of each round from the world's seed and configuration."""

    world: World
    trace: Mapping[int, list[int]]  # absent devices by round, from 1

    @classmethod
    def of(cls, world: World) -> Faults:
        """The faults that the configuration asks for."""
        path = world.config.fleet.dropout_trace
        return cls(world, _read_trace(Path(path), world) if path else {})

    def attend(self, plan: Plan, units: list[int], round_: int) -> Attendance:
        """Which of these units take part in a round, and how."""
        fleet, seed = self.world.config.fleet, self.world.seed
        if not (
            self.trace
            or fleet.dropout_probability
            or fleet.leader_failure_probability
            or fleet.corrupt_probability
        ):
            return Attendance({unit: plan.units[unit] for unit in units}, {}, 0, 0)
        count = self.world.devices.count
        absent = derive(seed, "dropout", round_).numpy().random(count) < fleet.dropout_probability
        absent[self.trace.get(round_ + 1, [])] = True
        # Drawn per device, so that a device fails in the same rounds whatever unit it leads.
        fails = (
            derive(seed, "leader-failure", round_).numpy().random(count)
            < fleet.leader_failure_probability
        )
        corrupts = derive(seed, "corrupt", round_).numpy().random((count, 2))
        missing, failures = 0, 0
        present: dict[int, Unit] = {}
        corrupt: dict[int, str] = {}
        for number in units:
            unit = plan.units[number]
            missing += int(absent[list(unit.members)].sum())
            # A failed leader takes no part: it neither trains nor sends in this round.
            failed = bool(fails[unit.leader] and not absent[unit.leader])
            failures += failed
            there = [k for k in unit.members if not absent[k] and not (failed and k == unit.leader)]
            if there:
                present[number] = with_members(unit, there, self.world.links.uplink_gain)
                if corrupts[unit.leader, 0] < fleet.corrupt_probability:
                    corrupt[number] = "nan" if corrupts[unit.leader, 1] < 0.5 else "huge"
        return Attendance(present, corrupt, missing, failures)


def _read_trace(path: Path, world: World) -> dict[int, list[int]]:
    """Rows `round,device`: rounds count from 1, devices go by their id."""
    place = {name: index for index, name in enumerate(world.devices.ids)}
    rows: dict[int, list[int]] = {}
    try:
        lines = list(csv.reader(path.read_text("utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"fleet.dropout_trace = {path}: cannot be read ({error})") from None
    if not lines or [cell.strip() for cell in lines[0]] != ["round", "device"]:
        raise InputError(f"{path}: row 1: the header must be `round,device`")
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        if len(line) != 2 or not line[0].strip().isdigit() or int(line[0]) < 1:
            raise InputError(f"{path}: row {number}: write a round from 1 and a device id")
        if line[1].strip() not in place:
            raise InputError(f"{path}: row {number}, column device: no device `{line[1].strip()}`")
        rows.setdefault(int(line[0]), []).append(place[line[1].strip()])
    return rows
