"""FedAvg: a share of the devices trains for several epochs, and the server takes the mean."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.data.batches import batch_samples
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, PositiveShare, Scheme, State, View, World


@dataclass(frozen=True)
class FedAvgEpochs(Scheme):
    """In each round a share C of the devices, drawn evenly, makes E epochs over its data."""

    epochs: Count = 5  # E
    share: PositiveShare = 0.1  # C
    name = "fedavg-epochs"
    family = "reference"
    tunable = {"epochs": (1, 10, "log"), "share": (0.05, 1.0, "log")}
    citation = (
        "McMahan et al., Communication-efficient learning of deep networks from decentralized "
        "data, AISTATS 2017"
    )
    choices = ["batches are those of the configuration; the original has 10 samples, or all"]

    def plan(self, world: World) -> Plan:
        """Single devices; an epoch is as many steps as a device has batches."""
        groups, training = single_devices(world), world.config.training
        batches = np.ones(len(groups), dtype=np.int64)
        if training.local_update == "step":
            held = groups.samples
            batches = -(-held // batch_samples(training.batch, held))
        return make_plan(self, groups, groups.sample_weights, self.epochs * batches)

    def select(self, view: View, state: State) -> Iterable[int]:
        return view.draw(self.share)
