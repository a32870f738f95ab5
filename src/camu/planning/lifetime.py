"""How long batteries last under a plan: the same rules as a run, without training.

Fading and faults are left out. Between two changes every round costs the same, so that whole
stretches of rounds are taken in one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.batteries import Batteries, spending_of
from camu.planning.costs import Costs, Spending, send_in_turn
from camu.planning.plan import Plan
from camu.planning.rotation import rotated
from camu.planning.slow_down import full_speed_costs
from camu.planning.unit import Unit
from camu.world import World

MOST_STEPS = 5000  # after so many the forecast ends
EXACT_DEVICES = 1000  # of more devices, several may become empty in one step
_LARGE_STEPS = 20
_LONG_TURNS = 200  # of leaders, before the first device is empty; more are taken together


@dataclass(frozen=True, eq=False)
class Lifetime:
    """When each device is empty, and who carries the energy of a round.

    Attributes:
        rounds: rounds that the forecast covers.
        empty_round: rounds that are done when a device is first empty (K,); -1: not within these.
        empty_seconds: the same moment in virtual seconds (K,); nan: not within these.
        battery: whether a device has a battery (K,).
        round_joules: what the first round costs each device (K,).
    """

    rounds: int
    empty_round: Int64
    empty_seconds: Float64
    battery: np.typing.NDArray[np.bool_]
    round_joules: Float64

    @property
    def share(self) -> Float64:
        """The share of each device in the energy of a round (K,)."""
        total = float(self.round_joules.sum())
        return np.asarray(self.round_joules / total if total > 0 else self.round_joules)

    @property
    def fairness(self) -> float:
        """Jain's index of the joules per device: 1 if all pay the same, 1/K if one pays all."""
        return jain(self.round_joules)

    @property
    def order(self) -> list[int]:
        """The devices that become empty, first to last."""
        found = np.flatnonzero(self.empty_round >= 0)
        return [int(k) for k in found[np.argsort(self.empty_round[found], kind="stable")]]

    def milestones(self) -> dict[str, int | None]:
        """The first, the median and the last device to be empty, of those with a battery.

        None where it is not empty within the rounds of the forecast.
        """
        order, count = self.order, int(self.battery.sum())
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


def forecast_lifetime(plan: Plan, world: World, rounds: int) -> Lifetime:
    """When the batteries of a fleet are empty if it carries out a plan, at mean uplink gains.

    Parameters:
        plan: the plan.
        world: the fleet.
        rounds: where a device harvests, the forecast ends after so many rounds; otherwise it goes
            on until all batteries are empty.

    Returns:
        The forecast. It is exact for up to 1000 devices; of more, twentieths of the fleet leave
        their units together. With leaders in turn it is exact where a device is empty within 200
        turns; more turns are taken together.
    """
    return _Rounds(plan, world, rounds).lifetime()


class _Rounds:
    """The rounds of a forecast, one after the other or many at once."""

    def __init__(self, plan: Plan, world: World, rounds: int) -> None:
        self.plan, self.world = plan, world
        self.batteries = Batteries(world)
        self.most = rounds if self.batteries.harvesting else np.inf
        self.battery = np.isfinite(self.batteries.capacity_joules)
        self.spent = np.zeros(world.devices.count)
        self.empty_seconds = np.full(world.devices.count, np.nan)
        self.first_joules = np.zeros(world.devices.count)
        self.round, self.seconds = 0, 0.0

    def lifetime(self) -> Lifetime:
        for _ in range(MOST_STEPS):
            if self.round >= self.most or not self._step():
                break
        return Lifetime(
            self.round,
            self.batteries.empty_round,
            self.empty_seconds,
            self.battery,
            self.first_joules,
        )

    def _step(self) -> bool:
        """The next rounds; False if nothing changes any more."""
        batteries = self.batteries
        batteries.harvest_until(self.seconds)
        planned = dict(enumerate(self.plan.units))
        units, costs = batteries.admit(planned, self._price, self.round)
        self._note(np.flatnonzero(batteries.empty))
        if costs is None:
            if not batteries.harvesting:
                return False
            self.round, self.seconds = self.round + 1, self.seconds + self.plan.round_seconds
            return True
        spending = spending_of(units, costs)
        if self.round == 0:
            self.first_joules[spending.devices] = spending.joules
        if not self.battery[spending.devices].any():
            return False  # those who are left are on mains power
        self._take(spending, self._count(spending), self._round_seconds(units, costs))
        self._rotate()
        return True

    def _count(self, spending: Spending) -> int:
        """How many rounds to take at once."""
        if self.batteries.harvesting:
            return 1
        count = len(self.spent)
        together = 1 if count <= EXACT_DEVICES else -(-count // _LARGE_STEPS)
        able = self._able(spending)
        able = np.sort(able[np.isfinite(able)])
        rounds = able[min(together, len(able)) - 1]
        clustering = self.world.config.clustering
        if clustering.leader == "rotating":
            every = clustering.rotate_every
            turns = max(1, int(rounds) // (every * _LONG_TURNS))
            rounds = min(rounds, turns * every - self.round % every)
        return max(1, int(rounds))

    def _able(self, spending: Spending) -> Float64:
        """For how many rounds like this one each device can pay."""
        charge = self.batteries.charge_joules[spending.devices]
        with np.errstate(divide="ignore", invalid="ignore"):
            # The small number forgives rounding where a battery holds a whole number of rounds.
            return np.floor(charge / spending.joules * (1 + 1e-12))

    def _take(self, spending: Spending, rounds: int, seconds: float) -> None:
        """Carry out so many equal rounds; a device that cannot pay for all of them drops out."""
        own = np.minimum(self._able(spending), rounds)
        short = own < rounds
        self.batteries.draw(spending.devices, own * spending.joules)
        self.spent[spending.devices] += own * spending.joules
        done = spending.devices[short]
        self.batteries.empty[done] = True
        self.batteries.mark(done, self.round + own[short].astype(np.int64))
        self.empty_seconds[done] = self.seconds + own[short] * seconds
        self.round, self.seconds = self.round + rounds, self.seconds + rounds * seconds

    def _rotate(self) -> None:
        clustering = self.world.config.clustering
        if clustering.leader == "rotating" and self.round % clustering.rotate_every == 0:
            charge, gone = self.batteries.charge_joules, self.batteries.gone
            plan = rotated(self.plan, self.world, charge, self.spent, gone)
            # Prices of the plan count only where nobody can start and time passes.
            self.plan = plan.repriced(self.world) if self.batteries.harvesting else plan

    def _note(self, empty: Int64) -> None:
        """Note when these devices were first empty."""
        new = empty[np.isnan(self.empty_seconds[empty])]
        self.empty_seconds[new] = self.seconds

    def _price(self, units: Mapping[int, Unit]) -> Costs:
        own = list(units.values())
        costs = full_speed_costs(self.world, own, self.plan.parameters)
        return self.plan.slow_costs(costs, own)

    def _round_seconds(self, units: Mapping[int, Unit], costs: Costs) -> float:
        updates = np.array([float(unit.local_updates) for unit in units.values()])
        ready = costs.downlink_seconds + updates * (costs.compute_seconds + costs.gather_seconds)
        if self.plan.access == "ofdma":
            return float((ready + costs.uplink_seconds).max())
        return float(send_in_turn(ready, costs.uplink_seconds).max())
