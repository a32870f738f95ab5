"""A wished number of clusters is met, as far as links allow it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from camu.clustering import affinity, cluster_devices
from camu.clustering.similarity import data_similarity, link_similarity
from camu.errors import InputError
from helpers.small_fleets import random_world


@pytest.mark.parametrize("wanted", [1, 2, 5, 11, 23, 40])
@pytest.mark.parametrize("leader", ["exemplar", "best-uplink"])
def test_the_wished_number_is_met(wanted: int, leader: str) -> None:
    world = random_world(40, 3, (f"clustering.count={wanted}", f"clustering.leader={leader}"))
    found = cluster_devices(world)
    assert len(found.clusters) == wanted
    assert sorted(k for cluster in found.clusters for k in cluster.members) == list(range(40))
    uplink = world.links.uplink_snr()
    for cluster in found.clusters:
        assert cluster.leader in cluster.members
        if leader == "best-uplink":
            assert cluster.leader == max(cluster.members, key=lambda k: uplink[k])
    assert cluster_devices(world) == found


def test_the_number_that_is_there_changes_nothing() -> None:
    world = random_world(40, 3)
    found = cluster_devices(world)
    count = len(found.clusters)
    again = cluster_devices(random_world(40, 3, (f"clustering.count={count}",)))
    assert again == found


def scaled(matrix: np.ndarray) -> np.ndarray:
    """Off-diagonal values divided by the distance of their quartiles, the largest at 0."""
    values = [matrix[i, j] for i in range(len(matrix)) for j in range(len(matrix)) if i != j]
    spread = np.percentile(values, 75) - np.percentile(values, 25)
    return (matrix - max(values)) / spread


def test_the_leader_whose_devices_lose_least_is_dropped() -> None:
    """One cluster fewer is worth as much as the best of all ways to drop one leader."""
    world = random_world(14, 5)
    config, everyone = world.config.clustering, np.arange(14)
    value = scaled(link_similarity(world.links, config).block(everyone, everyone))
    value += scaled(data_similarity(world.devices.label_counts, config).block(everyone, everyone))
    np.fill_diagonal(value, 0.0)
    before = {k: c.leader for c in cluster_devices(world).clusters for k in c.members}
    heads = set(before.values())
    assert len(heads) > 2
    totals = []
    for gone in heads:
        after = {
            k: max(heads - {gone}, key=lambda head, k=k: value[k, head]) if head == gone else head
            for k, head in before.items()
        }
        totals.append(sum(value[k, head] for k, head in after.items()))
    fewer = cluster_devices(random_world(14, 5, (f"clustering.count={len(heads) - 1}",)))
    found = sum(value[k, c.leader] for c in fewer.clusters for k in c.members)
    assert found == pytest.approx(max(totals), abs=1e-9)


def test_the_device_that_gains_most_leads_the_added_cluster() -> None:
    world = random_world(14, 5)
    before = cluster_devices(world)
    wanted = len(before.clusters) + 1
    more = cluster_devices(random_world(14, 5, (f"clustering.count={wanted}",)))
    old = {cluster.leader for cluster in before.clusters}
    (new,) = {cluster.leader for cluster in more.clusters} - old
    assert old <= {cluster.leader for cluster in more.clusters}
    assert new not in old


def test_devices_out_of_reach_stay_apart(caplog: pytest.LogCaptureFixture) -> None:
    settings = ("clustering.count=2", "clustering.min_link_snr_db=300")
    with caplog.at_level(logging.WARNING):
        found = cluster_devices(random_world(12, 3, settings))
    assert len(found.clusters) == 12
    assert "12 clusters are needed" in caplog.text
    assert "clustering.min_link_snr_db = 300" in caplog.text


def test_absurd_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there are only 12 devices"):
        cluster_devices(random_world(12, 3, ("clustering.count=13",)))
    monkeypatch.setattr(affinity, "TWO_LEVELS_ABOVE", 5)
    with pytest.raises(InputError, match="at most 5 devices"):
        cluster_devices(random_world(12, 3, ("clustering.count=3",)))
