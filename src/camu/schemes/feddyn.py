"""FedDyn: a regulariser that follows the devices makes their optima and the global one agree."""

from dataclasses import dataclass

import numpy as np

from camu.arrays import AnyArray, Float32
from camu.learning.job import LocalRule
from camu.schemes.contract import Positive, State, View, Weights
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class FedDyn(LocalSgd):
    """Devices minimise F_k(w) - <g_k, w> + (a / 2) ||w - w_global||^2, g_k follows grad F_k."""

    strength: Positive = 0.1  # alpha; the authors use 0.01 to 0.1
    name = "feddyn"
    tunable = {"strength": (0.001, 1.0, "log")}
    family = "drift"
    citation = "Acar et al., FedDyn, ICLR 2021"
    simplified = ["a few SGD steps in place of each device's exact minimum; everyone takes part"]
    choices = ["means by data size; the paper's devices are equal"]

    def rule(self) -> LocalRule:
        return LocalRule(proximal=self.strength)

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        """-g_k, nothing in the first round."""
        return -view.kept[unit] if unit in view.kept else None

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> Float32:
        """g_k moves against the device's own change."""
        before = 0 if kept is None else kept
        after: Float32 = before - np.float32(self.strength) * change
        return after

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean model minus h / a; h moves against the updates as they were received."""
        h = state.get("h", np.zeros(view.weights.parameters.size))
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            h = h - self.strength * arrival.weight * arrival.update.astype(np.float64)
        state["h"] = h
        mean = super().aggregate(view, state)
        return mean.with_parameters(mean.parameters - h / self.strength)
