"""Partitions: whole, disjoint, sized as asked, and refused with a reason when impossible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from camu.data import load
from camu.data.federation import Federation
from camu.data.partition import Dirichlet, Iid, Mixed, Partition, Shards, Sizes, deal_decks
from camu.errors import InputError
from camu.seeding import derive


@st.composite
def label_arrays(draw: st.DrawFn) -> NDArray[np.uint8]:
    classes = draw(st.integers(1, 10))
    count = draw(st.integers(classes, 400))
    labels = derive(draw(st.integers(0, 99)), "own-test").numpy().integers(classes, size=count)
    labels[:classes] = np.arange(classes)  # every label occurs
    return labels.astype(np.uint8)


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    sizes = Sizes(
        draw(st.none() | st.integers(1, 50)),
        draw(st.just(0.0) | st.floats(0, 3)),
    )
    shared = draw(st.booleans())
    return draw(
        st.sampled_from(
            [
                Iid(sizes, shared),
                Mixed(draw(st.integers(0, 12)), draw(st.integers(1, 4)), sizes, shared),
                Dirichlet(draw(st.floats(1e-6, 1e3)), sizes, shared),
                Shards(draw(st.integers(1, 3)), sizes, shared),
            ]
        )
    )


@settings(max_examples=300)
@given(labels=label_arrays(), partition=partitions(), devices=st.integers(1, 40))
def test_every_split_is_whole_or_refused(
    labels: NDArray[np.uint8], partition: Partition, devices: int
) -> None:
    try:
        parts = partition.split(labels, devices, derive(1, "own-split").numpy())
    except InputError:
        return
    assert len(parts) == devices
    assert all(len(part) >= 1 for part in parts)
    joined = np.concatenate(parts)
    assert joined.min() >= 0
    assert joined.max() < len(labels)
    if not partition.with_replacement:
        assert len(np.unique(joined)) == len(joined)
    again = partition.split(labels, devices, derive(1, "own-split").numpy())
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


LABELS = np.repeat(np.arange(10), 600).astype(np.uint8)


@pytest.mark.parametrize("noniid", [0, 6, 30, None])
@pytest.mark.parametrize("per_device", [1, 2, 3])
def test_mixed_is_what_it_says(noniid: int | None, per_device: int) -> None:
    sizes = Sizes(120)
    parts = Mixed(noniid, per_device, sizes).split(LABELS, 30, derive(0, "own-x").numpy())
    counts = np.stack([np.bincount(LABELS[part], minlength=10) for part in parts])
    held = (counts > 0).sum(axis=1)
    assert (held == per_device).sum() == (30 if noniid is None else noniid)
    for row in counts:
        own = row[row > 0]
        assert own.max() - own.min() == 0  # equal parts: 120 divides by 1, 2, 3 and 10
    assert (counts.sum(axis=1) == 120).all()


def test_mixed_uses_all_labels_alike() -> None:
    parts = Mixed(30, 2, Sizes(100)).split(LABELS, 30, derive(3, "own-x").numpy())
    users = sum((np.bincount(LABELS[part], minlength=10) > 0).astype(int) for part in parts)
    assert (users == 6).all()


def test_mixed_takes_as_much_as_the_scarcest_label_allows() -> None:
    labels = np.concatenate([LABELS, np.zeros(5000)]).astype(np.uint8)
    parts = Mixed(None, 2).split(labels, 30, derive(0, "own-x").numpy())
    # Six devices share each label's 600 samples, half of each device's data.
    assert 190 <= len(parts[0]) <= 200
    assert len({len(part) for part in parts}) == 1


def test_power_law_sizes() -> None:
    parts = Iid(Sizes(100, 1.0)).split(LABELS, 30, derive(0, "own-x").numpy())
    sizes = np.sort([len(part) for part in parts])[::-1]
    assert sizes.sum() == 3000
    expected = 1 + (3000 - 30) * np.arange(1, 31) ** -1.0 / (np.arange(1, 31) ** -1.0).sum()
    assert np.abs(sizes - expected).max() <= 1


def test_dirichlet_skew_falls_with_alpha() -> None:
    def spread(alpha: float) -> float:
        parts = Dirichlet(alpha, Sizes(100)).split(LABELS, 30, derive(0, "own-x").numpy())
        return float(np.mean([np.bincount(LABELS[p], minlength=10).max() / len(p) for p in parts]))

    assert spread(0.05) > 0.6 > spread(1.0) > spread(100.0)
    assert spread(100.0) < 0.25


def test_shards_hold_few_labels() -> None:
    parts = Shards(2).split(LABELS, 30, derive(0, "own-x").numpy())
    assert max(len(np.unique(LABELS[part])) for part in parts) <= 4
    assert sorted(np.concatenate(parts)) == list(range(6000))


@pytest.mark.parametrize(
    ("partition", "devices", "said"),
    [
        (Iid(Sizes(1000)), 30, "with_replacement"),
        (Mixed(30, 2, Sizes(300)), 30, "label"),
        (Mixed(31), 30, "only 30 devices"),
        (Mixed(3, 11), 30, "only 10 labels"),
        (Shards(300, Sizes(100)), 30, "shards_per_device"),
        (Shards(2, Sizes(100, 1.0)), 30, "size_exponent"),
        (Iid(), 6001, "at least one each"),
        (Iid(), 0, "at least one device"),
    ],
)
def test_impossible_requests_say_why(partition: Partition, devices: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        partition.split(LABELS, devices, derive(0, "own-x").numpy())


def test_replacement_shares_only_between_devices() -> None:
    parts = Mixed(30, 2, Sizes(300), with_replacement=True).split(
        LABELS, 30, derive(0, "own-x").numpy()
    )
    assert all(len(part) == 300 == len(np.unique(part)) for part in parts)


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize("kind", [Iid, Mixed, Dirichlet, Shards])
def test_with_replacement_there_may_be_more_devices_than_samples(
    kind: type, size: int | None
) -> None:
    """6001 devices share 6000 samples; every device holds one."""
    one = {"labels_per_device": 1} if kind is Mixed else {}
    one |= {"shards_per_device": 1} if kind is Shards else {}
    partition = kind(sizes=Sizes(size), with_replacement=True, **one)
    parts = partition.split(LABELS, 6001, derive(0, "own-x").numpy())
    assert {len(part) for part in parts} == {size or 1}


@settings(max_examples=200, deadline=None)
@given(
    size=st.integers(1, 12),
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    seed=st.integers(0, 99),
)
def test_decks_are_dealt_evenly_and_no_device_holds_a_sample_too_often(
    size: int, counts: list[int], seed: int
) -> None:
    pool = 100 + np.arange(size)
    wanted = np.array(counts)
    dealt = deal_decks(pool, wanted, derive(seed, "own-decks").numpy())
    hands = np.split(dealt, np.cumsum(wanted)[:-1])
    for hand, count in zip(hands, counts, strict=True):
        times = np.bincount(hand - 100, minlength=size)
        assert times.sum() == count
        assert times.max() - times.min() <= 1
    # Without the whole pools, the hands follow each other through whole decks.
    used = np.bincount(dealt - 100, minlength=size)
    assert used.max() - used.min() <= 1


def test_shared_samples_of_a_hand_are_uniform() -> None:
    pool, generator = np.arange(5), derive(0, "own-decks").numpy()
    hands = deal_decks(pool, np.full(20_000, 2), generator).reshape(-1, 2)
    pairs = np.bincount(5 * hands.min(axis=1) + hands.max(axis=1), minlength=25)
    expected = 20_000 / 10  # pairs of different samples
    assert (np.abs(pairs[pairs > 0] - expected) < 5 * np.sqrt(expected)).all()
    assert (pairs > 0).sum() == 10


@pytest.mark.parametrize(
    "partition",
    [
        Iid(Sizes(70), True),
        Mixed(8, 2, Sizes(70, 1.0), True),
        Dirichlet(0.3, Sizes(70), True),
        Shards(2, Sizes(70), True),
    ],
)
def test_label_counts_are_those_of_a_plain_count(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camu.data.federation._TOGETHER_DEVICES", 7)
    dataset = load("digits")
    parts = partition.split(dataset.train_labels, 40, derive(0, "own-x").numpy())
    federation = Federation(dataset, tuple(parts))
    plain = [np.bincount(dataset.train_labels[own], minlength=10) for own in parts]
    assert (federation.label_counts == np.stack(plain)).all()


def test_shared_dirichlet_keeps_to_what_a_label_has() -> None:
    labels = np.repeat([0, 1, 2], [3, 200, 200])
    parts = Dirichlet(1.0, Sizes(50), True).split(labels, 30, derive(0, "own-x").numpy())
    counts = np.stack([np.bincount(labels[part], minlength=3) for part in parts])
    assert (counts.sum(axis=1) == 50).all()
    assert counts[:, 0].max() == 3
