"""FedAsync: each model that arrives is mixed into the global one at once."""

from dataclasses import dataclass

from camu.learning.job import LocalRule
from camu.schemes.aggregation import mix_models
from camu.schemes.contract import NonNegative, PositiveShare, State, View, Weights
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class FedAsync(LocalSgd):
    """Asynchronous: w <- (1 - a) w + a w_k with a = mixing (1 + staleness)^-decay."""

    mixing: PositiveShare = 0.6  # alpha
    decay: NonNegative = 0.5  # a of the polynomial rule
    proximal: NonNegative = 0.005  # rho
    name = "fedasync"
    tunable = {"mixing": (0.1, 1.0, "log"), "decay": [0.0, 0.5, 1.0]}
    family = "asynchronous"
    citation = "Xie, Koyejo, Gupta, Asynchronous federated optimization, 2019"
    simplified = ["the polynomial rule for staleness alone; the mixing does not fall in time"]
    choices = ["all devices train at all times"]

    def rule(self) -> LocalRule:
        return LocalRule(proximal=self.proximal)

    def ready(self, view: View, state: State) -> bool:
        return bool(view.arrived) or not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """The model that has arrived, mixed in by its staleness."""
        shares = [self.mixing * (1 + one.staleness) ** -self.decay for one in view.arrived]
        return mix_models(view, shares)
