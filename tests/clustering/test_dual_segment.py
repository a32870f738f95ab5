"""Dual-segment clustering: what must hold for every fleet, and what the readings do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AffinityPropagation
from sklearn.metrics import adjusted_rand_score

from camu.clustering import Clustering, affinity, cluster_devices, messages
from camu.clustering.affinity import propagate
from camu.clustering.messages import Settled, pass_messages
from camu.clustering.similarity import data_similarity, link_similarity
from camu.config import ClusteringConfig, load_config
from camu.world import World, build_world
from helpers.small_fleets import REGIONS, make_world, random_world

READINGS = st.builds(
    ClusteringConfig,
    communication=st.sampled_from(["snr-db", "uplink", "literal"]),
    data=st.sampled_from(["xi", "pmf", "literal"]),
    preference=st.sampled_from(["uplink", "quantile"]),
    preference_quantile=st.floats(0.0, 1.0),
    leader=st.sampled_from(["exemplar", "best-uplink"]),
)


def check(found: Clustering, devices: int) -> None:
    """Every device in exactly one cluster, led by a member, inside one primary cluster."""
    seen = [device for cluster in found.clusters for device in cluster.members]
    assert sorted(seen) == list(range(devices))
    for cluster in found.clusters:
        assert cluster.leader in cluster.members
        assert list(cluster.members) == sorted(cluster.members)
        assert {int(found.primaries()[device]) for device in cluster.members} == {cluster.primary}
    firsts = [cluster.members[0] for cluster in found.clusters]
    assert firsts == sorted(firsts)
    labels = found.labels()
    for index, cluster in enumerate(found.clusters):
        assert np.flatnonzero(labels == index).tolist() == list(cluster.members)


@settings(max_examples=40)
@given(st.integers(1, 25), st.integers(0, 10**6), READINGS)
def test_what_holds_for_every_fleet(count: int, seed: int, config: ClusteringConfig) -> None:
    world = random_world(count, seed)
    found = cluster_devices(world, config)
    check(found, count)
    assert cluster_devices(random_world(count, seed), config) == found


def primary_members(found: Clustering) -> set[frozenset[int]]:
    primaries = found.primaries()
    return {frozenset(np.flatnonzero(primaries == one).tolist()) for one in set(primaries.tolist())}


def test_the_messages_are_those_of_scikit_learn() -> None:
    """The first segment and the second, recomputed from the matrices without camu's propagate."""
    world = random_world(24, 8)
    config = world.config.clustering
    found = cluster_devices(world)
    links = link_similarity(world.links, config)
    everyone = np.arange(24)

    def labels(matrix: np.ndarray, preference: np.ndarray) -> np.ndarray:
        model = AffinityPropagation(
            affinity="precomputed", preference=preference, damping=0.7, random_state=0
        )
        return model.fit(matrix).labels_

    expected = labels(links.block(everyone, everyone), links.preference)
    assert adjusted_rand_score(expected, found.primaries()) == 1.0
    data = data_similarity(world.devices.label_counts, config)
    split = 0
    for primary in primary_members(found):
        members = np.array(sorted(primary))
        if len(members) < 3:
            continue
        own = labels(data.block(members, members), data.preference[members])
        assert adjusted_rand_score(own, found.labels()[members]) == 1.0
        split += len(set(own.tolist())) > 1
    assert split


def test_one_device() -> None:
    (cluster,) = cluster_devices(make_world([(0, 0)], [[3, 4]])).clusters
    assert (cluster.members, cluster.leader, cluster.primary) == ((0,), 0, 0)


@pytest.mark.parametrize("leader", ["exemplar", "best-uplink"])
def test_two_devices(leader: str) -> None:
    for places in ([(0, 0), (1, 1)], [(0, 0), (900, 0)]):
        for counts in ([[5, 0], [0, 5]], [[5, 5], [5, 5]]):
            world = make_world(places, counts, [f"clustering.leader={leader}"])
            check(cluster_devices(world), 2)


