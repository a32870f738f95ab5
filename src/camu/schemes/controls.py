"""Controls: CAMU on clusters that are formed in other ways."""

from dataclasses import dataclass

import numpy as np

from camu.planning.groups import Groups, assess, clusters, within_hearing
from camu.schemes.camu import Camu
from camu.schemes.contract import World
from camu.seeding import derive


@dataclass(frozen=True)
class RandomClusters(Camu):
    """A control: CAMU with devices dealt at random to clusters of the sizes that CAMU forms."""

    name = "random-clusters"
    family = "controls"
    citation = "a control of CAMU's clustering"
    choices = ["gate, weights and updates are CAMU's"]

    def groups(self, world: World) -> Groups:
        """The same sizes, other devices; the best uplink leads."""
        found, types = clusters(world).members, world.links.types
        order = derive(world.seed, "random-clusters").numpy().permutation(world.devices.count)
        if types is not None:  # only devices of the same link type change places
            places, dealt = np.concatenate(found), order.copy()
            for _, own in types.devices():
                dealt[np.isin(places, own)] = order[np.isin(order, own)]
            order = dealt
        parts = np.split(order, np.cumsum([len(own) for own in found])[:-1])
        return assess(world, within_hearing(world, [sorted(part.tolist()) for part in parts]))


@dataclass(frozen=True)
class LabelKMeans(Camu):
    """A control: CAMU with as many clusters, by k-means on label distributions without links."""

    name = "label-kmeans"
    family = "controls"
    citation = "a control of CAMU's clustering"
    choices = ["gate, weights and updates are CAMU's"]

    def groups(self, world: World) -> Groups:
        """k-means++ with ten starts; k is the number of CAMU's clusters."""
        from sklearn.cluster import KMeans  # loading it takes a second

        most, labels = len(clusters(world)), world.devices.label_counts
        shares = labels / labels.sum(axis=1, keepdims=True)
        wanted = min(most, len(np.unique(shares, axis=0)))
        start = int(derive(world.seed, "label-kmeans").numpy().integers(2**31))
        found = KMeans(wanted, n_init=10, random_state=start).fit_predict(shares)
        parts = [np.flatnonzero(found == k).tolist() for k in range(wanted)]
        return assess(world, within_hearing(world, parts))
