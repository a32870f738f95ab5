"""The paper's dual-segment clustering (section III-A): by links first, then by data inside each.

Affinity propagation finds the number of clusters. Where a user wishes another one
(clustering.count), its clusters are the start.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering import affinity
from camu.clustering.similarity import Similarity, data_similarity, link_similarity
from camu.config import ClusteringConfig
from camu.errors import InputError
from camu.world import World
from camu.world.links import unusable_uplinks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cluster:
    """A secondary cluster: its members in ascending order, its leader, its primary cluster."""

    members: tuple[int, ...]
    leader: int
    primary: int


@dataclass(frozen=True)
class Clustering:
    """All clusters, ordered by their first member; every device is in exactly one."""

    clusters: tuple[Cluster, ...]

    def labels(self) -> Int64:
        """The cluster of each device."""
        return self._per_device(list(range(len(self.clusters))))

    def primaries(self) -> Int64:
        """The primary cluster of each device."""
        return self._per_device([cluster.primary for cluster in self.clusters])

    def _per_device(self, values: list[int]) -> Int64:
        out = np.empty(sum(len(cluster.members) for cluster in self.clusters), np.int64)
        for cluster, value in zip(self.clusters, values, strict=True):
            out[list(cluster.members)] = value
        return out


def cluster_devices(world: World, config: ClusteringConfig | None = None) -> Clustering:
    """Group the devices of a world; the same world gives the same clusters in the same order."""
    config = config or world.config.clustering
    uplink = world.links.uplink_snr()
    two_level = world.devices.count > max(affinity.TWO_LEVELS_ABOVE, affinity.TILE_DEVICES)
    data = data_similarity(world.devices.label_counts, config)
    # A cluster is known by its leader: every device has one, and a leader leads itself.
    by_links = np.arange(world.devices.count)
    for devices in _hearing_each_other(world):
        by_links[devices] = _by_links(world, config, devices, two_level)
    by_links = _within_reach(world, config, by_links)
    leaders = affinity.propagate_sets(data, by_links, config, two_level)
    if config.leader == "best-uplink":
        leaders = _best(uplink, leaders)
    else:  # a leader must be able to send, where a member can
        lost = unusable_uplinks(world.links)
        leaders = np.where(lost[leaders], _best(uplink, leaders), leaders)
    leaders = _within_reach(world, config, leaders)
    if config.count is not None:
        leaders = _to_count(world, config, data, leaders)
        if config.leader == "best-uplink":
            leaders = _led_by_best(world, config, leaders)
    return _clustering(leaders, by_links)


def _hearing_each_other(world: World) -> list[Int64]:
    """The devices of each link type whose devices hear each other."""
    types = world.links.types
    if types is None:
        return [np.arange(world.devices.count)]
    return [devices for _, devices in types.devices() if types.gathers[devices[0]]]


def _by_links(world: World, config: ClusteringConfig, devices: Int64, two_level: bool) -> Int64:
    """The exemplar of each of these devices by their links alone."""
    similarity = link_similarity(world.links, config, devices)
    found = affinity.propagate(similarity, devices, config, two_level)
    if found is not None:
        return found
    log.warning("no exemplar among %d devices by links; kept as one cluster", len(devices))
    return np.full_like(devices, devices[world.links.uplink_snr()[devices].argmax()])


def _within_reach(world: World, config: ClusteringConfig, leaders: Int64) -> Int64:
    """Leaders to which every device has a usable link.

    Members that their leader cannot reach form further groups, led by the best uplink among them;
    a device without links is a group of its own.
    """
    uplink = world.links.uplink_snr()
    found = leaders.copy()
    far, group = np.arange(len(leaders)), leaders
    while len(far):
        near = world.links.hear(far, found[far], config.min_link_snr_db) | (far == found[far])
        far, group = far[~near], group[~near]
        found[far] = far[_best(uplink[far], group)]
    return found


def _led_by_best(world: World, config: ClusteringConfig, leaders: Int64) -> Int64:
    """The same clusters, each led by its best uplink if all its members reach that one."""
    best = _best(world.links.uplink_snr(), leaders)
    everyone = np.arange(len(leaders))
    far = ~world.links.hear(everyone, best, config.min_link_snr_db)
    far &= everyone != best
    return np.where(np.isin(leaders, leaders[far]), leaders, best)


def _best(value: Float64, group: Int64) -> Int64:
    """For each entry, the place of the largest value in its group; the first of equal ones."""
    order = np.lexsort((-value, group))  # stable: equal values stay in their order
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    best = np.empty_like(group)
    best[order] = np.repeat(order[first], np.diff(first, append=len(group)))
    return best


def _clustering(leaders: Int64, by_links: Int64) -> Clustering:
    """The clusters and the primary clusters, both ordered by their first device."""
    _, first, number = np.unique(by_links, return_index=True, return_inverse=True)
    primary = np.argsort(np.argsort(first))[number].tolist()
    found, sizes = np.unique(leaders, return_counts=True)
    groups = np.split(np.argsort(leaders, kind="stable"), np.cumsum(sizes)[:-1])
    clusters = [
        Cluster(tuple(own.tolist()), leader, primary[leader])
        for leader, own in zip(found.tolist(), groups, strict=True)
    ]
    return Clustering(tuple(sorted(clusters, key=lambda cluster: cluster.members[0])))


def _to_count(world: World, config: ClusteringConfig, data: Similarity, leaders: Int64) -> Int64:
    """The leader of each device such that there are `clustering.count` clusters, or nearly.

    Leaders are dropped or added one by one, the least loss first. It is counted in similarity by
    links and by data, in equal parts: each is divided by the spread of its values. A device joins
    only leaders within its reach, so that there may be no way to fewer clusters; a warning then
    says how many there are.
    """
    wanted, count = config.count or 1, len(leaders)
    if count > affinity.TWO_LEVELS_ABOVE:
        raise InputError(
            f"clustering.count = {wanted}: it is kept for at most {affinity.TWO_LEVELS_ABOVE} "
            f"devices, and there are {count}; unset it"
        )
    if wanted > count:
        raise InputError(f"clustering.count = {wanted}: there are only {count} devices")
    _check_count(world, wanted)
    everyone = np.arange(count)
    links = link_similarity(world.links, config)
    value = _scaled(links.block(everyone, everyone)) + _scaled(data.block(everyone, everyone))
    value[~world.links.hear(everyone[:, None], everyone, config.min_link_snr_db)] = -np.inf
    np.fill_diagonal(value, 0.0)  # nobody is more like a device than itself; others are below 0
    lost = unusable_uplinks(world.links)
    chosen, found = leaders.copy(), np.unique(leaders)
    while len(found) > wanted:
        weakest = _least_needed(value, chosen, found)
        if weakest is None:
            log.warning(
                "clustering.count = %d: %d clusters are needed, because devices join only leaders "
                "over links of clustering.min_link_snr_db = %g dB",
                wanted,
                len(found),
                config.min_link_snr_db,
            )
            return chosen
        found = found[found != weakest]
        orphans = np.flatnonzero(chosen == weakest)
        chosen[orphans] = found[value[np.ix_(orphans, found)].argmax(axis=1)]
    while len(found) < wanted:
        gain = np.maximum(value - value[everyone, chosen][:, None], 0.0).sum(axis=0)
        gain[lost] = -0.5  # who cannot send leads only if nobody else is left
        gain[found] = -1.0
        new = int(gain.argmax())
        better = value[:, new] > value[everyone, chosen]
        better[found] = False  # a leader stays with its own cluster
        better[new] = True
        chosen[better] = new
        found = np.unique(chosen)
    return chosen


def _check_count(world: World, wanted: int) -> None:
    """Refuse fewer clusters than link types can form."""
    types = world.links.types
    if types is None:
        return
    together = len(_hearing_each_other(world))
    alone = [name for name, devices in types.devices() if not types.gathers[devices[0]]]
    least = together + int((~types.gathers).sum())
    if wanted < least:
        deaf = f"devices with the link {' or '.join(alone)} hear no others, and " if alone else ""
        raise InputError(
            f"clustering.count = {wanted}: {deaf}devices of different link types share no cluster, "
            f"so that there are at least {least}; set it to {least} or more, or unset it"
        )


def _least_needed(value: Float64, chosen: Int64, found: Int64) -> int | None:
    """The leader whose devices lose least by joining others; None if every one is needed."""
    others = value[:, found].copy()
    own = np.searchsorted(found, chosen)
    everyone = np.arange(len(chosen))
    others[everyone, own] = -np.inf
    loss = value[everyone, chosen] - others.max(axis=1)
    losses = np.zeros(len(found))
    np.add.at(losses, own, loss)
    weakest = int(losses.argmin())
    return int(found[weakest]) if np.isfinite(losses[weakest]) else None


def _scaled(similarity: Float64) -> Float64:
    """Similarities divided by the distance of their quartiles, or of their extremes if that is 0.

    Zeros where all pairs are alike.
    """
    pairs = similarity[~np.eye(len(similarity), dtype=bool)]
    if not pairs.size:
        return np.zeros_like(similarity)
    low, lower, upper, high = np.quantile(pairs, (0.0, 0.25, 0.75, 1.0)).tolist()
    spread = upper - lower if upper > lower else high - low
    return (similarity - high) / spread if spread > 0 else np.zeros_like(similarity)
