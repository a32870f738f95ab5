"""Clusters that work asynchronously and are synchronised when their models differ too much."""

from dataclasses import dataclass

import numpy as np

from camu.arrays import Int64
from camu.schemes.aggregation import flat, unflat
from camu.schemes.contract import Count, NonNegative, PositiveShare, State, View, Weights
from camu.schemes.local_sgd import LocalSgd
from camu.seeding import derive


@dataclass(frozen=True)
class SemiAsyncClusters(LocalSgd):
    """Groups by delay and direction mix their devices in one by one; far groups synchronise all."""

    groups: Count = 3
    mixing: PositiveShare = 0.6
    discrepancy: NonNegative = 0.1  # max_g ||w_g - w|| / ||w|| at which all groups restart from w
    max_staleness: Count = 20
    name = "semi-async-clusters"
    family = "asynchronous"
    citation = "in the spirit of Zhang et al., FedMDS, IEEE TPDS 2023"
    simplified = ["groups are formed once, after one common round"]
    choices = [
        "all formulas; FedMDS is known in outline only",
        "the global model is the mean of the groups' models, by data size",
        "a device at the bound of staleness is waited for; scheme.aggregation does not apply",
    ]

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
        shares = np.bincount(group, view.plan.column("samples"))
        mean = shares / shares.sum() @ models
        lengths = np.sqrt(np.square(models - mean).sum(axis=1))
        if lengths.max() > self.discrepancy * np.sqrt(np.square(mean).sum()):
            models[:] = mean
        return unflat(view.weights, mean)


COMPONENTS = 3  # principal components of the directions


def by_delay_and_direction(view: View, groups: int) -> Int64:
    """The group of each unit, from the updates that have arrived; units without one are in group 0.

    Features are the logarithm of the seconds and the unit vector of the update, reduced to a few
    principal components; both parts have the same variance. k-means with ten starts.
    """
    from sklearn.cluster import KMeans  # loading it takes a second

    arrived = sorted(view.arrived, key=lambda arrival: arrival.unit)
    rows = np.stack([arrival.update.astype(np.float64) for arrival in arrived])
    rows /= np.maximum(np.sqrt(np.square(rows).sum(axis=1, keepdims=True)), 1e-300)
    centred = rows - rows.mean(axis=0)
    # The Gram matrix is small where the model is large.
    values, vectors = np.linalg.eigh(centred @ centred.T)
    direction = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :COMPONENTS]
    delay = np.log([[arrival.seconds] for arrival in arrived])
    parts = [part - part.mean(axis=0) for part in (delay, direction)]
    features = np.hstack([part / max(np.sqrt(np.square(part).sum()), 1e-12) for part in parts])
    start = int(derive(view.world.seed, "delay-groups").numpy().integers(2**31))
    wanted = min(groups, len(np.unique(features, axis=0)))
    labels = KMeans(wanted, n_init=10, random_state=start).fit_predict(features)
    found = np.zeros(len(view.plan.units), dtype=np.int64)
    found[[arrival.unit for arrival in arrived]] = labels
    return found
