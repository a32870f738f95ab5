"""FedAvg on the fastest: only the devices that would have sent first take part."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.schemes.contract import PositiveShare, State, View
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class Fastest(LocalSgd):
    """In each round the K devices train that compute and send in the least time."""

    share: PositiveShare = 0.5  # K / n
    name = "fastest"
    family = "selection"
    tunable = {"share": (0.1, 1.0, "log")}
    citation = (
        "after Bonawitz et al., Towards federated learning at scale: system design, MLSys 2019"
    )
    simplified = []
    choices = [
        "the others do not start; the original lets more devices begin than it waits for",
        "times are those of mean channels, so that the same devices train in every round",
    ]

    def select(self, view: View, state: State) -> Iterable[int]:
        able, plan = np.array(view.powered), view.plan
        wanted = max(1, round(self.share * len(plan.units)))
        seconds = (plan.column("ready_seconds") + plan.column("uplink_seconds"))[able]
        return sorted(able[np.argsort(seconds, kind="stable")[:wanted]].tolist())
