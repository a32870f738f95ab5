"""A data set dealt to devices: what the fleet learns from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from camu.arrays import Int64
from camu.config import DataConfig
from camu.data.catalog import Dataset
from camu.data.partition import (
    Dirichlet,
    Iid,
    Mixed,
    OwnPartition,
    Partition,
    Shards,
    Sizes,
)
from camu.data.store import load
from camu.plugins import import_method
from camu.seeding import derive


@dataclass(frozen=True)
class Federation:
    """A data set and, for each device, the indices of its training samples."""

    dataset: Dataset
    indices: tuple[Int64, ...]

    @cached_property
    def label_counts(self) -> Int64:
        """Samples of each label on each device, (devices, classes)."""
        classes = self.dataset.spec.classes
        labels = self.dataset.train_labels
        return np.stack([np.bincount(labels[own], minlength=classes) for own in self.indices])


def choose_partition(config: DataConfig) -> Partition:
    """The partition that a configuration asks for."""
    sizes = Sizes(config.samples_per_device, config.sizes, config.size_exponent)
    shared = config.with_replacement
    if config.partition == "mixed":
        return Mixed(config.noniid_devices, config.labels_per_device, sizes, shared)
    if config.partition == "dirichlet":
        return Dirichlet(config.alpha, sizes, shared)
    if config.partition == "shards":
        return Shards(config.shards_per_device, sizes, shared)
    if config.partition == "iid":
        return Iid(sizes, shared)
    own = config.partition
    return OwnPartition(own, import_method(own, "data.partition", "split", config))


def federate(config: DataConfig, devices: int, seed: int) -> Federation:
    """Load the data set and deal it to the devices."""
    dataset = load(config.dataset, config.directory)
    generator = derive(seed, "partition").numpy()
    indices = choose_partition(config).split(dataset.train_labels, devices, generator)
    return Federation(dataset, tuple(indices))
