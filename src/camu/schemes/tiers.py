"""Tiers of devices alike in speed: synchronous inside, asynchronous between them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.schemes.flat import flat, unflat

if TYPE_CHECKING:
    from camu.learning.weights import Weights


def tiers_by_time(plan: Plan, tiers: int) -> Int64:
    """The tier of each unit, 0 the fastest: equally many in each, in the order of their times."""
    seconds = np.array([unit.ready_seconds + unit.uplink_seconds for unit in plan.units])
    found = np.empty(len(seconds), dtype=np.int64)
    for tier, units in enumerate(np.array_split(np.argsort(seconds, kind="stable"), tiers)):
        found[units] = tier
    return found


class Tiered(Scheme):
    """Each tier's devices start together; when its last one has arrived, its mean is a model.

    Devices are units of their own and send straight to the server. Models of members that wait for
    the rest of their tier are kept in the state, as sums weighted by data size.
    """

    @abstractmethod
    def tiers_of(self, plan: Plan) -> Int64:
        """The tier of each unit."""

    @abstractmethod
    def combine(
        self, view: View, state: State, tier: int, model: Float64, here: Float64
    ) -> Float64:
        """The new global model, when a tier has completed its own; `here` is the old one.

        Models are parameters and buffers in one array.
        """

    def select(self, view: View, state: State) -> Iterable[int]:
        """All devices of the tiers that have completed their round."""
        tiers = self.tiers_of(view.plan)
        if "sums" not in state:
            count = int(tiers.max()) + 1
            size = view.weights.parameters.size + view.weights.buffers.size
            state["sums"], state["weights"] = np.zeros((count, size)), np.zeros(count)
            state["since"] = np.zeros(count, dtype=np.int64)
        busy = {int(tiers[unit]) for unit in view.in_flight}
        free = [t for t, weight in enumerate(state["weights"]) if t not in busy and weight == 0]
        state["since"][free] = view.round
        return np.flatnonzero(np.isin(tiers, free)).tolist()

    def ready(self, view: View, state: State) -> bool:
        """When a tier is complete."""
        tiers = self.tiers_of(view.plan)
        busy = {int(tiers[unit]) for unit in view.in_flight}
        return any(int(tiers[arrival.unit]) not in busy for arrival in view.arrived) or not busy

    def aggregate(self, view: View, state: State) -> Weights:
        """Add up what has arrived, and combine the tiers that are complete."""
        tiers = self.tiers_of(view.plan)
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            model = flat(arrival.start) + np.concatenate((arrival.update, arrival.buffers))
            tier = tiers[arrival.unit]
            state["sums"][tier] += arrival.weight * model
            state["weights"][tier] += arrival.weight
        busy = {int(tiers[unit]) for unit in view.in_flight}
        new = flat(view.weights)
        for tier in np.flatnonzero(state["weights"]).tolist():
            if tier not in busy:
                model = state["sums"][tier] / state["weights"][tier]
                new = self.combine(view, state, tier, model, new)
                state["sums"][tier], state["weights"][tier] = 0.0, 0.0
        return unflat(view.weights, new)
