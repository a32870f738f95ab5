"""FedBuff: the server aggregates whenever its buffer is full, and late updates count less."""

from dataclasses import dataclass
from math import sqrt

from camu.learning.weights import Weights
from camu.schemes import FedSgd, State, View, add_updates


@dataclass(frozen=True)
class FedBuff(FedSgd):
    """Asynchronous: devices restart from the newest model and never wait for slow ones."""

    buffer: int = 10
    server_rate: float = 1.0
    citation = "Nguyen et al., AISTATS 2022"

    def ready(self, view: View, state: State) -> bool:
        """When the buffer is full."""
        return len(view.arrived) >= self.buffer

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean of the buffer, each update weighted by 1 / sqrt(1 + staleness)."""
        total = sum(arrival.weight for arrival in view.arrived)
        factors = [
            self.server_rate * (arrival.weight / total) / sqrt(1 + arrival.staleness)
            for arrival in view.arrived
        ]
        return add_updates(view, factors)
