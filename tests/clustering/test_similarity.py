"""Similarities and preferences against plain loops over the formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from camu.clustering.similarity import data_similarity, information, link_similarity
from camu.config import ClusteringConfig
from helpers.small_fleets import make_world, random_world

HISTOGRAMS = arrays(
    np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 2000)
).map(lambda counts: counts + (counts.sum(axis=1, keepdims=True) == 0))


def exact_information(counts: np.ndarray) -> list[list[mpmath.mpf]]:
    """Xi by the printed formula, entry by entry, in 50 digits."""
    total = int(counts.sum())
    rows = []
    with mpmath.workdps(50):
        for k in range(counts.shape[0]):
            row = []
            for label in range(counts.shape[1]):
                held = int(counts[k, label])
                if held == 0:
                    row.append(mpmath.mpf(0))
                    continue
                own, everyones = int(counts[k].sum()), int(counts[:, label].sum())
                inside = mpmath.mpf(total) * held / (mpmath.mpf(own) * everyones)
                row.append(mpmath.mpf(held) / total * mpmath.log(inside))
            rows.append(row)
    return rows


@given(HISTOGRAMS)
def test_the_information_matrix_is_the_printed_one(counts: np.ndarray) -> None:
    expected = exact_information(counts)
    found = information(counts)
    assert found.shape == counts.shape
    for k, row in enumerate(expected):
        for label, value in enumerate(row):
            assert found[k, label] == pytest.approx(float(value), rel=1e-11, abs=1e-15)


def test_a_label_nobody_holds_says_nothing() -> None:
    counts = np.array([[3, 0, 1], [2, 0, 5]])
    assert (information(counts)[:, 1] == 0.0).all()


@given(HISTOGRAMS)
def test_data_similarity_of_each_reading(counts: np.ndarray) -> None:
    everyone = np.arange(len(counts))
    xi = [[float(value) for value in row] for row in exact_information(counts)]
    pmf = [[value / sum(row) for value in row] for row in counts.tolist()]
    blocks = {
        reading: data_similarity(counts, ClusteringConfig(data=reading)).block(everyone, everyone)
        for reading in ("xi", "pmf", "literal")
    }
    for i in range(len(counts)):
        for k in range(len(counts)):
            of_xi = math.fsum((a - b) ** 2 for a, b in zip(xi[i], xi[k], strict=True))
            of_pmf = math.fsum((a - b) ** 2 for a, b in zip(pmf[i], pmf[k], strict=True))
            assert blocks["xi"][i, k] == pytest.approx(-of_xi, rel=1e-9, abs=1e-13)
            assert blocks["pmf"][i, k] == pytest.approx(-of_pmf, rel=1e-9, abs=1e-13)
            assert blocks["literal"][i, k] == pytest.approx(of_xi**2, rel=1e-9, abs=1e-13)


def test_devices_with_the_same_labels_are_exactly_alike() -> None:
    rows = np.random.default_rng(3).integers(1, 1000, (20, 10))
    counts = np.concatenate([rows, rows])
    found = data_similarity(counts, ClusteringConfig()).block(np.arange(20), np.arange(20, 40))
    assert (np.diag(found) == 0.0).all()
    off = found[~np.eye(20, dtype=bool)]
    assert (off < 0.0).all()


def test_link_similarity_of_each_reading() -> None:
    world = random_world(7, 5, ["radio.noise_dbm=-10"])
    gamma = world.links.gamma()
    everyone = np.arange(7)
    blocks = {
        reading: link_similarity(world.links, ClusteringConfig(communication=reading)).block(
            everyone, everyone
        )
        for reading in ("snr-db", "uplink", "literal")
    }
    for i in range(7):
        for k in range(7):
            if i == k:
                continue
            difference = 10 * math.log10(gamma[i, i] / gamma[k, k])
            assert blocks["snr-db"][i, k] == pytest.approx(10 * math.log10(gamma[i, k]))
            assert blocks["uplink"][i, k] == pytest.approx(-(difference**2), abs=1e-12)
            assert blocks["literal"][i, k] == pytest.approx(-(gamma[i, k] ** 2))


def test_a_block_is_that_part_of_the_matrix() -> None:
    world = random_world(9, 1)
    rows, columns = np.array([7, 2, 5]), np.array([1, 8])
    for reading in ("snr-db", "uplink", "literal"):
        links = link_similarity(world.links, ClusteringConfig(communication=reading))
        whole = links.block(np.arange(9), np.arange(9))
        assert links.block(rows, columns) == pytest.approx(whole[np.ix_(rows, columns)])
    data = data_similarity(world.devices.label_counts, ClusteringConfig())
    whole = data.block(np.arange(9), np.arange(9))
    assert data.block(rows, columns) == pytest.approx(whole[np.ix_(rows, columns)], abs=1e-18)


def median(values: list[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def pairs_of(matrix: np.ndarray) -> list[float]:
    return [float(matrix[i, k]) for i in range(len(matrix)) for k in range(len(matrix)) if i != k]


def test_who_reaches_the_base_station_better_prefers_to_lead() -> None:
    world = random_world(8, 2)
    found = link_similarity(world.links, ClusteringConfig())
    uplink_db = [10 * math.log10(snr) for snr in world.links.uplink_snr()]
    middle = median(pairs_of(found.block(np.arange(8), np.arange(8))))
    for k in range(8):
        assert found.preference[k] == pytest.approx(middle + uplink_db[k] - median(uplink_db))


@pytest.mark.parametrize("reading", ["uplink", "literal"])
def test_without_a_common_unit_the_uplink_chooses_a_quantile(reading: Any) -> None:
    world = random_world(9, 2)
    found = link_similarity(world.links, ClusteringConfig(communication=reading))
    ordered = sorted(pairs_of(found.block(np.arange(9), np.arange(9))))
    for place, k in enumerate(np.argsort(world.links.uplink_snr())):
        exact = (0.25 + 0.5 * (place + 0.5) / 9) * (len(ordered) - 1)
        low = math.floor(exact)
        expected = ordered[low] + (exact - low) * (ordered[low + 1] - ordered[low])
        assert found.preference[k] == pytest.approx(expected)


def test_equal_uplinks_have_equal_preferences() -> None:
    # Mirrored at the base station's axis, so that pairs of devices are equally far from it.
    places = [(0.0, 4.0), (0.0, -4.0), (9.0, 7.0), (9.0, -7.0)]
    world = make_world(places, np.ones((4, 2), int))
    for reading in ("snr-db", "uplink", "literal"):
        wish = link_similarity(world.links, ClusteringConfig(communication=reading)).preference
        assert wish[0] == wish[1]
        assert wish[2] == wish[3]
        assert wish[0] >= wish[2]
        assert wish[0] > wish[2] or reading == "uplink"  # where many pairs are exactly alike


@pytest.mark.parametrize("quantile", [0.0, 0.3, 0.5, 1.0])
def test_preferences_as_a_quantile(quantile: float) -> None:
    world = random_world(6, 4)
    config = ClusteringConfig(preference="quantile", preference_quantile=quantile)
    everyone = np.arange(6)
    for found in (
        link_similarity(world.links, config),
        data_similarity(world.devices.label_counts, config),
    ):
        ordered = sorted(pairs_of(found.block(everyone, everyone)))
        exact = quantile * (len(ordered) - 1)
        low = min(math.floor(exact), len(ordered) - 2)
        expected = ordered[low] + (exact - low) * (ordered[low + 1] - ordered[low])
        assert found.preference == pytest.approx([expected] * 6)


def test_a_quantile_of_many_pairs_is_that_of_a_sample() -> None:
    world = random_world(3100, 6)
    config = ClusteringConfig(communication="uplink", preference="quantile")
    links = link_similarity(world.links, config)
    everyone = np.arange(3100)
    exact = np.median(pairs := links.block(everyone, everyone))
    assert links.preference[0] == pytest.approx(exact, abs=0.02 * pairs.std())


def test_twins_are_devices_with_the_same_data() -> None:
    counts = np.array([[1, 2], [3, 0], [1, 2], [2, 1], [3, 0]])
    devices = np.array([4, 2, 1, 0])
    first, kind = data_similarity(counts, ClusteringConfig()).twins(devices)
    together = {frozenset(devices[kind == one].tolist()) for one in set(kind.tolist())}
    assert together == {frozenset({4, 1}), frozenset({2, 0})}
    assert [kind[at] for at in first] == list(range(2))

    # The same data must not bind where unlike devices are wanted together, or all would lead.
    unlike = ClusteringConfig(data="literal")
    eager = replace(data_similarity(counts, ClusteringConfig()), preference=np.full(5, 0.1))
    for found in (data_similarity(counts, unlike), eager):
        first, kind = found.twins(devices)
        assert first.tolist() == kind.tolist() == [0, 1, 2, 3]
