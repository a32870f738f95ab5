"""The messages of affinity propagation (Frey and Dueck 2007), for many equal-sized sets at once.

r(i, k) says how well k would serve i as its exemplar, a(i, k) how readily k would take i:

    r(i, k) <- s(i, k) - max over k' != k of a(i, k') + s(i, k')
    a(i, k) <- min(0, r(k, k) + sum over i' not in {i, k} of max(0, r(i', k)))   for i != k
    a(k, k) <- sum over i' != k of max(0, r(i', k))

Each new message is averaged with the one before (damping). A set has settled when the same devices
have been exemplars, a(k, k) + r(k, k) > 0, for a number of iterations.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64

Mask = npt.NDArray[np.bool_]
MOST_ITERATIONS = 400  # of one attempt
SETTLED_AFTER = 15  # iterations without change (T_cl)


class Settled(NamedTuple):
    """The exemplars of each set (sets, n), none where none was found, and which sets settled."""

    exemplars: Mask
    settled: Mask


def pass_messages(similarity: Float64, damping: float, most_iterations: int) -> Settled:
    """Exemplars of sets of n devices, from similarities (sets, n, n) with preferences as diagonals.

    The sets do not influence each other: each gets the bits that it would get alone.
    """
    sets, size = similarity.shape[:2]
    similarity = _without_ties(similarity)
    exemplars, settled = np.zeros((sets, size), bool), np.zeros(sets, bool)
    running = np.arange(sets)
    state = _Messages(similarity, damping)
    for iteration in range(most_iterations):
        state.exchange()
        done = state.unchanged >= SETTLED_AFTER
        if iteration < SETTLED_AFTER or not done.any():
            continue
        done &= state.exemplars.any(axis=1)
        exemplars[running[done]] = state.exemplars[done]
        settled[running[done]] = iteration + 1 < most_iterations
        running, state = running[~done], state.select(~done)
        if not len(running):
            break
    exemplars[running] = state.exemplars
    return Settled(_refined(similarity, exemplars), settled)


class _Messages:
    """The messages of all sets that have not settled yet."""

    def __init__(self, similarity: Float64, damping: float) -> None:
        self.similarity = similarity
        self.damping = damping
        self.responsibility = np.zeros_like(similarity)
        self.availability = np.zeros_like(similarity)
        self.exemplars = np.zeros(similarity.shape[:2], bool)
        self.unchanged = np.zeros(len(similarity), np.int64)  # iterations with these exemplars
        self._room = np.empty_like(similarity)
        self._rows = np.arange(similarity.shape[0] * similarity.shape[1]) * similarity.shape[1]

    def exchange(self) -> None:
        """One iteration."""
        room, fresh = self._room, 1.0 - self.damping
        # Responsibilities: the best alternative is the best of all, or the second for the best.
        np.add(self.availability, self.similarity, out=room)
        flat = room.reshape(-1)
        best = self._rows + room.argmax(axis=2).reshape(-1)
        first = flat[best]
        flat[best] = -np.inf
        second = room.max(axis=2).reshape(-1)
        np.subtract(self.similarity, first.reshape(*room.shape[:2], 1), out=room)
        flat[best] = self.similarity.reshape(-1)[best] - second
        room *= fresh
        self.responsibility *= self.damping
        self.responsibility += room
        # Availabilities, with their signs turned until they are added.
        np.maximum(self.responsibility, 0.0, out=room)
        own, responsibility = _diagonal(room), _diagonal(self.responsibility)
        own[:] = responsibility
        room -= room.sum(axis=1, keepdims=True)
        kept = own.copy()
        np.maximum(room, 0.0, out=room)
        own[:] = kept
        room *= fresh
        self.availability *= self.damping
        self.availability -= room
        now = _diagonal(self.availability) + responsibility > 0
        same = (now == self.exemplars).all(axis=1)
        self.unchanged = np.where(same, self.unchanged + 1, 1)
        self.exemplars = now

    def select(self, kept: Mask) -> _Messages:
        """The messages of some of the sets."""
        part = _Messages(self.similarity[kept], self.damping)
        part.responsibility = self.responsibility[kept]
        part.availability = self.availability[kept]
        part.exemplars, part.unchanged = self.exemplars[kept], self.unchanged[kept]
        return part


def _refined(similarity: Float64, exemplars: Mask) -> Mask:
    """The exemplars, each replaced by the member of its cluster with the best total similarity."""
    labels = np.where(exemplars[:, None, :], similarity, -np.inf).argmax(axis=2)
    labels = np.where(exemplars, np.arange(exemplars.shape[1]), labels)  # the exemplar each joins
    together = np.asarray(labels[:, :, None] == labels[:, None, :])
    totals = np.where(together, similarity, 0.0).sum(axis=1)
    best = np.where(together, totals[:, None, :], -np.inf).argmax(axis=2)
    refined = np.zeros_like(exemplars)
    np.put_along_axis(refined, best, True, axis=1)
    return np.asarray(refined & exemplars.any(axis=1, keepdims=True))


def _diagonal(matrices: Float64) -> Float64:
    """The diagonals (sets, n) as a view."""
    sets, size = matrices.shape[:2]
    return matrices.reshape(sets, size * size)[:, :: size + 1]


def _without_ties(similarity: Float64) -> Float64:
    """Similarities that differ in their last digits, so that no two groupings are equally good."""
    digits = np.finfo(np.float64)
    scale = digits.eps * similarity + 100 * digits.tiny
    return np.asarray(similarity + scale * _noise(similarity.shape[1]))


@lru_cache(maxsize=64)
def _noise(size: int) -> Float64:
    # The generator that scikit-learn's implementation takes with random_state=0. Similarities of
    # links are symmetric and full of ties; with the same digits both give the same exemplars.
    return np.random.RandomState(0).standard_normal((size, size))
