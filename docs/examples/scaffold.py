"""SCAFFOLD: control variates remove the drift of devices with unlike data."""

from dataclasses import dataclass

import numpy as np

import camu
from camu.learning.weights import Weights
from camu.schemes import Raw, State, View


@dataclass(frozen=True)
class Scaffold(camu.Scheme):
    """Devices step along g - c_i + c, where c_i estimates their own gradient and c the mean one."""

    local_updates: int = 5
    citation = "Karimireddy et al., ICML 2020"

    def plan(self, world: camu.World) -> camu.Plan:
        """One device per unit; each sends its model and its control variate."""
        groups = camu.single_devices(world)
        weights = groups.sample_weights
        return camu.make_plan(self, groups, weights, self.local_updates, codec=Raw(copies=2))

    def correction(self, view: View, state: State, unit: int) -> np.ndarray | None:
        """c - c_i, nothing in the first round."""
        if "mean" not in state:
            return None
        correction: np.ndarray = state["mean"] - view.kept.get(unit, 0)
        return correction

    def keep(
        self, view: View, state: State, unit: int, change: np.ndarray, kept: np.ndarray | None
    ) -> np.ndarray:
        """c_i becomes c_i - c + (x - y_i) / (K eta)."""
        steps = view.plan.units[unit].local_updates
        rate = view.world.config.training.learning_rate
        before = 0 if kept is None else kept
        after: np.ndarray = before - state.get("mean", 0) - change / np.float32(steps * rate)
        return after

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean update; c is the mean of all c_i."""
        mean = np.zeros(view.weights.parameters.size)
        for unit in sorted(view.kept):
            mean += view.plan.units[unit].weight * view.kept[unit]
        state["mean"] = mean.astype(np.float32)
        return super().aggregate(view, state)
