"""EF21: devices send the largest entries of what changed in their gradients."""

from dataclasses import dataclass

import numpy as np

from camu.planning.codecs import Changes
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, PositiveShare, Scheme, State, View, Weights, World


@dataclass(frozen=True)
class Ef21(Scheme):
    """The server keeps an estimate of each update; devices send the largest errors of theirs."""

    sent_share: PositiveShare = 0.1  # of the entries
    local_updates: Count = 1
    name = "ef21"
    family = "compression"
    tunable = {"sent_share": (0.01, 0.5, "log"), "local_updates": (1, 20, "log")}
    citation = "Richtarik, Sokolov, Fatkhullin, EF21, NeurIPS 2021"
    simplified = []
    choices = [
        "mini-batches in place of whole gradients, and updates of several steps if asked for",
        "weights by data size; estimates start at zero",
        "an index takes as many bits as the size of the model needs",
        "who is absent keeps its estimate, and the server too",
    ]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        codec = Changes(self.sent_share)
        return make_plan(self, groups, groups.sample_weights, self.local_updates, codec=codec)

    def aggregate(self, view: View, state: State) -> Weights:
        """g <- g + sum w_i c_i, x <- x + g: what arrives are the changes c_i of the estimates."""
        mean = super().aggregate(view, state)
        here = view.weights.parameters.astype(np.float64)
        estimate = state.get("estimate", np.zeros_like(here))
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            estimate = estimate + arrival.weight * arrival.update.astype(np.float64)
        state["estimate"] = estimate
        return mean.with_parameters(here + estimate)
