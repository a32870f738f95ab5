"""Heterogeneous intensity under fading: the counts are decided anew in every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.allocation.latency_gap import minimise_arrival_spread, minimise_latency_gap
from camu.planning.costs import unit_costs
from camu.planning.groups import assess
from camu.planning.plan import Plan
from camu.schemes.contract import State, View
from camu.schemes.hti import HeterogeneousIntensity
from camu.schemes.problem import energy_budget
from camu.world import World


@dataclass(frozen=True)
class HtiDynamic(HeterogeneousIntensity):
    """The counts of `hti`, solved again before every round for the channels of that round."""

    name: ClassVar[str] = "hti-dynamic"
    family: ClassVar[str] = "clusters"
    citation: ClassVar[str] = (
        "after Zeng et al., Heterogeneous training intensity for federated learning, "
        "IEEE TNSE 2022, with an exact solver in place of the reinforcement learning"
    )
    simplified: ClassVar[tuple[str, ...]] = (
        "the channels of a round are known when it starts; the original learns to expect them",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "clusters and the energy of extra updates are those of `hti`",
        "under `tdma` arrivals include the queue for the uplink",
    )

    def plan(self, world: World) -> Plan:
        """The clusters of `hti` with the counts of the first round."""
        return self.decided(super().plan(world), world, 0)

    def revise(self, view: View, state: State) -> Plan | None:
        """The counts of the next round."""
        return self.decided(view.plan, view.world, view.round)

    def decided(self, plan: Plan, world: World, round_: int) -> Plan:
        """The plan with the smallest gap between the arrivals of a round."""
        members, leaders = [u.members for u in plan.units], [u.leader for u in plan.units]
        budget = energy_budget(assess(world, members, leaders), self.max_extra_updates)
        costs = unit_costs(
            world,
            members,
            leaders,
            [unit.power_watts for unit in plan.units],
            [unit.payload_bits for unit in plan.units],
            plan.parameters,
            uplink_gain=world.links.uplink_gain * world.links.fading(round_),
        )
        minimise = minimise_arrival_spread if plan.access == "tdma" else minimise_latency_gap
        extra, _ = minimise(
            costs.compute_seconds + costs.gather_seconds,
            costs.uplink_seconds,
            np.full(len(members), self.max_extra_updates),
            costs.compute_joules + costs.gather_joules,
            budget - plan.with_updates([1] * len(members)).round_joules,
        )
        return plan.with_updates((1 + extra).tolist())
