"""Other steps of the server: momentum, Adam, and a learning rate of its own."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.planning.groups import make_plan, single_devices
from camu.schemes.aggregation import with_momentum
from camu.schemes.contract import (
    Count,
    Plan,
    Positive,
    PositiveShare,
    Scheme,
    Share,
    State,
    View,
    Weights,
    World,
)
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class FedAvgM(LocalSgd):
    """Local SGD whose server keeps a velocity: v <- momentum v + mean update, x <- x + rate v."""

    momentum: Share = 0.9
    server_rate: Positive = 1.0
    name = "fedavgm"
    family = "server"
    tunable = {
        "momentum": [0.5, 0.7, 0.9],
        "server_rate": [0.1, 0.3, 1.0],
        "training.server_momentum": None,  # this scheme's is its own
    }
    citation = "Hsu, Qi, Brown, Measuring the effects of non-identical data distribution, 2019"
    simplified = ["everyone takes part; no Nesterov form"]
    choices = []

    def aggregate(self, view: View, state: State) -> Weights:
        """The velocity takes the place of the mean update."""
        return with_momentum(
            view, state, super().aggregate(view, state), self.momentum, self.server_rate
        )


@dataclass(frozen=True)
class FedAdam(LocalSgd):
    """Local SGD whose server treats the mean update as a gradient and takes an Adam step."""

    server_rate: Positive = 0.03
    beta1: Share = 0.9
    beta2: Share = 0.99
    adaptivity: Positive = 1e-3  # tau
    name = "fedadam"
    family = "server"
    tunable = {"server_rate": (0.001, 0.1, "log")}
    citation = "Reddi et al., Adaptive federated optimization, ICLR 2021"
    simplified = ["everyone takes part"]
    choices = [
        "the server's rate is 0.03, near the best of the authors' searches, which are per task",
        "no bias correction, as in the paper; v starts at tau^2",
    ]

    def aggregate(self, view: View, state: State) -> Weights:
        """m and v follow the mean update d: x <- x + rate m / (sqrt(v) + tau)."""
        mean = super().aggregate(view, state)
        here = view.weights.parameters.astype(np.float64)
        d = mean.parameters - here
        first = state.get("first", np.zeros_like(d))
        second = state.get("second", np.full_like(d, self.adaptivity**2))
        state["first"] = self.beta1 * first + (1 - self.beta1) * d
        state["second"] = self.beta2 * second + (1 - self.beta2) * np.square(d)
        step = state["first"] / (np.sqrt(state["second"]) + self.adaptivity)
        return mean.with_parameters(here + self.server_rate * step)


@dataclass(frozen=True)
class TwoSided(Scheme):
    """Devices step at their rate, and the server moves by its own rate times the mean update."""

    local_updates: Count = 2  # K
    share: PositiveShare = 0.5  # n / m
    server_rate: Positive = 1.0  # eta; that of the devices, eta_L, is training.learning_rate
    sample_weights: bool = False  # weights by data size; with server_rate = 1 this is FedAvg
    name = "two-sided"
    family = "server"
    tunable = {
        "local_updates": (1, 20, "log"),
        "share": (0.1, 1.0, "log"),
        "server_rate": [0.5, 1.0, 1.5],
    }
    citation = (
        "Yang, Fang, Liu, Achieving linear speedup with partial worker participation, ICLR 2021"
    )
    choices = ["devices are drawn without replacement"]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        even = np.full(len(groups), 1 / len(groups))
        weights = groups.sample_weights if self.sample_weights else even
        return make_plan(self, groups, weights, self.local_updates)

    def select(self, view: View, state: State) -> Iterable[int]:
        return view.draw(self.share)

    def aggregate(self, view: View, state: State) -> Weights:
        """x <- x + eta times the mean of the updates."""
        mean = super().aggregate(view, state)
        here = view.weights.parameters.astype(np.float64)
        return mean.with_parameters(here + self.server_rate * (mean.parameters - here))
