"""Places with intervals that hold for all schemes at once, and differences to the first.

All pairs of schemes are compared by paired t-tests, with Holm's correction over all pairs, so that
with a confidence of 95 % every interval of a rank holds its true rank (Mogstad, Romano, Shaikh,
Wilhelm, Inference for ranks, Review of Economic Studies 2024). In one world values are paired by
seed. Over worlds the values of a scheme are its means in each world, paired by world: where every
scheme has run with every seed in every world, this is the test of the mixed model in which the
world, and what a scheme gains in it, are random. It speaks of new worlds of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from camu.arrays import Float64
from camu.experiments.statistics import (
    ALPHA,
    MARGIN_POINTS,
    Estimate,
    detectable,
    estimate,
    holm,
)

BEHIND, LEVEL, BOTH, OPEN = "behind", "level", "behind, level", "undecided"


@dataclass(frozen=True)
class Standing:
    """A scheme's mean, its place by it, the interval of its rank, and what the first is ahead."""

    score: Estimate
    place: int
    best: int
    worst: int
    behind: Estimate | None  # of the first; None for itself
    word: str  # behind, level (within a point), both, or undecided; "" for the first
    detects: float | None  # the smallest difference to the first that these values would show

    def rank(self) -> str:
        """The place with its interval, for people."""
        return f"{self.place} ({self.best}-{self.worst})"


def standings(values: Float64) -> list[Standing]:
    """The standing of each scheme (schemes, seeds) or (schemes, worlds)."""
    schemes, pairs = range(len(values)), list(combinations(range(len(values)), 2))
    gains = {(a, b): estimate((values[a] - values[b]).tolist()) for a, b in pairs}
    differs = _adjusted([gains[pair].p_value() for pair in pairs])
    alike = _adjusted([gains[pair].p_equivalent(MARGIN_POINTS) for pair in pairs])
    clear = {pair: p < ALPHA for pair, p in zip(pairs, differs, strict=True)}
    same = {pair: p < ALPHA for pair, p in zip(pairs, alike, strict=True)}
    better = [_wins(own, schemes, gains, clear) for own in schemes]
    means = values.mean(axis=1)
    first = int(means.argmax())
    found = []
    for own in schemes:
        beaten_by = sum(own in better[other] for other in schemes)
        pair = (min(own, first), max(own, first))
        behind = None if own == first else estimate((values[own] - values[first]).tolist())
        word = ""
        if own != first:
            word = {
                (True, True): BOTH,
                (True, False): BEHIND,
                (False, True): LEVEL,
                (False, False): OPEN,
            }[clear[pair], same[pair]]
        found.append(
            Standing(
                score=estimate(values[own].tolist()),
                place=1 + int((means > means[own]).sum()),
                best=1 + beaten_by,
                worst=len(values) - len(better[own]),
                behind=behind,
                word=word,
                detects=_detects(behind, len(pairs)),
            )
        )
    return found


def _adjusted(p_values: Sequence[float | None]) -> list[float]:
    return holm([1.0 if p is None else p for p in p_values])


def _wins(
    own: int,
    schemes: range,
    gains: dict[tuple[int, int], Estimate],
    clear: dict[tuple[int, int], bool],
) -> set[int]:
    """The schemes that this one is measurably better than."""
    found = set()
    for other in schemes:
        pair = (min(own, other), max(own, other))
        if own != other and clear[pair] and (gains[pair].mean > 0) == (own < other):
            found.add(other)
    return found


def _detects(behind: Estimate | None, tests: int) -> float | None:
    if behind is None or not behind.sd:
        return None
    return detectable(behind.sd, behind.n, tests)


def world_means(values: Sequence[Float64]) -> Float64:
    """Means over seeds (schemes, worlds) of a table (schemes, seeds) per world."""
    return np.stack([table.mean(axis=1) for table in values], axis=1)
