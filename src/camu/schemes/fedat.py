"""FedAT: tiers of devices alike in speed; slower tiers count as much as faster ones arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import State, View
from camu.schemes.tiers import Tiered, tiers_by_time
from camu.world import World


@dataclass(frozen=True)
class FedAt(Tiered):
    """Tiers are synchronous inside and asynchronous between; frequent tiers get small weights."""

    local_updates: int = 2
    tiers: int = 3
    name: ClassVar[str] = "fedat"
    family: ClassVar[str] = "asynchronous"
    citation: ClassVar[str] = "Chai et al., FedAT, SC 2021"
    simplified: ClassVar[tuple[str, ...]] = (
        "everyone in a tier takes part; no compression and no proximal term",
        "a tier starts its next round at the next aggregation",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "tiers have equally many devices, by computing and sending time at mean channels",
        "scheme.aggregation does not apply",
    )

    def plan(self, world: World) -> Plan:
        """One device per unit."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights, self.local_updates)

    def tiers_of(self, plan: Plan) -> Int64:
        """Equally many devices in each."""
        return tiers_by_time(plan, min(self.tiers, len(plan.units)))

    def combine(
        self, view: View, state: State, tier: int, model: Float64, here: Float64
    ) -> Float64:
        """w = sum_m (T_{M+1-m} / T) w_m, where T_m counts the rounds of tier m."""
        if "models" not in state:
            state["models"] = np.tile(here, (len(state["weights"]), 1))
            state["rounds"] = np.zeros(len(state["weights"]))
        state["models"][tier] = model
        state["rounds"][tier] += 1
        shares = state["rounds"][::-1] / state["rounds"].sum()
        return np.asarray(shares @ state["models"])
