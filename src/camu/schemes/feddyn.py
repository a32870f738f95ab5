"""FedDyn: a regulariser that follows the devices makes their optima and the global one agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.arrays import Float32
from camu.learning.job import LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class FedDyn(Scheme):
    """Devices minimise F_k(w) - <g_k, w> + (a / 2) ||w - w_global||^2, g_k follows grad F_k."""

    local_updates: int = 2
    strength: float = 0.1  # alpha; the authors use 0.01 to 0.1
    name: ClassVar[str] = "feddyn"
    family: ClassVar[str] = "drift"
    citation: ClassVar[str] = "Acar et al., FedDyn, ICLR 2021"
    simplified: ClassVar[tuple[str, ...]] = (
        "a few SGD steps in place of each device's exact minimum; everyone takes part",
    )
    choices: ClassVar[tuple[str, ...]] = ("means by data size; the paper's devices are equal",)

    def plan(self, world: World) -> Plan:
        """One device per unit with the proximal term."""
        groups, rule = single_devices(world), LocalRule(proximal=self.strength)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        """-g_k, nothing in the first round."""
        return -state["own"][unit] if "own" in state else None

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean model minus h / a; g_k and h move against the updates."""
        q = view.weights.parameters.size
        own = state.setdefault("own", np.zeros((len(view.plan.units), q), np.float32))
        h = state.get("h", np.zeros(q))
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            own[arrival.unit] -= np.float32(self.strength) * arrival.update
            h = h - self.strength * arrival.weight * arrival.update.astype(np.float64)
        state["h"] = h
        mean = super().aggregate(view, state)
        return mean.with_parameters(mean.parameters - h / self.strength)
