"""Batteries: how much energy each device has left, who can pay for a round, and how long they last.

A device that cannot pay for its part in a round is empty and does not start. It takes no part any
more, unless it harvests energy and can pay again. The others of its unit go on, under another
leader if need be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.planning.costs import Costs, Spending, device_spending
from camu.planning.harvest import Harvest
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.world import World


class Batteries:
    """The charge of every device (K,); a device without a battery is on mains power.

    Attributes:
        charge_joules: what is left; infinite on mains power.
        empty: whether a device could not pay for its part when it was last asked.
        empty_round: rounds that were done when a device was first found empty; -1 before that.
    """

    def __init__(self, world: World) -> None:
        battery = world.devices.battery_joules
        self.capacity_joules = np.where(np.isnan(battery), np.inf, battery)
        self.charge_joules = self.capacity_joules.copy()
        self.empty: npt.NDArray[np.bool_] = np.zeros(len(battery), dtype=bool)
        self.empty_round: Int64 = np.full(len(battery), -1)
        self.exist = bool(np.isfinite(self.capacity_joules).any())
        self._seconds = 0.0  # until when harvesting is counted
        self._harvest = Harvest(world)
        self._uplink_gain = world.links.uplink_gain
        # By unit: the unit, the members that were there, and the unit with those.
        self._reduced: dict[int, tuple[Unit, list[int], Unit]] = {}

    @property
    def harvesting(self) -> bool:
        """Whether a device with a battery ever harvests."""
        return bool((self._harvest.devices & np.isfinite(self.capacity_joules)).any())

    @property
    def gone(self) -> npt.NDArray[np.bool_]:
        """The devices that are empty for good (K,)."""
        return self.empty & ~self._harvest.devices

    def harvest_until(self, seconds: float) -> None:
        """Add what was harvested since the last call."""
        if self.exist:
            self._harvest.fill(self.charge_joules, self.capacity_joules, self._seconds, seconds)
        self._seconds = max(self._seconds, seconds)

    def since(self, seconds: float) -> float:
        """How much time has passed at this virtual second since harvesting was last counted."""
        return max(0.0, seconds - self._seconds)

    def rest(self, watts: Float64, seconds: float) -> Float64:
        """Let time pass until this virtual second while devices draw this power (K,).

        Returns the joules that they drew; an empty battery gives no more than is harvested.
        """
        drawn = np.zeros(len(watts))
        for begin, end, harvested in self._harvest.stretches(self._seconds, seconds):
            there = self.charge_joules + harvested * (end - begin)
            paid = np.minimum(watts * (end - begin), there)
            self.charge_joules = np.minimum(there - paid, self.capacity_joules)
            drawn += paid
        self._seconds = max(self._seconds, seconds)
        return drawn

    def admit(
        self,
        units: Mapping[int, Unit],
        price: Callable[[Mapping[int, Unit]], Costs],
        round_: int,
    ) -> tuple[Mapping[int, Unit], Costs | None]:
        """The units with those members that can pay for this round, and what they cost.

        A missing member changes what the others pay, so this is repeated until all can pay.
        """
        if not self.exist:
            return units, price(units) if units else None
        away = self.gone
        while units := self._without(units, away):
            costs = price(units)
            spending = spending_of(units, costs)
            poor = spending.joules > self.charge_joules[spending.devices]
            if not poor.any():
                self.empty[spending.devices] = False
                return units, costs
            found = spending.devices[poor]
            away[found] = self.empty[found] = True
            self.mark(found, round_)
        return units, None

    def _without(
        self, units: Mapping[int, Unit], away: npt.NDArray[np.bool_]
    ) -> Mapping[int, Unit]:
        """These units without the devices that are away (K,); empty units are left out.

        A unit that lost the same members before is not made again, so that its price is known.
        """
        gone = frozenset(np.flatnonzero(away).tolist())
        if not gone:
            return units
        found = {}
        for number, unit in units.items():
            if gone.isdisjoint(unit.members):
                found[number] = unit
            elif there := [device for device in unit.members if device not in gone]:
                known = self._reduced.get(number)
                if known is None or known[0] is not unit or known[1] != there:
                    known = unit, there, with_members(unit, there, self._uplink_gain)
                    self._reduced[number] = known
                found[number] = known[2]
        return found

    def move_to(self, world: World) -> None:
        """Choose leaders in place of empty ones by the uplinks of this world from now on."""
        if self._uplink_gain is not world.links.uplink_gain:
            self._uplink_gain = world.links.uplink_gain
            self._reduced.clear()

    def mark(self, devices: Int64, rounds: npt.ArrayLike) -> None:
        """Note after how many rounds these devices were empty, if it is the first time."""
        before = self.empty_round[devices]
        self.empty_round[devices] = np.where(before < 0, rounds, before)

    def draw(self, devices: Int64, joules: Float64) -> None:
        """Take this energy from these devices, each named once."""
        if self.exist:
            self.charge_joules[devices] = np.maximum(self.charge_joules[devices] - joules, 0.0)

    def state(self) -> dict[str, npt.NDArray[np.float64 | np.int64 | np.bool_]]:
        """Everything that a checkpoint needs, as arrays."""
        return {
            "charge_joules": self.charge_joules,
            "empty": self.empty,
            "empty_round": self.empty_round,
            "seconds": np.array([self._seconds]),
        }

    def restore(self, state: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Continue from what `state` gave."""
        seconds = float(state["seconds"][0])
        self.harvest_until(seconds)  # brings the trace to this time
        self.charge_joules = state["charge_joules"].copy()
        self.empty = state["empty"].astype(bool)
        self.empty_round = state["empty_round"].astype(np.int64)


