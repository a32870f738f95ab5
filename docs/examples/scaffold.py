"""SCAFFOLD: control variates remove the drift of devices with unlike data."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import camu
from camu.learning.weights import Weights
from camu.schemes import Raw, State, View


@dataclass(frozen=True)
class Scaffold(camu.Scheme):
    """Devices step along g - c_i + c, where c_i estimates their own gradient and c the mean one."""

    local_updates: int = 5
    citation: ClassVar[str] = "Karimireddy et al., ICML 2020"

    def plan(self, world: camu.World) -> camu.Plan:
        """One device per unit; each sends its model and its control variate."""
        groups = camu.single_devices(world)
        weights = groups.sample_weights
        return camu.make_plan(self, groups, weights, self.local_updates, codec=Raw(copies=2))

    def correction(self, view: View, state: State, unit: int) -> np.ndarray | None:
        """c - c_i, nothing in the first round."""
        if "own" not in state:
            return None
        correction: np.ndarray = state["mean"] - state["own"][unit]
        return correction

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean update; c_i becomes c_i - c + (x - y_i) / (K eta)."""
        q, units = view.weights.parameters.size, view.plan.units
        own = state.setdefault("own", np.zeros((len(units), q), np.float32))
        mean = state.setdefault("mean", np.zeros(q, np.float32))
        rate = view.world.config.training.learning_rate
        change = np.zeros(q)
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            steps = units[arrival.unit].local_updates * rate
            step = -mean - arrival.update / np.float32(steps)
            own[arrival.unit] += step
            change += arrival.weight * step
        state["mean"] = (mean + change).astype(np.float32)
        return super().aggregate(view, state)
