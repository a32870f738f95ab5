"""A scheme's plan in a world and what its rounds cost, by a dry run."""

from __future__ import annotations

from dataclasses import dataclass

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

    @classmethod
    def of(cls, world: World, scheme: Scheme | None = None) -> DryPlan:
        """The plan of a scheme, or of the configured one, in this world."""
        own = make_scheme(world.config) if scheme is None else scheme
        plan = plans.plan(own, world)
        return cls(world, own, plan, round_cost(world, own, plan, MOST_ROUNDS))

    def bill(self, rounds: float) -> Bill:
        """What so many rounds cost, with the pilot before the first one."""
        cost = self.cost
        return Bill(
            cost.pilot_seconds + rounds * cost.seconds,
            cost.pilot_joules + rounds * cost.joules,
            rounds * cost.megabytes,
        )

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
