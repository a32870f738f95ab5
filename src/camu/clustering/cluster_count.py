"""A wished number of clusters: leaders are dropped or added one by one, the least loss first.

Affinity propagation finds the number of clusters itself. Where a user wishes another, its clusters
are the start. The loss of a change is counted in similarity by links and by data, in equal parts:
each is divided by the spread of its values.
"""

from __future__ import annotations

import logging

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering.similarity import Similarity
from camu.config import ClusteringConfig
from camu.errors import InputError
from camu.world import World
from camu.world.reach import hopeless_uplinks

log = logging.getLogger(__name__)


def to_count(
    world: World,
    config: ClusteringConfig,
    links: Similarity,
    data: Similarity,
    leaders: Int64,
) -> Int64:
    """The leader of each device such that there are `clustering.count` clusters, or nearly.

    A device joins only leaders within its reach, so that there may be no way to fewer clusters;
    a warning then says how many there are.
    """
    wanted, count = config.count or 1, len(leaders)
    if count > config.two_level_above:
        raise InputError(
            f"clustering.count = {wanted}: it is kept for at most clustering.two_level_above = "
            f"{config.two_level_above} devices, and there are {count}; unset it, or raise "
            "clustering.two_level_above"
        )
    if wanted > count:
        raise InputError(f"clustering.count = {wanted}: there are only {count} devices")
    everyone = np.arange(count)
    value = _scaled(links.block(everyone, everyone)) + _scaled(data.block(everyone, everyone))
    value[world.links.device_snr_db(everyone, everyone) < config.min_link_snr_db] = -np.inf
    np.fill_diagonal(value, 0.0)  # nobody is more like a device than itself; others are below 0
    lost = hopeless_uplinks(world.links)
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
