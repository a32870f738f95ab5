"""Clusters that work asynchronously and are synchronised when their models differ too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.schemes.contract import State, View
from camu.schemes.delay_groups import by_delay_and_direction
from camu.schemes.flat import flat, unflat
from camu.schemes.local_sgd import LocalSgd

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class SemiAsyncClusters(LocalSgd):
    """Groups by delay and direction mix their devices in one by one; far groups synchronise all."""

    groups: int = 3
    mixing: float = 0.6
    discrepancy: float = 0.1  # max_g ||w_g - w|| / ||w|| at which all groups restart from w
    max_staleness: int = 20
    name: ClassVar[str] = "semi-async-clusters"
    family: ClassVar[str] = "asynchronous"
    citation: ClassVar[str] = "in the spirit of Zhang et al., FedMDS, IEEE TPDS 2023"
    simplified: ClassVar[tuple[str, ...]] = ("groups are formed once, after one common round",)
    choices: ClassVar[tuple[str, ...]] = (
        "all formulas; FedMDS is known in outline only",
        "the global model is the mean of the groups' models, by data size",
        "a device at the bound of staleness is waited for; scheme.aggregation does not apply",
    )

    def start(self, view: View, state: State, unit: int) -> Weights | None:
        """The model of the device's group."""
        if "models" not in state:
            return None
        return unflat(view.weights, state["models"][state["group"][unit]])

    def ready(self, view: View, state: State) -> bool:
        """The common round waits for all; afterwards each arrival counts at once."""
        late = any(
            view.round - flight.round >= self.max_staleness for flight in view.in_flight.values()
        )
        warm = self.groups == 1 or view.round > 0
        return (warm and bool(view.arrived) and not late) or not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """Mix into the groups' models; the global one is their mean."""
        if self.groups > 1 and view.round == 0:
            new = super().aggregate(view, state)
            group = state["group"] = by_delay_and_direction(view, self.groups)
            state["models"] = np.tile(flat(new), (int(group.max()) + 1, 1))
            return new
        group = state.setdefault("group", np.zeros(len(view.plan.units), dtype=np.int64))
        models = state.setdefault("models", np.tile(flat(view.weights), (1, 1)))
        for one in view.arrived:
            theirs = flat(one.start) + np.concatenate((one.update, one.buffers))
            share = self.mixing / np.sqrt(1 + one.staleness)
            models[group[one.unit]] += share * (theirs - models[group[one.unit]])
        shares = np.bincount(group, [unit.samples for unit in view.plan.units])
        mean = shares / shares.sum() @ models
        lengths = np.sqrt(np.square(models - mean).sum(axis=1))
        if lengths.max() > self.discrepancy * np.sqrt(np.square(mean).sum()):
            models[:] = mean
        return unflat(view.weights, mean)