def test_identical_devices_are_one_cluster() -> None:
    for count in (2, 3, 10):
        world = make_world([(5, 5)] * count, [[4, 6]] * count)
        (cluster,) = cluster_devices(world).clusters
        assert cluster.members == tuple(range(count))


def test_places_first_then_labels() -> None:
    """Two groups of places, two kinds of data in each: four clusters, as anyone would draw them."""
    places = [(x + dx, dy) for x in (0.0, 200.0) for dx in (0.0, 3.0) for dy in (0.0, 3.0, 6.0)]
    counts = [[90, 10] if k % 2 else [10, 90] for k in range(12)]
    found = cluster_devices(make_world(places, counts))
    assert primary_members(found) == {frozenset(range(6)), frozenset(range(6, 12))}
    assert [cluster.members for cluster in found.clusters] == [
        (0, 2, 4),
        (1, 3, 5),
        (6, 8, 10),
        (7, 9, 11),
    ]


def test_the_best_uplink_leads_where_asked() -> None:
    world = random_world(40, 3)
    uplink = world.links.uplink_snr()
    best = ClusteringConfig(leader="best-uplink")
    exemplars, found = cluster_devices(world), cluster_devices(world, best)
    assert [c.members for c in found.clusters] == [c.members for c in exemplars.clusters]
    for cluster in found.clusters:
        assert cluster.leader == max(cluster.members, key=lambda device: uplink[device])
    assert found != exemplars


def test_an_exemplar_is_the_member_that_the_others_are_most_like() -> None:
    world = random_world(40, 3)
    data = data_similarity(world.devices.label_counts, world.config.clustering)
    larger = [c for c in cluster_devices(world).clusters if len(c.members) > 2]
    assert len(larger) > 3
    for cluster in larger:
        members = np.array(cluster.members)
        sums = data.block(members, members).sum(axis=0)
        assert sums[cluster.members.index(cluster.leader)] == pytest.approx(sums.max())


# ---- what the readings do in the paper's two regions -------------------------------------------


@lru_cache
def two_regions(seed: int) -> World:
    return build_world(load_config(preset="paper").replace(REGIONS), seed)


def mixed(world: World, groups: Sequence[Sequence[int]]) -> int:
    """How many groups hold devices of both regions."""
    return sum(len({world.devices.regions[device] for device in group}) > 1 for group in groups)


@pytest.mark.parametrize("seed", range(5))
def test_regions_never_mix_by_default(seed: int) -> None:
    world = two_regions(seed)
    found = cluster_devices(world)
    check(found, 30)
    assert len(found.clusters) < 15
    assert mixed(world, [sorted(primary) for primary in primary_members(found)]) == 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("data", ["xi", "pmf", "literal"])
def test_the_printed_similarity_mixes_regions(seed: int, data: str) -> None:
    world = two_regions(seed)
    config = ClusteringConfig.model_validate({"communication": "literal", "data": data})
    found = cluster_devices(world, config)
    check(found, 30)
    assert mixed(world, [cluster.members for cluster in found.clusters]) >= 1


def test_the_printed_similarity_at_its_median_mixes_every_cluster() -> None:
    world = two_regions(0)
    config = ClusteringConfig(communication="literal", preference="quantile")
    primaries = [sorted(one) for one in primary_members(cluster_devices(world, config))]
    assert mixed(world, primaries) == len(primaries) == 2


@pytest.mark.parametrize("seed", range(5))
def test_alike_uplinks_make_few_clusters(seed: int) -> None:
    """By uplink alone, too, the far region stays apart, and hardly anyone is left alone."""
    world = two_regions(seed)
    primaries = primary_members(cluster_devices(world, ClusteringConfig(communication="uplink")))
    assert 2 <= len(primaries) <= 6
    assert mixed(world, [sorted(one) for one in primaries]) == 0
    assert sum(len(one) == 1 for one in primaries) <= 1


