"""SCAFFOLD: control variates remove the drift of devices with unlike data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.arrays import Float32
from camu.planning.codecs import Raw
from camu.planning.groups import Groups, make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.schemes.nova import gradient_steps
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class Scaffold(Scheme):
    """Devices step along g - c_i + c, where c_i estimates their own gradient and c the mean one."""

    local_updates: int = 2
    name: ClassVar[str] = "scaffold"
    family: ClassVar[str] = "drift"
    citation: ClassVar[str] = "Karimireddy et al., SCAFFOLD, ICML 2020"
    simplified: ClassVar[tuple[str, ...]] = (
        "everyone takes part in every round; the server's step size is 1",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "control variates follow option II and are weighted by data size, as the models are",
        "noise of the uplink acts on the model alone; the second vector is charged",
    )

    def groups(self, world: World) -> Groups:
        """Every device for itself."""
        return single_devices(world)

    def plan(self, world: World) -> Plan:
        """Each unit sends its model and its control variate."""
        groups = self.groups(world)
        weights = groups.sample_weights
        return make_plan(self, groups, weights, self.local_updates, codec=Raw(copies=2))

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        """c - c_i, nothing in the first round."""
        if "own" not in state:
            return None
        correction: Float32 = state["mean"] - state["own"][unit]
        return correction

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean update; c_i becomes c_i - c + (x - y_i) / (K eta)."""
        q, units = view.weights.parameters.size, view.plan.units
        own = state.setdefault("own", np.zeros((len(units), q), np.float32))
        mean = state.setdefault("mean", np.zeros(q, np.float32))
        rate = view.world.config.training.learning_rate
        change = np.zeros(q)
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            length = gradient_steps(view.world, units[arrival.unit]) * rate
            step = -mean - arrival.update / np.float32(length)
            own[arrival.unit] += step
            change += arrival.weight * step
        state["mean"] = (mean + change).astype(np.float32)
        return super().aggregate(view, state)
