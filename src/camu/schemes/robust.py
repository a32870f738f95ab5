"""Robust centres of updates: rules that a few wrong units cannot pull far (scheme.aggregation)."""

from __future__ import annotations

import math

import numpy as np

from camu.arrays import Float32, Float64


def robust_centre(rows: Float32, rule: str, faulty_share: float) -> Float64:
    """One vector for these updates (n, q); each counts the same, whatever the weights.

    `median` and `trimmed-mean` work entry by entry (Yin et al., ICML 2018); the trimmed mean leaves
    out floor(faulty_share * n) values at each end. `multi-krum` takes the mean of the updates that
    lie closest to others (Blanchard et al., NeurIPS 2017).
    """
    faulty = math.floor(faulty_share * len(rows) + 1e-9)
    if rule == "median":
        return np.asarray(np.median(rows.astype(np.float64), axis=0))
    if rule == "trimmed-mean":
        kept = np.sort(rows, axis=0)[faulty : len(rows) - faulty]
        return np.asarray(kept.astype(np.float64).mean(axis=0))
    return np.asarray(rows[krum_choice(rows, faulty)].astype(np.float64).mean(axis=0))


def krum_choice(rows: Float32, faulty: int) -> list[int]:
    """The n - f updates with the smallest scores.

    The score is the sum of squared distances to the n - f - 2 nearest others, at least one.
    """
    wide = rows.astype(np.float64)
    squares = np.square(wide).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares[None] - 2 * wide @ wide.T, 0.0)
    np.fill_diagonal(apart, np.inf)
    nearest = max(1, min(len(rows) - faulty - 2, len(rows) - 1))
    scores = np.sort(apart, axis=1)[:, :nearest].sum(axis=1)
    return sorted(np.argsort(scores, kind="stable")[: len(rows) - faulty].tolist())
