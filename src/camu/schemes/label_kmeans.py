"""A control: CAMU on clusters by labels alone, wherever the devices are."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.planning.groups import Groups, assess, clusters
from camu.schemes.camu import Camu
from camu.seeding import derive
from camu.world import World


@dataclass(frozen=True)
class LabelKMeans(Camu):
    """A control: CAMU with as many clusters, by k-means on label distributions without links."""

    name: ClassVar[str] = "label-kmeans"
    family: ClassVar[str] = "controls"
    citation: ClassVar[str] = "a control of CAMU's clustering"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = ("gate, weights and updates are CAMU's",)

    def groups(self, world: World) -> Groups:
        """k-means++ with ten starts; k is the number of CAMU's clusters."""
        from sklearn.cluster import KMeans  # loading it takes a second

        labels = world.devices.label_counts
        shares = labels / labels.sum(axis=1, keepdims=True)
        wanted = min(len(clusters(world)), len(np.unique(shares, axis=0)))
        start = int(derive(world.seed, "label-kmeans").numpy().integers(2**31))
        found = KMeans(wanted, n_init=10, random_state=start).fit_predict(shares)
        return assess(world, [np.flatnonzero(found == k).tolist() for k in range(wanted)])
