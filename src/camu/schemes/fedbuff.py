"""FedBuff: the server aggregates whenever its buffer is full, and late updates count less."""

from dataclasses import dataclass
from math import sqrt

from camu.schemes.aggregation import add_updates
from camu.schemes.contract import Count, Positive, State, View, Weights
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class FedBuff(LocalSgd):
    """Asynchronous: the server waits for a number of updates, whoever they come from."""

    buffer: Count = 10
    server_rate: Positive = 1.0
    name = "fedbuff"
    tunable = {"buffer": (1, 20, "log"), "server_rate": [0.3, 1.0]}
    family = "asynchronous"
    citation = "Nguyen et al., FedBuff, AISTATS 2022"
    simplified = [
        "no secure aggregation; a device that has sent starts again at the next aggregation",
    ]
    choices = ["inside a buffer, updates count by data size"]

    def ready(self, view: View, state: State) -> bool:
        """When the buffer is full, or nobody is on the way."""
        return len(view.arrived) >= self.buffer or not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean of the buffer, each update times 1 / sqrt(1 + staleness)."""
        pairs = zip(view.arrived, view.shares, strict=True)
        factors = [self.server_rate * share / sqrt(1 + one.staleness) for one, share in pairs]
        return add_updates(view, factors)
