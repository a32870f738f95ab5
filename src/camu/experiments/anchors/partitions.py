"""How the authors of published tables deal samples to devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from camu.arrays import Float64, Int64, Labels
from camu.data import load

BENCH_SEED = 42  # the default of the benchmark's loader: its partition is the same for every seed


def first_part(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Equal parts at random, of which a device trains on the first four fifths."""
    parts = np.array_split(generator.permutation(len(labels)), devices)
    return [part[: int(0.8 * len(part))] for part in parts]


def first_part_of_shards(
    labels: Labels, devices: int, generator: np.random.Generator
) -> list[Int64]:
    """Two shards of sorted labels each, of which a device trains on the first four fifths."""
    return [part[: int(0.8 * len(part))] for part in _shards(labels, devices, generator)]


def early_part(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Equal parts at random, of which a device trains on the first 70 %."""
    parts = np.array_split(generator.permutation(len(labels)), devices)
    return [part[: int(0.7 * len(part))] for part in parts]


def early_part_of_shards(
    labels: Labels, devices: int, generator: np.random.Generator
) -> list[Int64]:
    """Two shards of sorted labels each, of which a device trains on the first 70 %."""
    return [part[: int(0.7 * len(part))] for part in _shards(labels, devices, generator)]


def _shards(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Samples sorted by label in two shards per device, drawn at random, one after the other."""
    shards = np.array_split(np.argsort(labels, kind="stable"), 2 * devices)
    order = generator.permutation(2 * devices).reshape(devices, 2)
    return [np.concatenate([shards[one], shards[other]]) for one, other in order]


def two_labels_by_log_normal(
    labels: Labels, devices: int, generator: np.random.Generator
) -> list[Int64]:
    """User u holds labels u and u + 1 (mod 10): five each, then log-normal shares while they fit.

    The shares of a label's users are drawn from exp(N(0, 2)) and multiply what the label has left.
    A user whose share does not fit any more keeps its five.
    """
    classes = 10
    order = generator.permutation(len(labels))
    by_label = [order[labels[order] == label] for label in range(classes)]
    taken = [0] * classes
    parts: list[list[Int64]] = [[] for _ in range(devices)]

    def take(user: int, label: int, count: int) -> None:
        parts[user].append(by_label[label][taken[label] : taken[label] + count])
        taken[label] += count

    for user in range(devices):
        for step in range(2):
            take(user, (user + step) % classes, 5)
    props = generator.lognormal(0, 2.0, (classes, devices // classes, 2))
    left = np.array([len(own) for own in by_label]) - devices // classes * 2 * 5
    props = left[:, None, None] * props / props.sum(axis=(1, 2), keepdims=True)
    for user in range(devices):
        for step in range(2):
            label = (user + step) % classes
            count = int(props[label, user // classes, step])
            if taken[label] + count < len(by_label[label]):
                take(user, label, count)
    return [generator.permutation(np.concatenate(own)) for own in parts]


def parties(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Samples in their order, in equal parts."""
    return [np.asarray(own) for own in np.array_split(np.arange(len(labels)), devices)]


USERS = (100, 200, 300, 400, 500, 400, 300, 200, 100)  # samples of each


def by_user(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Samples at random, as many as each user of the list has."""
    order = generator.permutation(len(labels))
    return list(np.split(order[: sum(USERS)], np.cumsum(USERS)[:-1]))


def _digits() -> Labels:
    return load("mnist").train_labels


def in_turn(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Sample i to node i mod 5."""
    return [np.arange(node, len(labels), 5) for node in range(5)]


def digits_in_turn(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Digit d to node d mod 5, which then has an even and an odd one."""
    return [np.flatnonzero(_digits() % 5 == node) for node in range(5)]


def everything(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """All samples to each of five nodes."""
    return [np.arange(len(labels)) for _ in range(5)]


def halves(labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
    """Digits 0 to 4 to nodes 0 to 2 in turn, even ones above to node 3, odd ones to node 4."""
    digits = _digits()
    low = [np.flatnonzero((digits < 5) & (np.arange(len(digits)) % 3 == node)) for node in range(3)]
    return [*low, *(np.flatnonzero((digits > 4) & (digits % 2 == odd)) for odd in (0, 1))]


@dataclass(frozen=True)
class _Bench:
    """A partition of the benchmark by a generator of its own; the run's seed does not move it."""

    section: Any  # `data` of the configuration

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        return self.deal(labels, devices, np.random.default_rng(BENCH_SEED))

    def deal(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        raise NotImplementedError


class BenchIid(_Bench):
    """A random order in equal parts."""

    def deal(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        order = generator.choice(len(labels), len(labels), replace=False)
        return list(np.array_split(order, devices))


class BenchDirichlet(_Bench):
    """Each label by Dirichlet(0.5) among the devices that hold less than an even part."""

    def deal(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        even = len(labels) / devices
        while True:
            held: list[list[int]] = [[] for _ in range(devices)]
            for label in range(10):
                own = np.flatnonzero(labels == label)
                generator.shuffle(own)
                shares: Float64 = generator.dirichlet(np.full(devices, 0.5))
                shares = shares * np.array([len(part) < even for part in held])
                shares = shares / shares.sum()
                cuts = (np.cumsum(shares) * len(own)).astype(int)[:-1]
                for part, given in zip(held, np.split(own, cuts), strict=True):
                    part.extend(given.tolist())
            if min(map(len, held)) >= 10:
                return [np.array(part, dtype=np.int64) for part in held]


class _BenchLabels(_Bench):
    """Device i has label i (mod 10) and others drawn at random; its holders share each label."""

    count = 1

    def deal(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        own = self.labels_of(devices, generator)
        parts: list[list[Int64]] = [[] for _ in range(devices)]
        for label in range(10):
            holders = [device for device in range(devices) if label in own[device]]
            samples = np.flatnonzero(labels == label)
            generator.shuffle(samples)
            for device, given in zip(
                holders, np.array_split(samples, max(1, len(holders))), strict=False
            ):
                parts[device].append(given)
        return [np.concatenate(part) for part in parts]

    def labels_of(self, devices: int, generator: np.random.Generator) -> list[list[int]]:
        """The labels of each device, its own first."""
        found = []
        for device in range(devices):
            own = [device % 10]
            while len(own) < self.count:
                other = int(generator.integers(0, 10))
                if other not in own:
                    own.append(other)
            found.append(own)
        return found


class BenchOneLabel(_BenchLabels):
    """One label per device."""


class BenchTwoLabels(_BenchLabels):
    """Two labels per device."""

    count = 2


class BenchThreeLabels(_BenchLabels):
    """Three labels per device."""

    count = 3
