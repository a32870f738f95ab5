"""Validation: samples that are held back from the devices' training data, in place of the test set.

Whatever is chosen by looking at scores, such as rates and numbers of local updates, is chosen on
these, so that the test set stays unseen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from camu.arrays import Int64
from camu.data.catalog import Dataset
from camu.errors import InputError
from camu.seeding import derive


def held_back(
    dataset: Dataset, parts: list[Int64], share: float, seed: int
) -> tuple[Dataset, list[Int64], tuple[Int64, ...], str]:
    """The data set judged by held-back samples, what devices train on, and each device's own ones.

    Each device holds back this share of its samples, at random; one that would lose its last sample
    keeps it. What any device holds back no device trains on, where devices share samples too. The
    last value is a sentence for users.
    """
    rank = derive(seed, "validation").numpy().permutation(len(dataset.train_labels))
    own = [_first(part, rank, share) for part in parts]
    held = np.unique(np.concatenate(own))
    if not len(held):
        raise InputError(
            f"data.validation_share = {share:g}: no device has a sample to spare; raise it, or "
            "give the devices more samples"
        )
    trained = [part[~np.isin(part, held)] for part in parts]
    if empty := [number for number, part in enumerate(trained) if not len(part)]:
        raise InputError(
            f"data.validation_share = {share:g}: device {empty[0]} would have no sample left to "
            "train on, because other devices hold its samples back; lower it"
        )
    count = len(held)
    labels = dataset.labels and (dataset.labels[0], dataset.labels[0][held])
    judged = replace(
        dataset,
        spec=replace(dataset.spec, test_samples=count),
        test_inputs=dataset.train_inputs[held],
        test_targets=dataset.train_targets[held],
        test_parts=None,
        labels=labels,
    )
    note = (
        f"data.validation_share = {share:g}: models are judged by {count} samples that devices "
        "hold back from training; the test samples are not used"
    )
    return judged, trained, tuple(np.searchsorted(held, each) for each in own), note


def _first(part: Int64, rank: Int64, share: float) -> Int64:
    """The samples that a device holds back: those of the lowest ranks."""
    samples = np.unique(part)
    wanted = min(round(share * len(samples)), len(samples) - 1)
    return np.sort(samples[np.argsort(rank[samples], kind="stable")[:wanted]])
