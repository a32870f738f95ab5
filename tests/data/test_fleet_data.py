"""Samples for a fleet file's devices: exactly the labels or the numbers that the file gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from camu.config import DataConfig
from camu.data.federation import federate_counts, federate_sizes
from camu.errors import InputError

DIGITS = DataConfig(dataset="digits")
TEN = tuple(range(10))


def digits(**changes: Any) -> DataConfig:
    return DIGITS.model_copy(update=changes)


def test_label_counts_are_dealt_as_they_are_without_sharing() -> None:
    counts = np.random.default_rng(3).integers(0, 12, (8, 10))
    counts[:, 0] += 1
    found = federate_counts(DIGITS, counts, TEN, 5, "f.csv")
    assert (found.label_counts == counts).all()
    for part, row in zip(found.indices, counts, strict=True):
        labels = found.dataset.train_labels[part]
        assert np.bincount(labels, minlength=10).tolist() == row.tolist()
    dealt = np.concatenate(found.indices)
    assert len(np.unique(dealt)) == len(dealt)
    again = federate_counts(DIGITS, counts, TEN, 5, "f.csv")
    other = federate_counts(DIGITS, counts, TEN, 6, "f.csv")
    assert np.array_equal(dealt, np.concatenate(again.indices))
    assert not np.array_equal(dealt, np.concatenate(other.indices))


def test_columns_stand_for_the_classes_of_their_numbers() -> None:
    found = federate_counts(DIGITS, np.array([[3, 4]]), (7, 8), 0, "f.csv")
    assert found.label_counts.tolist() == [[0, 0, 0, 0, 0, 0, 0, 3, 4, 0]]


def test_too_many_of_a_label_are_refused_with_the_numbers_or_shared() -> None:
    counts = np.tile([0, 0, 100, 1], (4, 1))
    dataset = federate_counts(DIGITS, counts[:1], (0, 1, 2, 3), 0, "f.csv").dataset
    supply = int((dataset.train_labels == 2).sum())
    with pytest.raises(InputError) as caught:
        federate_counts(DIGITS, counts, (0, 1, 2, 3), 0, "f.csv")
    for word in ("f.csv, column label_2", "hold 400", f"digits has {supply}", "with_replacement"):
        assert word in str(caught.value)
    shared = federate_counts(digits(with_replacement=True), counts, (0, 1, 2, 3), 0, "f.csv")
    assert (shared.label_counts[:, :4] == counts).all()
    assert all(len(np.unique(part)) == len(part) for part in shared.indices)


def test_a_label_that_the_data_set_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match=r"f\.csv, column label_10: .* the labels 0 to 9"):
        federate_counts(DIGITS, np.ones((2, 3), int), (8, 9, 10), 0, "f.csv")


@pytest.mark.parametrize("shared", [False, True])
def test_absurd_numbers_are_refused(shared: bool) -> None:
    config, many = digits(with_replacement=shared), np.array([10**12, 5])
    with pytest.raises(InputError, match=r"f\.csv: the devices hold 1000000000005 samples"):
        federate_sizes(config, many, 0, "f.csv")
    with pytest.raises(InputError, match=r"f\.csv: the devices hold 1000000000005 samples"):
        federate_counts(config, many[:, None], (0,), 0, "f.csv")


@pytest.mark.parametrize("partition", ["iid", "mixed", "dirichlet", "shards"])
def test_numbers_of_samples_give_a_partition_of_these_sizes(partition: str) -> None:
    sizes = np.array([5, 90, 17, 33, 2, 60])
    found = federate_sizes(digits(partition=partition), sizes, 4, "f.csv")
    assert [len(part) for part in found.indices] == sizes.tolist()
    dealt = np.concatenate(found.indices)
    assert len(np.unique(dealt)) == len(dealt)
    skewed = [(row > 0).sum() for row in found.label_counts]
    if partition == "mixed":
        assert max(skewed) == 2
    if partition == "shards":  # two shards of neighbouring labels
        assert skewed[4] == 2
    if partition == "iid":
        assert skewed[1] == 10


def test_presets_may_have_more_non_iid_devices_than_the_fleet() -> None:
    found = federate_sizes(digits(noniid_devices=14), np.array([20, 20, 20]), 0, "f.csv")
    assert [(row > 0).sum() for row in found.label_counts] == [2, 2, 2]


def test_too_many_samples_are_refused_with_the_numbers_or_shared() -> None:
    sizes = np.array([1400, 1400])
    with pytest.raises(InputError, match=r"f\.csv, column samples: .* 2800 samples, .* digits has"):
        federate_sizes(digits(partition="iid"), sizes, 0, "f.csv")
    found = federate_sizes(digits(partition="iid", with_replacement=True), sizes, 0, "f.csv")
    assert [len(part) for part in found.indices] == [1400, 1400]


def halves(labels: Any, devices: int, generator: Any) -> list[Any]:
    return np.array_split(np.arange(len(labels)), devices)


def test_an_own_partition_of_other_sizes_is_refused() -> None:
    config = digits(partition=f"{__name__}:halves")
    with pytest.raises(InputError, match=r"gives device 0 .* f\.csv says 3; give label counts"):
        federate_sizes(config, np.array([3, 4]), 0, "f.csv")


def test_fewer_devices_than_noniid_devices_is_said() -> None:
    found = federate_sizes(digits(noniid_devices=14), np.full(3, 20), 0, "f.csv")
    assert found.notes == (
        "data.noniid_devices = 14: the fleet has 3 devices, so that all of them are Non-IID",
    )
    assert federate_sizes(digits(noniid_devices=3), np.full(3, 20), 0, "f.csv").notes == ()
    iid = digits(noniid_devices=14, partition="iid")
    assert federate_sizes(iid, np.full(3, 20), 0, "f.csv").notes == ()
