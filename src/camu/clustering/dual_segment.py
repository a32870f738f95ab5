"""The paper's dual-segment clustering (section III-A): by links first, then by data inside each."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering.affinity import TILE_DEVICES, propagate
from camu.clustering.cluster_count import to_count
from camu.clustering.many_sets import propagate_sets
from camu.clustering.similarity import (
    Similarity,
    data_similarity,
    link_similarity,
)
from camu.config import ClusteringConfig
from camu.world import World
from camu.world.reach import hopeless_uplinks

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
    two_level = world.devices.count > max(config.two_level_above, TILE_DEVICES)
    everyone = np.arange(world.devices.count)
    links = link_similarity(world.links, config)
    data = data_similarity(world.devices.label_counts, config)
    # A cluster is known by its leader: every device has one, and a leader leads itself.
    by_links = np.empty_like(everyone)
    for head, own in _segment(links, everyone, config, two_level, "links", int(uplink.argmax())):
        by_links[own] = head
    by_links = _within_reach(world, config, by_links)
    if two_level:
        leaders = propagate_sets(data, by_links, config)
    else:
        leaders = np.empty_like(everyone)
        for head, members in _groups(by_links):
            for leader, own in _segment(data, members, config, two_level, "data", head):
                leaders[own] = leader
    if config.leader == "best-uplink":
        leaders = _best(uplink, leaders)
    else:  # a leader must be able to send, where a member can
        lost = hopeless_uplinks(world.links)
        leaders = np.where(lost[leaders], _best(uplink, leaders), leaders)
    leaders = _within_reach(world, config, leaders)
    if config.count is not None:
        leaders = to_count(world, config, links, data, leaders)
        if config.leader == "best-uplink":
            leaders = _led_by_best(world, config, leaders)
    return _clustering(leaders, by_links)


def _within_reach(world: World, config: ClusteringConfig, leaders: Int64) -> Int64:
    """Leaders to which every device has a usable link.

    Members that their leader cannot reach form further groups, led by the best uplink among them;
    a device without links is a group of its own.
    """
    uplink = world.links.uplink_snr()
    found = leaders.copy()
    far, group = np.arange(len(leaders)), leaders
    while len(far):
        snr_db = world.links.pair_snr_db(far, found[far])
        near = (snr_db >= config.min_link_snr_db) | (far == found[far])
        far, group = far[~near], group[~near]
        found[far] = far[_best(uplink[far], group)]
    return found


def _led_by_best(world: World, config: ClusteringConfig, leaders: Int64) -> Int64:
    """The same clusters, each led by its best uplink if all its members reach that one."""
    best = _best(world.links.uplink_snr(), leaders)
    everyone = np.arange(len(leaders))
    far = world.links.pair_snr_db(everyone, best) < config.min_link_snr_db
    far &= everyone != best
    return np.where(np.isin(leaders, leaders[far]), leaders, best)


def _best(value: Float64, group: Int64) -> Int64:
    """For each entry, the place of the largest value in its group; the first of equal ones."""
    order = np.lexsort((-value, group))  # stable: equal values stay in their order
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    best = np.empty_like(group)
    best[order] = np.repeat(order[first], np.diff(first, append=len(group)))
    return best


def _groups(leaders: Int64) -> list[tuple[int, Int64]]:
    """Each leader with its devices in ascending order, ordered by first device."""
    heads, sizes = np.unique(leaders, return_counts=True)
    groups = np.split(np.argsort(leaders, kind="stable"), np.cumsum(sizes)[:-1])
    return sorted(zip(heads.tolist(), groups, strict=True), key=lambda group: int(group[1][0]))


def _clustering(leaders: Int64, by_links: Int64) -> Clustering:
    """The clusters; primary clusters are numbered by their first device."""
    _, first, number = np.unique(by_links, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    primary = rank[number].tolist()
    return Clustering(
        tuple(
            Cluster(tuple(own.tolist()), leader, primary[leader])
            for leader, own in _groups(leaders)
        )
    )


def _segment(
    similarity: Similarity,
    devices: Int64,
    config: ClusteringConfig,
    two_level: bool,
    what: str,
    fallback: int,
) -> list[tuple[int, Int64]]:
    """Exemplars and their devices, ordered by first device.

    Where the messages single out no exemplar, the devices are left ungrouped; they then join the
    one that is already known: the leader of their primary cluster, or the best uplink of all.
    """
    exemplars = propagate(similarity, devices, config, two_level)
    if exemplars is None:
        log.warning("no exemplar among %d devices by %s; kept as one cluster", len(devices), what)
        return [(fallback, devices)]
    return [(head, devices[own]) for head, own in _groups(exemplars)]
