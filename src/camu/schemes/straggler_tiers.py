"""Tiers whose models are mixed into the global one as they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import State, View
from camu.schemes.tiers import Tiered
from camu.world import World


@dataclass(frozen=True)
class StragglerTiers(Tiered):
    """Devices alike in time form tiers; w <- (1 - b) w + b w_c when a tier c is complete."""

    local_updates: int = 2
    tiers: int = 3
    mixing: float = 1.0  # b0
    name: ClassVar[str] = "straggler-tiers"
    family: ClassVar[str] = "asynchronous"
    citation: ClassVar[str] = (
        "after Liu et al., Adaptive clustering based straggler-aware federated learning (FeDSC), "
        "IEEE TCOMM 2024"
    )
    simplified: ClassVar[tuple[str, ...]] = (
        "tiers are formed once; the original adapts them as resources change",
        "a tier starts its next round at the next aggregation",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "tiers are cut where the times of sorted devices differ most, as a ratio",
        "b = b0 (D_c / D) / sqrt(1 + staleness), as in FedAsync",
        "devices send straight to the server; scheme.aggregation does not apply",
    )

    def plan(self, world: World) -> Plan:
        """One device per unit."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights, self.local_updates)

    def tiers_of(self, plan: Plan) -> Int64:
        """Cut at the largest gaps of log time."""
        seconds = np.log([unit.ready_seconds + unit.uplink_seconds for unit in plan.units])
        order = np.argsort(seconds, kind="stable")
        gaps = np.argsort(-np.diff(seconds[order]), kind="stable")[: self.tiers - 1]
        found = np.zeros(len(order), dtype=np.int64)
        found[order] = np.searchsorted(np.sort(gaps), np.arange(len(order)))
        return found

    def combine(
        self, view: View, state: State, tier: int, model: Float64, here: Float64
    ) -> Float64:
        """Mix the tier's model in by its data and its staleness."""
        staleness = view.round - state["since"][tier]
        b = self.mixing * state["weights"][tier] / np.sqrt(1 + staleness)
        return np.asarray(here + b * (model - here))
