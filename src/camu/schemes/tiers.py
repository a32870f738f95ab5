"""Tiers of devices alike in speed: synchronous inside, asynchronous between them."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.schemes.aggregation import flat, unflat
from camu.schemes.contract import Count, Plan, PositiveShare, State, View, Weights
from camu.schemes.local_sgd import LocalSgd


class Tiered(LocalSgd):
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


@dataclass(frozen=True)
class FedAt(Tiered):
    """Tiers are synchronous inside and asynchronous between; frequent tiers get small weights."""

    tiers: Count = 3
    name = "fedat"
    family = "asynchronous"
    citation = "Chai et al., FedAT, SC 2021"
    simplified = [
        "everyone in a tier takes part; no compression and no proximal term",
        "a tier starts its next round at the next aggregation",
    ]
    choices = [
        "tiers have equally many devices, by computing and sending time at mean channels",
        "scheme.aggregation does not apply",
    ]

    def tiers_of(self, plan: Plan) -> Int64:
        """Equally many devices in each, in the order of their times; 0 is the fastest."""
        order = np.argsort(plan.column("seconds"), kind="stable")
        found = np.empty(len(order), dtype=np.int64)
        for tier, units in enumerate(np.array_split(order, min(self.tiers, len(order)))):
            found[units] = tier
        return found

    def combine(
        self, view: View, state: State, tier: int, model: Float64, here: Float64
    ) -> Float64:
        """w = sum_m (T_{M+1-m} / T) w_m, where T_m counts the rounds of tier m."""
        if "models" not in state:
            state["models"] = np.tile(here, (len(state["weights"]), 1))
            state["rounds"] = np.zeros(len(state["weights"]))
        state["models"][tier] = model
        state["rounds"][tier] += 1
        shares = state["rounds"][::-1] / state["rounds"].sum()
        return np.asarray(shares @ state["models"])


@dataclass(frozen=True)
class StragglerTiers(Tiered):
    """Devices alike in time form tiers; w <- (1 - b) w + b w_c when a tier c is complete."""

    tiers: Count = 3
    mixing: PositiveShare = 1.0  # b0
    name = "straggler-tiers"
    family = "asynchronous"
    citation = (
        "after Liu et al., Adaptive clustering based straggler-aware federated learning (FeDSC), "
        "IEEE TCOMM 2024"
    )
    simplified = [
        "tiers are formed once; the original adapts them as resources change",
        "a tier starts its next round at the next aggregation",
    ]
    choices = [
        "tiers are cut where the times of sorted devices differ most, as a ratio",
        "b = b0 (D_c / D) / sqrt(1 + staleness), as in FedAsync",
        "devices send straight to the server; scheme.aggregation does not apply",
    ]

    def tiers_of(self, plan: Plan) -> Int64:
        """Cut at the largest gaps of log time."""
        seconds = np.log(plan.column("seconds"))
        order = np.argsort(seconds, kind="stable")
        gaps = np.argsort(-np.diff(seconds[order]), kind="stable")[: self.tiers - 1]
        found = np.zeros(len(order), dtype=np.int64)
        found[order] = np.searchsorted(np.sort(gaps), np.arange(len(order)))
        return found

    def combine(
        self, view: View, state: State, tier: int, model: Float64, here: Float64
    ) -> Float64:
        """Mix the tier's model in by its data and its staleness."""
        staleness = view.round - state["since"][tier]
        b = self.mixing * state["weights"][tier] / np.sqrt(1 + staleness)
        return np.asarray(here + b * (model - here))
