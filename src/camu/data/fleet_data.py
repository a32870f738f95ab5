"""Samples of a data set for the devices of a fleet file: by label counts, or by numbers alone."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np

from camu.arrays import Int64
from camu.config import DataConfig
from camu.data.catalog import Dataset
from camu.data.dealing import deal
from camu.data.partition import Federation, Partition, Sizes, choose_partition, dealer
from camu.data.store import load
from camu.errors import InputError

MOST_SAMPLES = 100_000_000  # of all devices together: their indices are kept in memory
_SHARE = "or let devices share samples with data.with_replacement=true"


def federate_counts(
    config: DataConfig, counts: Int64, labels: tuple[int, ...], seed: int, source: str
) -> Federation:
    """Samples of the configured data set such that device k holds `counts[k, l]` of each label.

    `labels[l]` is the class of column l; `source` is the fleet file, named in errors.
    """
    dataset = load(config.dataset, config.directory)
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
    parts = deal(dataset.train_labels, demand, dealer(seed), config.with_replacement)
    return Federation(dataset, tuple(parts))


def federate_sizes(config: DataConfig, sizes: Int64, seed: int, source: str) -> Federation:
    """Samples of the configured data set by its partition, `sizes[k]` of them for device k."""
    dataset = load(config.dataset, config.directory)
    wanted, available = int(sizes.sum()), len(dataset.train_labels)
    _check_total(wanted, source)
    if wanted > available and not config.with_replacement:
        raise InputError(
            f"{source}, column samples: the devices hold {wanted} samples, and the training set "
            f"of {config.dataset} has {available}; lower the numbers, {_SHARE}"
        )
    partition = _with_sizes(choose_partition(_fitted(config, len(sizes)), dataset.parts), sizes)
    parts = partition.split(dataset.train_labels, len(sizes), dealer(seed))
    for device, (part, size) in enumerate(zip(parts, sizes.tolist(), strict=True)):
        if len(part) != size and not config.with_replacement:
            raise InputError(
                f"data.partition = {config.partition}: it gives device {device} of the fleet "
                f"{len(part)} samples, and {source} says {size}; give label counts (label_0, "
                "label_1, ...), or use another partition"
            )
    return Federation(dataset, tuple(parts))


def _fitted(config: DataConfig, devices: int) -> DataConfig:
    """The section with at most as many Non-IID devices as the fleet has; presets have 14 or 30."""
    if config.noniid_devices is None or config.noniid_devices <= devices:
        return config
    return config.model_copy(update={"noniid_devices": devices})


def _with_sizes(partition: Partition, sizes: Int64) -> Partition:
    """The partition with these sizes, if it takes any."""
    given: Any = partition
    if is_dataclass(given) and any(field.name == "sizes" for field in fields(given)):
        return cast(Partition, replace(cast(Any, given), sizes=Sizes(given=tuple(sizes.tolist()))))
    return partition


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
