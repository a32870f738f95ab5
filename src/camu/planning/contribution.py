"""What a cluster is worth: W_c, G_c, theta_c, S_c and N_c (sections II-A and III-B).

`e^(1/W)` overflows for clusters whose labels look like everyone's, so everything is computed from
its logarithm: weights are a softmax, and the gate compares logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from camu.arrays import Float64, Int64

# Smaller distances count as this one, whatever w_min is: it is less than one sample in a million,
# and next to 1/W enough digits of log |D_c| are left.
SMALLEST_DISTANCE = 1e-6


def group_counts(label_counts: Int64, groups: Sequence[Sequence[int]]) -> Int64:
    """Samples of each label in each group of devices, (groups, labels)."""
    return np.stack([label_counts[list(group)].sum(axis=0) for group in groups])


def label_distance(counts: Int64, everyone: Int64, kind: str = "wasserstein") -> Float64:
    """W_c, eq. (3): distance of each row's label distribution to that of everyone's labels.

    `wasserstein` is the 1-D distance on label indices; `tv` is total variation, which does not
    depend on how labels are numbered.
    """
    pmf = counts / counts.sum(axis=1, keepdims=True)
    difference = pmf - everyone / everyone.sum()
    if kind == "tv":
        return np.asarray(0.5 * np.abs(difference).sum(axis=1))
    return np.asarray(np.abs(np.cumsum(difference, axis=1)[:, :-1]).sum(axis=1))


def log_contribution(samples: npt.ArrayLike, distance: Float64, w_min: float) -> Float64:
    """log theta_c = log |D_c| + 1 / max(W_c, w_min)."""
    return np.asarray(np.log(samples) + 1.0 / np.maximum(distance, max(w_min, SMALLEST_DISTANCE)))


def contribution(log_theta: Float64) -> Float64:
    """theta_c itself, eq. (17), held at the largest number where it would overflow."""
    return np.asarray(np.exp(np.minimum(log_theta, np.log(np.finfo(float).max))))


def aggregation_weights(log_theta: Float64) -> Float64:
    """G_c, eq. (4): contributions scaled to add up to 1."""
    return np.asarray(softmax(log_theta))


def gate(log_theta: Float64, threshold: float | None, quantile: float) -> npt.NDArray[np.bool_]:
    """S_c, eq. (19): whether a cluster's contribution reaches the threshold."""
    return np.asarray(log_theta >= log_threshold(log_theta, threshold, quantile))


def log_threshold(log_theta: Float64, threshold: float | None, quantile: float) -> float:
    """The logarithm of the threshold, or of a quantile of the contributions where that is None."""
    if threshold is None:
        # One of the contributions themselves, so that rounding never shuts out the cluster at it.
        return float(np.quantile(log_theta, quantile, method="lower"))
    with np.errstate(divide="ignore"):  # a threshold of 0 admits everyone
        return float(np.log(threshold))


def extra_updates(step_seconds: Float64, most: int) -> Int64:
    """n_c by capability: how many more updates fit while the slowest cluster does its one.

    The paper gives no formula; this is clip(floor(T_slow / T_c) - 1, 0, most). T_c is the time of
    one local update: the slowest member computes, then the members send to their leader.
    """
    # The small number forgives rounding where the ratio is whole.
    times = np.floor(step_seconds.max() / step_seconds + 1e-9)
    return np.asarray(np.clip(times - 1, 0, most), dtype=np.int64)


def local_updates(multi_update: npt.NDArray[np.bool_], extra: Int64) -> Int64:
    """N_c = 1 + S_c n_c, eq. (18)."""
    return np.asarray(1 + np.where(multi_update, extra, 0), dtype=np.int64)
