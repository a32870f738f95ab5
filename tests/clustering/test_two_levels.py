"""The two-level way: nearly the clusters of affinity propagation on all devices, and its parts."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from camu.clustering import affinity, cluster_devices
from camu.clustering.affinity import propagate
from camu.clustering.similarity import Similarity, data_similarity, link_similarity
from camu.config import ClusteringConfig
from helpers.small_fleets import random_world

ONE = ClusteringConfig()


def net_similarity(similarity: Similarity, exemplars: np.ndarray) -> float:
    """What affinity propagation maximises: joining pays the similarity, leading the preference."""
    total = 0.0
    for device, exemplar in enumerate(exemplars.tolist()):
        one = np.array([device])
        joined = float(similarity.block(one, np.array([exemplar]))[0, 0])
        total += float(similarity.preference[device]) if device == exemplar else joined
    return total


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "TILE_DEVICES", 100)


@pytest.mark.slow
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("seed", [0, 1])
def test_tiles_find_nearly_the_same_clusters(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = random_world(400, seed)
    one = cluster_devices(world, ONE)
    monkeypatch.setattr(affinity, "TWO_LEVELS_ABOVE", 2)
    two = cluster_devices(world, ONE)
    assert adjusted_rand_score(one.primaries(), two.primaries()) > 0.85
    assert adjusted_rand_score(one.labels(), two.labels()) > 0.85
    links, everyone = link_similarity(world.links, ONE), np.arange(400)
    best = propagate(links, everyone, ONE, False)
    tiled = propagate(links, everyone, ONE, True)
    assert best is not None
    assert tiled is not None
    assert net_similarity(links, tiled) > 0.99 * net_similarity(links, best)


def test_later_passes_mend_what_borders_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "TILE_DEVICES", 40)
    links, devices = link_similarity(random_world(400, 0).links, ONE), np.arange(400)
    mended = propagate(links, devices, ONE, True)
    monkeypatch.setattr(affinity, "_MOST_PASSES", 1)
    cut = propagate(links, devices, ONE, True)
    assert mended is not None
    assert cut is not None
    assert len(set(mended.tolist())) < len(set(cut.tolist()))
    assert net_similarity(links, mended) > net_similarity(links, cut)


@pytest.mark.usefixtures("small_tiles")
def test_exemplars_lead_themselves_and_the_same_input_gives_the_same() -> None:
    links = link_similarity(random_world(250, 2).links, ONE)
    devices = np.arange(250)
    found = propagate(links, devices, ONE, True)
    assert found is not None
    assert (found[found] == found).all()
    again = propagate(link_similarity(random_world(250, 2).links, ONE), devices, ONE, True)
    assert (found == again).all()


def test_a_fleet_of_one_tile_is_clustered_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    world = random_world(60, 1)
    before = cluster_devices(world, ONE)
    monkeypatch.setattr(affinity, "TWO_LEVELS_ABOVE", 2)
    assert cluster_devices(world, ONE) == before


@pytest.mark.usefixtures("small_tiles")
def test_tiles_hold_every_device_once_and_are_cut_elsewhere_each_time() -> None:
    links = link_similarity(random_world(350, 3).links, ONE)
    devices = np.arange(350)
    first, second = (affinity._cut(links, devices, 100, level) for level in (0, 1))
    for tiles in (first, second):
        assert max(map(len, tiles)) <= 100
        assert sorted(np.concatenate(tiles).tolist()) == list(range(350))
    assert {tuple(tile) for tile in first} != {tuple(tile) for tile in second}
    # Devices of a tile are more alike than devices of the fleet.
    everywhere = links.block(devices, devices).mean()
    assert all(links.block(tile, tile).mean() > everywhere for tile in first)


def test_hot_spots_are_not_cut() -> None:
    draw = np.random.default_rng(0)

    class Line:
        """Devices on a line, in eight groups far apart."""

        places = np.repeat(np.arange(8) * 1000.0, 30) + draw.uniform(0, 10, 240)
        preference = np.zeros(240)

        def block(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
            return -np.abs(self.places[rows][:, None] - self.places[cols])

        def twins(self, devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.arange(len(devices)), np.arange(len(devices))

    for level in range(5):
        tiles = affinity._cut(Line(), np.arange(240), 100, level)
        assert max(map(len, tiles)) <= 100
        for tile in tiles:
            assert len(tile) % 30 == 0
            assert len(tile) == 30 * len({device // 30 for device in tile.tolist()})


def test_twins_in_one_cluster_however_many() -> None:
    """Devices with the same labels are never torn apart, and kinds that differ do not merge."""
    draw = np.random.default_rng(4)
    kinds = np.array([[90, 10, 0], [0, 90, 10], [10, 0, 90]])
    which = draw.integers(0, 3, 300)
    data = data_similarity(kinds[which], ONE)
    for two_level in (False, True):
        exemplars = propagate(data, np.arange(300), ONE, two_level)
        assert exemplars is not None
        assert adjusted_rand_score(which, exemplars) == 1.0


def test_twins_do_not_change_the_aim() -> None:
    """One exemplar for twins gives at least the net similarity of messages between all devices."""
    draw = np.random.default_rng(5)
    counts = np.zeros((80, 10), np.int64)
    for row in counts:
        row[draw.choice(10, 2, replace=False)] = 30
    data = data_similarity(counts, ONE)

    class Untwinned:
        preference = data.preference
        block = staticmethod(data.block)

        def twins(self, devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.arange(len(devices)), np.arange(len(devices))

    devices = np.arange(80)
    as_one = propagate(data, devices, ONE, False)
    apart = propagate(Untwinned(), devices, ONE, False)
    assert as_one is not None
    assert apart is not None
    assert net_similarity(data, as_one) >= net_similarity(data, apart) - 1e-12


@pytest.mark.usefixtures("small_tiles")
def test_the_sums_of_exemplars_by_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_BLOCK_ENTRIES", 40)  # so that several parts are added
    links = link_similarity(random_world(30, 6).links, ONE)
    exemplars = np.array([3, 11, 20, 27])
    devices = np.arange(30)
    group = np.random.default_rng(1).integers(0, 4, 30)
    group[exemplars] = np.arange(4)
    found = affinity._sums(links, exemplars, devices, group, devices == exemplars[group])
    whole = links.block(devices, devices)
    for row in range(4):
        for column in range(4):
            own = [k for k in range(30) if group[k] == row and k != exemplars[column]]
            assert found[row, column] == pytest.approx(
                sum(whole[k, exemplars[column]] for k in own)
            )
