"""Batteries: how much energy each device has left, and who can still pay for a round.

A device that cannot pay for its part in a round is empty and does not start. It takes no part any
more, unless it harvests energy and can pay again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.planning.costs import Costs, Spending, device_spending
from camu.planning.harvest import Harvest
from camu.planning.reduced import Reduction
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
        self._reduction = Reduction(world.links.uplink_gain)

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
        while units := self._reduction.without(units, away):
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
