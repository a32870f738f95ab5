"""FedExP: the server goes further where the updates of the devices disagree."""

from dataclasses import dataclass

import numpy as np

from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import NonNegative, Plan, State, View, Weights, World
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class FedExp(LocalSgd):
    """Local SGD whose server extrapolates: its rate is max(1, mean ||d||^2 / (2 ||mean d||^2))."""

    small: NonNegative = 1e-3  # epsilon, added to the square of the mean update
    name = "fedexp"
    family = "server"
    tunable = {"small": [1e-3, 3e-3, 1e-2, 3e-2, 1e-1]}
    citation = "Jhunjhunwala, Wang, Joshi, FedExP, ICLR 2023"
    simplified = ["the last model is the result; the original takes the mean of the last two"]
    choices = ["everyone takes part; all devices count the same, as in the original"]

    def plan(self, world: World) -> Plan:
        groups, rule = single_devices(world), self.rule()
        even = np.full(len(groups), 1 / len(groups))
        return make_plan(self, groups, even, self.local_updates, rule=rule)

    def aggregate(self, view: View, state: State) -> Weights:
        """x <- x + max(1, sum ||d_i||^2 / (2 M (||mean d||^2 + epsilon))) mean d."""
        mean = super().aggregate(view, state)
        here = view.weights.parameters.astype(np.float64)
        step = mean.parameters - here
        squares = [float(np.square(one.update, dtype=np.float64).sum()) for one in view.arrived]
        length = float(step @ step) + self.small
        rate = max(1.0, sum(squares) / (2 * len(squares) * length)) if length > 0 else 1.0
        return mean.with_parameters(here + rate * step)
