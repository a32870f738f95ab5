"""Messages of many sets at once, and the segment by data: the exemplars of the plain ways."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AffinityPropagation

from camu.clustering import affinity, messages
from camu.clustering.affinity import propagate, propagate_sets
from camu.clustering.messages import pass_messages
from camu.clustering.similarity import data_similarity
from camu.config import ClusteringConfig

CONFIG = ClusteringConfig()


def without_ties(sets: int, size: int, seed: int) -> np.ndarray:
    """Similarities that are not symmetric, so that no two groupings are equally good."""
    draw = np.random.default_rng(seed)
    places = draw.normal(size=(sets, size, 2))
    apart = np.square(places[:, :, None] - places[:, None]).sum(axis=-1)
    similarity = -apart * draw.uniform(0.99, 1.01, apart.shape)
    diagonal = np.arange(size)
    similarity[:, diagonal, diagonal] = np.median(similarity) * draw.uniform(0.9, 1.1, (sets, size))
    return similarity


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(0, 10**6), st.sampled_from([0.5, 0.7, 0.9]))
def test_the_exemplars_are_those_of_scikit_learn(size: int, seed: int, damping: float) -> None:
    (matrix,) = without_ties(1, size, seed)
    model = AffinityPropagation(
        affinity="precomputed",
        preference=matrix.diagonal().copy(),
        damping=damping,
        max_iter=300,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(matrix.copy())
    found = pass_messages(matrix[None], damping, 300)
    assert found.settled[0] == (model.n_iter_ < 300)
    assert np.flatnonzero(found.exemplars[0]).tolist() == list(model.cluster_centers_indices_)


def test_sets_do_not_influence_each_other() -> None:
    matrices = without_ties(50, 12, 3)
    together = pass_messages(matrices, 0.7, 60)
    for number, matrix in enumerate(matrices):
        alone = pass_messages(matrix[None], 0.7, 60)
        assert (alone.exemplars[0] == together.exemplars[number]).all()
        assert alone.settled[0] == together.settled[number]
    assert together.settled.any()


def test_messages_that_may_not_settle_say_so() -> None:
    found = pass_messages(without_ties(5, 30, 1), 0.7, 10)
    assert not found.settled.any()


def net(data: object, exemplars: np.ndarray) -> float:
    everyone = np.arange(len(exemplars))
    joined = data.block(everyone, everyone)[everyone, exemplars]  # type: ignore[attr-defined]
    leads = exemplars == everyone
    return float(np.where(leads, data.preference, joined).sum())  # type: ignore[attr-defined]


@pytest.mark.parametrize("reading", ["xi", "pmf", "literal"])
@pytest.mark.parametrize("twins", [True, False])
def test_many_sets_are_as_good_as_one_after_the_other(reading: str, twins: bool) -> None:
    draw = np.random.default_rng(8)
    counts = draw.integers(0, 4 if twins else 60, (300, 3)) + 1
    config = ClusteringConfig(data=reading)
    data = data_similarity(counts, config)
    heads = draw.choice(300, 25, replace=False)
    head = draw.choice(heads, 300)
    head[heads] = heads
    found = propagate_sets(data, head, config, False)
    assert (head[found] == head).all()
    assert (found[found] == found).all()
    one_by_one = np.empty(300, np.int64)
    for leader in heads:
        own = np.flatnonzero(head == leader)
        exemplars = propagate(data, own, config, False)
        one_by_one[own] = leader if exemplars is None else exemplars
    # Ties are broken otherwise: two devices alone may be led by either.
    assert net(data, found) == pytest.approx(net(data, one_by_one), rel=5e-3)


def test_sets_of_more_kinds_than_a_tile_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(2)
    counts = draw.integers(1, 90, (120, 4))
    data = data_similarity(counts, CONFIG)
    head = np.repeat([0, 40, 80], 40)
    whole = propagate_sets(data, head, CONFIG, True)
    monkeypatch.setattr(affinity, "TILE_DEVICES", 25)
    cut = propagate_sets(data, head, CONFIG, True)
    assert (head[cut] == head).all()
    assert net(data, cut) == pytest.approx(net(data, whole), rel=0.2)


def test_sets_without_an_exemplar_keep_their_head(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.random.default_rng(2).integers(1, 90, (30, 4))
    monkeypatch.setattr(messages, "MOST_ITERATIONS", 1)
    head = np.repeat([7, 22], 15)
    data = replace(data_similarity(counts, CONFIG), preference=np.full(30, -1e9))
    found = propagate_sets(data, head, CONFIG, True)
    assert (found == head).all()


@pytest.mark.parametrize("preference", [-5.0, 5.0])
def test_sets_of_devices_that_are_all_alike(preference: float) -> None:
    counts = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 9]] * 2)
    data = replace(data_similarity(counts, CONFIG), preference=np.full(6, preference))
    found = propagate_sets(data, np.repeat([0, 3], 3), CONFIG, False)
    leaders = 1 if preference < 0 else 3
    assert [len(set(found[:3])), len(set(found[3:]))] == [leaders, leaders]


@pytest.mark.parametrize("seed", range(5))
def test_equal_links_in_a_tile_give_the_largest_net_similarity(seed: int) -> None:
    draw = np.random.default_rng(seed)
    size, joining = 7, draw.normal(size=7)
    matrix = np.repeat(joining[:, None], size, axis=1)
    preference = joining + draw.normal(-0.5, 1.0, size)
    np.fill_diagonal(matrix, preference)
    found = np.flatnonzero(affinity._settle_tile(matrix, CONFIG))

    def total(leads: np.ndarray) -> float:
        return float(np.where(leads, preference, joining).sum())

    choices = [np.array(list(f"{bits:07b}")) == "1" for bits in range(1, 2**size)]
    assert total(np.isin(np.arange(size), found)) == pytest.approx(max(map(total, choices)))