def test_unlike_devices_together_look_more_like_everyone() -> None:
    """The literal data similarity groups unlike devices: their joint labels are more even."""
    nearer = 0
    for seed in range(5):
        world = two_regions(seed)
        counts = world.devices.label_counts
        everyone = counts.sum(axis=0) / counts.sum()
        unlike = ClusteringConfig(data="literal")
        spread = []
        for found in (cluster_devices(world), cluster_devices(world, unlike)):
            off = [
                np.abs(
                    counts[list(c.members)].sum(axis=0) / counts[list(c.members)].sum() - everyone
                )
                for c in found.clusters
                if len(c.members) > 1
            ]
            spread.append(np.mean([one.sum() for one in off]))
        nearer += spread[1] < spread[0]
    assert nearer == 5


# ---- messages that do not settle ---------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 2])
def test_links_that_single_out_nobody_leave_one_primary_cluster(
    iterations: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, config = random_world(12, 1), ClusteringConfig()
    monkeypatch.setattr(messages, "MOST_ITERATIONS", iterations)
    links = link_similarity(world.links, config)
    assert propagate(links, np.arange(12), config, False) is None
    with caplog.at_level(logging.WARNING):
        found = cluster_devices(world, config)
    check(found, 12)
    assert primary_members(found) == {frozenset(range(12))}
    assert f"12 devices did not settle in {iterations} iterations" in caplog.text
    assert "no exemplar among 12 devices by links; kept as one cluster" in caplog.text


def test_with_no_exemplar_at_all_the_best_uplink_leads_everyone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = random_world(12, 1)
    monkeypatch.setattr(affinity, "_settle", lambda matrix, _: np.zeros(matrix.shape[:2], bool))
    (cluster,) = cluster_devices(world).clusters
    assert cluster.members == tuple(range(12))
    assert cluster.leader == int(world.links.uplink_snr().argmax())


def test_the_last_state_is_used_where_it_has_exemplars(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = random_world(12, 1)
    monkeypatch.setattr(messages, "MOST_ITERATIONS", 6)
    with caplog.at_level(logging.WARNING):
        found = cluster_devices(world)
    check(found, 12)
    assert len(found.clusters) > 1
    assert "its last state is used" in caplog.text


def test_more_damping_is_tried_before_giving_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def watched(matrix: np.ndarray, damping: float, *limits: int) -> Settled:
        tried.append(damping)
        found = pass_messages(matrix, damping, *limits)
        return found if damping >= 0.85 else found._replace(settled=np.array([False]))

    monkeypatch.setattr("camu.clustering.messages.pass_messages", watched)
    world = random_world(12, 1)
    links = link_similarity(world.links, ClusteringConfig())
    with caplog.at_level(logging.INFO):
        assert propagate(links, np.arange(12), ClusteringConfig(), False) is not None
    assert tried == [0.7, 0.85]
    assert "did not settle at damping 0.7" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    tried.clear()
    propagate(links, np.arange(12), ClusteringConfig(damping=0.9), False)
    assert tried == [0.9]


def test_fallback_in_the_second_segment_keeps_the_primary_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the data single out nobody, a primary cluster stays whole, led by its own exemplar."""
    world = random_world(30, 9)
    config = world.config.clustering
    links = link_similarity(world.links, config)
    exemplars = propagate(links, np.arange(30), config, False)
    assert exemplars is not None

    settle = affinity._settle

    def links_only(matrix: np.ndarray, config: ClusteringConfig) -> np.ndarray:
        none = np.zeros(matrix.shape[:2], bool)
        return settle(matrix, config) if matrix.shape[1] == 30 else none

    monkeypatch.setattr(affinity, "_settle", links_only)
    found = cluster_devices(world)
    check(found, 30)
    expected = {tuple(np.flatnonzero(exemplars == one)): one for one in set(exemplars.tolist())}
    assert {cluster.members: cluster.leader for cluster in found.clusters} == expected
