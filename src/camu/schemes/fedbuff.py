"""FedBuff: the server aggregates whenever its buffer is full, and late updates count less."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from camu.schemes.contract import State, View, add_updates
from camu.schemes.local_sgd import LocalSgd

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class FedBuff(LocalSgd):
    """Asynchronous: the server waits for a number of updates, whoever they come from."""

    buffer: int = 10
    server_rate: float = 1.0
    name: ClassVar[str] = "fedbuff"
    family: ClassVar[str] = "asynchronous"
    citation: ClassVar[str] = "Nguyen et al., FedBuff, AISTATS 2022"
    simplified: ClassVar[tuple[str, ...]] = (
        "no secure aggregation; a device that has sent starts again at the next aggregation",
    )
    choices: ClassVar[tuple[str, ...]] = ("inside a buffer, updates count by data size",)

    def ready(self, view: View, state: State) -> bool:
        """When the buffer is full, or nobody is on the way."""
        return len(view.arrived) >= self.buffer or not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean of the buffer, each update times 1 / sqrt(1 + staleness)."""
        total = sum(arrival.weight for arrival in view.arrived)
        return add_updates(
            view,
            [
                self.server_rate * (arrival.weight / total) / sqrt(1 + arrival.staleness)
                for arrival in view.arrived
            ],
        )
