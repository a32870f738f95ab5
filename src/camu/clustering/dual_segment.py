"""The paper's dual-segment clustering (section III-A): by links first, then by data inside each."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from camu.arrays import Int64
from camu.clustering.affinity import propagate
from camu.clustering.similarity import (
    Similarity,
    data_similarity,
    link_similarity,
)
from camu.config import ClusteringConfig
from camu.world import World

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
    two_level = world.devices.count > config.two_level_above
    uplink = world.links.uplink_snr()
    everyone = np.arange(world.devices.count)
    links = link_similarity(world.links, config)
    data = data_similarity(world.devices.label_counts, config)
    clusters = []
    by_links = _within_reach(
        world, config, _segment(links, everyone, config, two_level, "links", int(uplink.argmax()))
    )
    for primary, (head, members) in enumerate(by_links):
        parts = _segment(data, members, config, two_level, "data", head)
        if config.leader == "best-uplink":
            parts = [(int(own[uplink[own].argmax()]), own) for _, own in parts]
        for leader, own in _within_reach(world, config, parts):
            clusters.append(Cluster(tuple(own.tolist()), leader, primary))
    return Clustering(tuple(sorted(clusters, key=lambda cluster: cluster.members[0])))


def _within_reach(
    world: World, config: ClusteringConfig, groups: list[tuple[int, Int64]]
) -> list[tuple[int, Int64]]:
    """Groups whose members all have a usable link to their leader, ordered by first device.

    Members that their leader cannot reach form further groups, led by the best uplink among them;
    a device without links is a group of its own.
    """
    uplink = world.links.uplink_snr()
    found = []
    for leader, own in groups:
        while len(own):
            snr_db = world.links.device_snr_db(own, [leader])[:, 0]
            near = (snr_db >= config.min_link_snr_db) | (own == leader)
            found.append((leader, own[near]))
            own = own[~near]
            if len(own):
                leader = int(own[uplink[own].argmax()])
    return sorted(found, key=lambda group: int(group[1][0]))


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
    heads, sizes = np.unique(exemplars, return_counts=True)
    grouped = devices[np.argsort(exemplars, kind="stable")]
    groups = np.split(grouped, np.cumsum(sizes)[:-1])
    return sorted(zip(heads.tolist(), groups, strict=True), key=lambda group: int(group[1][0]))