def spending_of(units: Mapping[int, Unit], costs: Costs) -> Spending:
    """What a round of these units costs each of their members."""
    own = units.values()
    updates = np.array([float(unit.local_updates) for unit in own])
    members, leaders = [unit.members for unit in own], [unit.leader for unit in own]
    return device_spending(members, leaders, updates, costs)


def with_members(unit: Unit, there: Sequence[int], uplink_gain: Float64) -> Unit:
    """A unit with some of its members; the best uplink leads if the leader is missing.

    The weights of the missing members are shared among the others.
    """
    share = dict(zip(unit.members, unit.member_weights, strict=True))
    total = sum(share[device] for device in there)
    weights = (
        tuple(share[device] / total for device in there)
        if total > 0
        else (1.0 / len(there),) * len(there)
    )
    leader = unit.leader
    if leader not in there:
        leader = max(there, key=lambda device: uplink_gain[device])
    return replace(unit, members=tuple(there), member_weights=weights, leader=leader, dvfs=None)


@dataclass(frozen=True, eq=False)
class Lifetime:
    """When each device is empty, and who carries the energy of a round.

    Attributes:
        rounds: rounds that the forecast covers.
        empty_round: rounds that are done when a device is first empty (K,); -1: not within these.
        empty_seconds: the same moment in virtual seconds (K,); nan: not within these.
        battery: whether a device has a battery (K,).
        round_joules: what a round costs each device on average (K,), of the first rounds.
        round_seconds: how long it is from the start of one of these to that of the next.
    """

    rounds: int
    empty_round: Int64
    empty_seconds: Float64
    battery: np.typing.NDArray[np.bool_]
    round_joules: Float64
    round_seconds: float

    @property
    def share(self) -> Float64:
        """The share of each device in the energy of a round (K,)."""
        total = float(self.round_joules.sum())
        return np.asarray(self.round_joules / total if total > 0 else self.round_joules)

    @property
    def fairness(self) -> float:
        """Jain's index of the joules per device: 1 if all pay the same, 1/K if one pays all."""
        return jain(self.round_joules)

    def milestones(self) -> dict[str, int | None]:
        """The first, the median and the last device to be empty, of those with a battery.

        None where it is not empty within the rounds of the forecast.
        """
        found = np.flatnonzero(self.empty_round >= 0)
        order = found[np.argsort(self.empty_round[found], kind="stable")].tolist()
        count = int(self.battery.sum())
        places = {"first": 0, "median": (count - 1) // 2, "last": count - 1}
        return {
            name: order[place] if place < len(order) else None for name, place in places.items()
        }

    def to_dict(self, plan: Plan, names: list[int] | list[str]) -> dict[str, Any]:
        """The forecast as plain data, with these names of the devices."""

        def moment(device: int) -> dict[str, Any]:
            return {
                "device": names[device],
                "rounds": int(self.empty_round[device]),
                "seconds": float(self.empty_seconds[device]),
            }

        share = self.share
        return {
            "rounds": self.rounds,
            "empty": {
                name: None if device is None else moment(device)
                for name, device in self.milestones().items()
            },
            "jain": self.fairness,
            "leaders": [
                {
                    "device": names[unit.leader],
                    "share": float(share[unit.leader]),
                    "empty": moment(unit.leader) if self.empty_round[unit.leader] >= 0 else None,
                }
                for unit in plan.units
            ],
        }


def jain(values: Float64) -> float:
    """Jain's fairness index (sum x)^2 / (n sum x^2); 1 for no or equal values."""
    squares = float(np.square(values).sum()) * len(values)
    return float(values.sum()) ** 2 / squares if squares > 0 else 1.0
