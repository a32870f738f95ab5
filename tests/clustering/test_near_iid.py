"""Near-IID groups: against every partition of small fleets, and on large ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camu.arrays import Int64
from camu.clustering import near_iid
from camu.clustering.near_iid import balanced_groups, dealt_groups, excess, imbalance


def partitions(count: int, groups: int) -> Iterator[list[int]]:
    """All ways to divide devices into groups of equal size, or one more, up to names."""
    least, larger = divmod(count, groups)

    def extend(group: list[int], sizes: list[int]) -> Iterator[list[int]]:
        if len(group) == count:
            yield group
            return
        for number in range(min(len(sizes) + 1, groups)):
            grown = [*sizes, 0] if number == len(sizes) else list(sizes)
            grown[number] += 1
            if grown[number] > least + (larger > 0) or sum(n > least for n in grown) > larger:
                continue
            yield from extend([*group, number], grown)

    for found in extend([], []):
        sizes = np.bincount(found, minlength=groups)
        if sizes.min() >= least:
            yield found


def two_labels(rng: np.random.Generator, count: int) -> Int64:
    """Devices with two labels of six, of unlike sizes."""
    counts = np.zeros((count, 6), dtype=np.int64)
    for row in counts:
        row[rng.choice(6, 2, replace=False)] = rng.integers(5, 50, 2)
    return counts


@pytest.mark.parametrize(("count", "groups"), [(6, 3), (7, 2), (8, 2), (9, 3), (10, 3)])
def test_small_fleets_are_divided_as_well_as_brute_force_can(count: int, groups: int) -> None:
    rng = np.random.default_rng(count)
    ways = [np.array(way) for way in partitions(count, groups)]
    ratios = []
    for seed in range(20):
        counts = two_labels(rng, count)
        everyone = counts.sum(axis=0) + rng.integers(0, 20, 6)  # others are elsewhere
        rows = excess(counts, everyone)
        found = imbalance(rows, balanced_groups(counts, everyone, groups, seed))
        least = min(imbalance(rows, way) for way in ways)
        assert found >= least * (1 - 1e-9)
        ratios.append(found / least)
    assert np.mean(np.array(ratios) < 1 + 1e-9) >= 0.9
    assert max(ratios) < 1.3


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            st.lists(
                st.lists(st.integers(0, 30), min_size=3, max_size=3).filter(any),
                min_size=n,
                max_size=n,
            ),
            st.integers(1, n),
        )
    )
)
@settings(max_examples=50, deadline=None)
def test_groups_have_equal_sizes_and_no_swap_helps(drawn: tuple[list[list[int]], int]) -> None:
    counts, groups = np.array(drawn[0]), drawn[1]
    everyone = counts.sum(axis=0)
    group = balanced_groups(counts, everyone, groups, 0)
    sizes = np.bincount(group, minlength=groups)
    assert sizes.max() - sizes.min() <= 1
    rows = excess(counts, everyone)
    before = imbalance(rows, group)
    for i in range(len(group)):
        for j in range(i):
            trial = group.copy()
            trial[[i, j]] = group[[j, i]]
            assert imbalance(rows, trial) >= before - 1e-6 * max(before, 1.0)


@pytest.mark.slow
def test_two_thousand_devices() -> None:
    rng = np.random.default_rng(0)
    counts = np.zeros((2_000, 10), dtype=np.int64)
    for row in counts:
        row[rng.choice(10, 2, replace=False)] = rng.integers(50, 150)
    everyone = counts.sum(axis=0)
    group = balanced_groups(counts, everyone, 100, 0)
    assert (np.bincount(group) == 20).all()
    pooled = np.zeros((100, 10))
    np.add.at(pooled, group, counts)
    shares = pooled / pooled.sum(axis=1, keepdims=True)
    tv = 0.5 * np.abs(shares - everyone / everyone.sum()).sum(axis=1)
    assert tv.max() < 0.05  # of devices alone 0.8, of random groups 0.2
    assert tv.mean() < 0.02


def test_many_groups_are_dealt_in_parts_and_are_as_alike_as_if_dealt_at_once() -> None:
    draw = np.random.default_rng(0)
    shares = draw.dirichlet(np.full(10, 0.5), 3001)
    counts = np.stack([draw.multinomial(300, share) for share in shares])
    rows = excess(counts, counts.sum(axis=0))
    for groups in (600, 1300):
        group = dealt_groups(counts, counts.sum(axis=0), groups)
        sizes = np.bincount(group, minlength=groups)
        assert len(sizes) == groups
        assert sizes.max() - sizes.min() <= 1
        at_once = near_iid._dealt_at_once(rows, near_iid._largest_first(rows), groups)
        by_chance = imbalance(rows, draw.permutation(3001) % groups)
        assert imbalance(rows, group) < 1.1 * imbalance(rows, at_once) < 0.9 * by_chance
