"""FedAvgM: the server adds momentum to the mean update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from camu.schemes.contract import State, View
from camu.schemes.local_sgd import LocalSgd
from camu.schemes.momentum import pushed

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class FedAvgM(LocalSgd):
    """Local SGD whose server keeps a velocity: v <- momentum v + mean update, x <- x + rate v."""

    momentum: float = 0.9
    server_rate: float = 1.0
    name: ClassVar[str] = "fedavgm"
    family: ClassVar[str] = "server"
    citation: ClassVar[str] = (
        "Hsu, Qi, Brown, Measuring the effects of non-identical data distribution, 2019"
    )
    simplified: ClassVar[tuple[str, ...]] = ("everyone takes part; no Nesterov form",)
    choices: ClassVar[tuple[str, ...]] = ()

    def aggregate(self, view: View, state: State) -> Weights:
        """The velocity takes the place of the mean update."""
        return pushed(view, state, super().aggregate(view, state), self.momentum, self.server_rate)
