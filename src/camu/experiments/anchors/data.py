"""The data sets of published tables that are not built in, made from those that are."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from camu.arrays import AnyArray
from camu.data import load

Two = tuple[tuple[AnyArray, AnyArray], tuple[AnyArray, AnyArray]]
SOFT = 1e-3  # added to a pixel's standard deviation, on the scale from 0 to 255


@cache
def all_digits() -> Two:
    """All 70 000 digits of MNIST by pixel, (x - mean) / (sd + 0.001); no test part of its own.

    Each user holds back a part of its digits for test (`data.validation_share`).
    """
    found = load("mnist")
    images = np.concatenate([found.train_inputs, found.test_inputs]).reshape(70_000, 784)
    labels = np.concatenate([found.train_targets, found.test_targets]).astype(np.int64)
    scaled = images.astype(np.float32)
    scaled -= images.mean(0)
    scaled /= images.std(0) + SOFT
    return (scaled, labels), (scaled[:10], labels[:10])


def parity() -> Two:
    """MNIST with two classes: 1 for even digits."""
    found = load("mnist")
    both = (
        (found.train_inputs, found.train_targets),
        (found.test_inputs, found.test_targets),
    )
    (train, digits), (test, others) = both
    even = [(1 - own.astype(np.int64) % 2) for own in (digits, others)]
    return (train, even[0]), (test, even[1])


def cube(seed: int = 0, per_party: int = 1000) -> Two:
    """Points of the cube [-1, 1]^3 whose label is the sign of their first axis.

    Party q has the octant of signs q on the other axes, and what mirrors it at the origin. Points
    of a party follow one another, party by party.
    """
    draw = random.Random(seed)  # points of a data set, no secret  # nosec B311
    points, labels = [], []
    for second, third in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        for number in range(per_party):
            point = np.array([draw.random(), second * draw.random(), third * draw.random()])
            points.append(point if number % 2 == 0 else -point)
            labels.append(number % 2)
    test = np.array([[2 * draw.random() - 1 for _ in range(3)] for _ in range(1000)])
    return (
        (np.array(points, dtype=np.float32), np.array(labels, dtype=np.int64)),
        (test.astype(np.float32), (test[:, 0] < 0).astype(np.int64)),
    )
