"""FedAvg with client sampling: only some devices train in a round."""

from collections.abc import Iterable
from dataclasses import dataclass

from camu.schemes import FedSgd, State, View


@dataclass(frozen=True)
class Sampling(FedSgd):
    """A number of devices, drawn without replacement in every round."""

    devices: int = 5
    citation = "McMahan et al., AISTATS 2017"

    def select(self, view: View, state: State) -> Iterable[int]:
        """The devices of this round."""
        drawn = min(self.devices, len(view.idle))
        chosen: Iterable[int] = view.random().numpy().choice(view.idle, drawn, replace=False)
        return chosen
