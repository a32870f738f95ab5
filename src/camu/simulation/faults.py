"""What goes wrong in a round: absent devices, failing leaders, corrupt updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from camu.planning.plan import Plan
from camu.planning.reduced import with_members
from camu.planning.unit import Unit
from camu.seeding import derive
from camu.simulation.run import Run
from camu.simulation.traces import Availability, read_absences, read_availability
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
    availability: Availability

    @classmethod
    def of(cls, world: World) -> Faults:
        """The faults that the configuration asks for."""
        return cls(world, read_absences(world), read_availability(world))

    def wait_for_devices(self, run: Run) -> None:
        """Let time pass until a device is available, if none is and no update is on its way."""
        if not run.flights:
            run.clock.wait_until(self.availability.opens_seconds(run.clock.now_seconds))

    def attend(self, plan: Plan, units: list[int], round_: int, seconds: float) -> Attendance:
        """Which of these units take part in a round that starts at this time, and how."""
        fleet, seed = self.world.config.fleet, self.world.seed
        if not (
            self.trace
            or self.availability
            or fleet.dropout_probability
            or fleet.leader_failure_probability
            or fleet.corrupt_probability
        ):
            return Attendance({unit: plan.units[unit] for unit in units}, {}, 0, 0)
        count = self.world.devices.count
        absent = derive(seed, "dropout", round_).numpy().random(count) < fleet.dropout_probability
        absent[self.trace.get(round_ + 1, [])] = True
        absent |= ~self.availability.present(seconds)
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
