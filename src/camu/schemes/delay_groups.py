"""Groups of units that are alike in delay and in the direction of their updates."""

from __future__ import annotations

import numpy as np

from camu.arrays import Int64
from camu.schemes.contract import View
from camu.seeding import derive

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
