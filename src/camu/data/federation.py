"""Training data of a fleet: the samples of a data set, dealt to its devices.

Devices in regions get a partition; devices of a fleet file get samples by its label counts, or a
partition of its numbers of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from camu.arrays import Int64, Labels
from camu.config import DataConfig
from camu.data.catalog import Dataset
from camu.data.partition import (
    Dirichlet,
    Iid,
    Mixed,
    Partition,
    Shards,
    Sizes,
    deal,
    whole_numbers,
)
from camu.data.samples import check_parts
from camu.data.standardise import standardised
from camu.data.store import load_configured
from camu.data.validation import held_back
from camu.errors import InputError
from camu.plugins import import_method, user_code
from camu.seeding import derive

MOST_SAMPLES = 100_000_000  # of all devices together: their indices are kept in memory
_TOGETHER_DEVICES = 10_000  # whose labels are counted at the same time
_SHARE = "or let devices share samples with data.with_replacement=true"


@dataclass(frozen=True)
class Federation:
    """A data set and, for each device, the indices of its training samples."""

    dataset: Dataset
    indices: tuple[Int64, ...]
    notes: tuple[str, ...] = ()  # what a user should know of the division
    test_parts: tuple[Int64, ...] | None = None  # test samples of each device that come with it
    seed: int = 0

    @cached_property
    def test_indices(self) -> tuple[Int64, ...]:
        """The test samples of each device: those that come with the data, or else dealt ones.

        As many samples as the test set has are dealt, to each device in proportion to its training
        samples of each label. Where the samples of a label do not go round, devices share them. A
        device without any has only labels that the test set lacks.
        """
        if self.test_parts is not None:
            return self.test_parts
        labels, counts = self.dataset.test_labels, self.label_counts
        held = counts.sum(axis=1)
        sizes = whole_numbers(held.astype(float), max(len(labels), len(held)))
        demand = np.empty_like(counts)
        for device, (own, size) in enumerate(zip(counts, sizes.tolist(), strict=True)):
            demand[device] = np.floor(own * (size / own.sum()))
            rest = own * (size / own.sum()) - demand[device]
            most = np.argsort(-rest, kind="stable")[: size - int(demand[device].sum())]
            demand[device, most] += 1
        generator = derive(self.seed, "test-parts").numpy()
        return tuple(deal(labels, demand, generator, share=True))

    @cached_property
    def label_counts(self) -> Int64:
        """Samples of each label on each device, (devices, classes)."""
        classes = self.dataset.spec.classes
        labels = self.dataset.train_labels
        counts = np.empty((len(self.indices), classes), np.int64)
        for start in range(0, len(self.indices), _TOGETHER_DEVICES):
            part = self.indices[start : start + _TOGETHER_DEVICES]
            device = np.repeat(np.arange(len(part)), [len(own) for own in part])
            places = device * classes + labels[np.concatenate(part)]
            counted = np.bincount(places, minlength=len(part) * classes)
            counts[start : start + len(part)] = counted.reshape(len(part), classes)
        return counts


@dataclass(frozen=True)
class OwnPartition:
    """The user's function, or the method `split` of the user's class; its indices are checked."""

    name: str
    function: Callable[[Labels, int, np.random.Generator], Iterable[npt.ArrayLike]]

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        what = f"data.partition = {self.name}"
        with user_code(what, self.function, "(labels, devices, generator)"):
            parts = [np.asarray(part) for part in self.function(labels, devices, generator)]
        if len(parts) != devices:
            raise InputError(
                f"{what}: {len(parts)} arrays for {devices} devices; return one per device"
            )
        return list(check_parts(parts, what, len(labels)))


@dataclass(frozen=True, eq=False)
class Given:
    """The division that comes with the data; of more parts than devices, some at random."""

    parts: tuple[Int64, ...]

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        if len(self.parts) < devices:
            raise InputError(
                f'data.partition = "given": the data come in {len(self.parts)} parts and there are '
                f"{devices} devices; use fewer devices"
            )
        return [self.parts[part] for part in self.chosen(devices, generator)]

    def chosen(self, devices: int, generator: np.random.Generator) -> Int64:
        """The parts that devices get."""
        return np.sort(generator.permutation(len(self.parts))[:devices])


def federate(config: DataConfig, devices: int, seed: int) -> Federation:
    """Load the data set and deal it to the devices."""
    dataset = load_configured(config)
    sizes = Sizes(config.samples_per_device, config.size_exponent)
    partition = _choose_partition(config, dataset.parts, sizes)
    indices = partition.split(dataset.train_labels, devices, _dealer(seed))
    notes: tuple[str, ...] = ()
    if isinstance(partition, Given) and len(partition.parts) > devices:
        unused = len(partition.parts) - devices
        notes = (
            f'data.partition = "given": the data come in {len(partition.parts)} parts, and '
            f"{unused} of them are not used, because there are {devices} devices",
        )
    elif config.device_column is not None and not isinstance(partition, Given):
        notes = (
            f"data.device_column = {config.device_column}: samples are dealt by data.partition = "
            f'"{config.partition}", not by this column; set data.partition = "given"',
        )
    return _federation(config, dataset, indices, seed, notes, partition)


def federate_counts(
    config: DataConfig, counts: Int64, labels: tuple[int, ...], seed: int, source: str
) -> Federation:
    """Samples of the configured data set such that device k holds `counts[k, l]` of each label.

    `labels[l]` is the class of column l; `source` is the fleet file, named in errors.
    """
    dataset = load_configured(config)
    classes = dataset.spec.classes
    if labels[-1] >= classes or len(labels) > classes:
        raise InputError(
            f"{source}, column label_{labels[-1]}: the data set {config.dataset} has the labels 0 "
            f"to {classes - 1}; remove the column, or train another data set (data.dataset)"
        )
    _check_total(int(counts.sum()), source)
    demand = np.zeros((len(counts), classes), np.int64)
    demand[:, list(labels)] = counts
    _check_labels(config, dataset, demand, source)
    parts = deal(dataset.train_labels, demand, _dealer(seed), config.with_replacement)
    return _federation(config, dataset, parts, seed)


def federate_sizes(config: DataConfig, sizes: Int64, seed: int, source: str) -> Federation:
    """Samples of the configured data set by its partition, `sizes[k]` of them for device k."""
    dataset = load_configured(config)
    wanted, available = int(sizes.sum()), len(dataset.train_labels)
    _check_total(wanted, source)
    if wanted > available and not config.with_replacement:
        raise InputError(
            f"{source}, column samples: the devices hold {wanted} samples, and the training set "
            f"of {config.dataset} has {available}; lower the numbers, {_SHARE}"
        )
    notes: tuple[str, ...] = ()
    fitted, noniid = config, config.noniid_devices or 0
    if config.partition == "mixed" and noniid > len(sizes):  # presets have 14 or 30
        fitted = config.model_copy(update={"noniid_devices": len(sizes)})
        notes = (
            f"data.noniid_devices = {noniid}: the fleet has {len(sizes)} devices, so that all of "
            "them are Non-IID",
        )
    given = Sizes(given=tuple(sizes.tolist()))
    partition = _choose_partition(fitted, dataset.parts, given)
    parts = partition.split(dataset.train_labels, len(sizes), _dealer(seed))
    for device, (part, size) in enumerate(zip(parts, sizes.tolist(), strict=True)):
        if len(part) != size and not config.with_replacement:
            raise InputError(
                f"data.partition = {config.partition}: it gives device {device} of the fleet "
                f"{len(part)} samples, and {source} says {size}; give label counts (label_0, "
                "label_1, ...), or use another partition"
            )
    return _federation(config, dataset, parts, seed, notes, partition)


def _federation(
    config: DataConfig,
    dataset: Dataset,
    parts: list[Int64],
    seed: int,
    notes: tuple[str, ...] = (),
    partition: Partition | None = None,
) -> Federation:
    """The data set as the devices train on it, and their samples."""
    indices, test_parts = tuple(parts), dataset.test_parts
    if isinstance(partition, Given) and test_parts is not None:
        chosen = partition.chosen(len(indices), _dealer(seed))
        test_parts = tuple(test_parts[part] for part in chosen)
    else:
        test_parts = None
    if config.validation_share:
        share = config.validation_share
        dataset, parts, test_parts, said = held_back(dataset, parts, share, seed)
        indices, notes = tuple(parts), (*notes, said)
    if config.standardise:
        dataset = standardised(dataset, indices)
    if dataset.train_inputs.dtype == np.float64:
        what = f"data.dataset = {config.dataset}: inputs are float64"
        notes = (*notes, f"{what}, and a model gets them in single precision")
    return Federation(dataset, indices, notes, test_parts, seed)


def _dealer(seed: int) -> np.random.Generator:
    """The generator that deals samples to devices."""
    return derive(seed, "partition").numpy()


def _choose_partition(
    config: DataConfig, given: tuple[Int64, ...] | None, sizes: Sizes
) -> Partition:
    """The partition that a configuration asks for; `given` is the one that comes with the data."""
    shared = config.with_replacement
    if config.partition == "mixed":
        return Mixed(config.noniid_devices, config.labels_per_device, sizes, shared)
    if config.partition == "dirichlet":
        return Dirichlet(config.alpha, sizes, shared)
    if config.partition == "shards":
        return Shards(config.shards_per_device, sizes, shared)
    if config.partition == "iid":
        return Iid(sizes, shared)
    if config.partition == "given":
        if given is None:
            raise InputError(
                f'data.partition = "given": data.dataset = {config.dataset} comes undivided; name '
                "the data.device_column of a table or of arrays, or a function that returns a list "
                "of arrays of sample indices too, one per device"
            )
        return Given(given)
    own = config.partition
    return OwnPartition(own, import_method(own, "data.partition", "split", config))


def _check_total(wanted: int, source: str) -> None:
    if wanted > MOST_SAMPLES:
        raise InputError(
            f"{source}: the devices hold {wanted} samples, and at most {MOST_SAMPLES} can be "
            "trained; lower the numbers"
        )


def _check_labels(config: DataConfig, dataset: Dataset, demand: Int64, source: str) -> None:
    """Refuse a label that the devices hold more often than the data set has it."""
    supply = np.bincount(dataset.train_labels, minlength=demand.shape[1])
    wanted = demand.sum(axis=0)
    short = (wanted > 0) & (supply == 0) if config.with_replacement else wanted > supply
    for label in np.flatnonzero(short)[:1].tolist():
        remedy = f"lower the counts, {_SHARE}" if supply[label] else "set the counts to 0"
        raise InputError(
            f"{source}, column label_{label}: the devices hold {wanted[label]} samples of this "
            f"label, and the training set of {config.dataset} has {supply[label]}; {remedy}"
        )
