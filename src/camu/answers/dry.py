"""A scheme's plan in a world and what its rounds cost, by a dry run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from camu.arrays import Float64
from camu.planning.central import Bill
from camu.planning.plan import Plan
from camu.schemes import Scheme, make_scheme, plans
from camu.simulation.dry_run import RoundCost, round_cost
from camu.world import World

MOST_ROUNDS = 20  # of a dry run where rounds differ


@dataclass(frozen=True, eq=False)
class DryPlan:
    """A plan, and what a round of it costs."""

    world: World
    scheme: Scheme
    plan: Plan
    cost: RoundCost
    above_resting: bool = False  # its joules are what devices draw above resting

    @classmethod
    def of(cls, world: World, scheme: Scheme | None = None, above_resting: bool = False) -> DryPlan:
        """The plan of a scheme, or of the configured one, in this world.

        Of rounds at an interval (run.every_seconds) the energy is what devices draw above resting,
        as they would without learning.
        """
        own = make_scheme(world.config) if scheme is None else scheme
        plan = plans.plan(own, world)
        above = above_resting or world.config.run.every_seconds is not None
        return cls(world, own, plan, round_cost(world, own, plan, MOST_ROUNDS), above)

    @property
    def round_joules(self) -> float:
        """What a round costs all devices."""
        if not self.above_resting:
            return self.cost.joules
        resting = self.cost.seconds * float(self.world.devices.resting_watts.sum())
        return max(0.0, self.cost.joules - resting)

    def bill(self, rounds: float) -> Bill:
        """What so many rounds cost, with the pilot before the first one."""
        cost = self.cost
        return Bill(
            cost.pilot_seconds + rounds * cost.seconds,
            cost.pilot_joules + rounds * self.round_joules,
            rounds * cost.megabytes,
        )

    def at_once(self) -> DryPlan:
        """The same where rounds follow each other: how long they work, without what is between."""
        config = self.world.config
        if config.run.every_seconds is None:
            return self
        alone = replace(self.world, config=config.replace({"run.every_seconds": None}))
        return DryPlan.of(alone, above_resting=True)

    @property
    def device_megabytes(self) -> Float64:
        """What each device sends in a round of all units, as planned (K,)."""
        sent = np.zeros(self.world.devices.count)
        model = self.world.config.radio.bits_per_parameter * self.plan.parameters
        for unit in self.plan.units:
            if len(unit.members) > 1:
                sent[list(unit.members)] += unit.local_updates * model
            sent[unit.leader] += unit.payload_bits
        return sent / 8e6
