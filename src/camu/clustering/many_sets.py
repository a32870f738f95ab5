"""Affinity propagation by data in each of many sets of devices, such as the primary clusters.

A large fleet has tens of thousands of primary clusters with a few kinds of devices each. Sets with
the same number of kinds pass their messages together.
"""

from __future__ import annotations

import logging

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering.affinity import TILE_DEVICES, dampings, propagate
from camu.clustering.messages import Mask, pass_messages
from camu.clustering.similarity import DataSimilarity
from camu.config import ClusteringConfig

log = logging.getLogger(__name__)

_TOGETHER_ENTRIES = 1 << 16  # of the matrices of sets that pass messages together: half a megabyte


def propagate_sets(data: DataSimilarity, head: Int64, config: ClusteringConfig) -> Int64:
    """The exemplar of each device, by data, among the devices with the same head (K,).

    Where the messages single out no exemplar, the devices keep their head.
    """
    everyone = np.arange(len(head))
    kinds, kind = data.twins(everyone)
    # A row per set and kind: its first device, and how many devices of the set are of this kind.
    _, first, row, count = np.unique(
        head * len(kinds) + kind, return_index=True, return_inverse=True, return_counts=True
    )
    ends = np.flatnonzero(np.diff(head[first], append=-1)) + 1
    sizes = np.diff(ends, prepend=0)
    found = first.copy()  # of each row: the device that it joins
    for size in np.unique(sizes[(sizes > 1) & (sizes <= TILE_DEVICES)]).tolist():
        starts = (ends - sizes)[sizes == size]
        step = max(1, _TOGETHER_ENTRIES // size**2)
        for begin in range(0, len(starts), step):
            rows = starts[begin : begin + step, None] + np.arange(size)
            devices = first[rows]
            joined = _join(data, devices, count[rows], config)
            chosen = np.take_along_axis(devices, np.maximum(joined, 0), axis=1)
            found[rows] = np.where(joined >= 0, chosen, head[devices])
    exemplar = found[row]
    order = np.argsort(row, kind="stable")
    borders = np.append(0, np.cumsum(count))
    for end, size in zip(ends[sizes > TILE_DEVICES], sizes[sizes > TILE_DEVICES], strict=True):
        own = np.sort(order[borders[end - size] : borders[end]])
        among = propagate(data, own, config, True)
        exemplar[own] = head[own] if among is None else among
    return np.asarray(exemplar)


def _join(data: DataSimilarity, devices: Int64, count: Int64, config: ClusteringConfig) -> Int64:
    """The place of the device that each kind joins, (sets, kinds); -1 in sets without exemplars."""
    alike = data.blocks(devices)
    diagonal = np.arange(devices.shape[1])
    # A kind moves as one and pays for each of its devices; among themselves they are the same.
    matrix = count[:, :, None] * alike
    matrix[:, diagonal, diagonal] = data.preference[devices]
    exemplars = _exemplars(matrix, config)
    joined = np.where(exemplars[:, None, :], alike, -np.inf).argmax(axis=2)
    joined = np.where(exemplars, diagonal, joined)
    joined[~exemplars.any(axis=1)] = -1
    return np.asarray(joined)


def _exemplars(matrix: Float64, config: ClusteringConfig) -> Mask:
    """Pass messages; the sets that do not settle try again with more damping."""
    exemplars, equal = _all_alike(matrix)
    waiting = np.flatnonzero(~equal)
    for damping in dampings(config):
        if not len(waiting):
            break
        found = pass_messages(matrix[waiting], damping, config.max_iter, config.convergence_iter)
        some = found.exemplars.any(axis=1)
        exemplars[waiting[some]] = found.exemplars[some]
        waiting = waiting[~found.settled]
    if len(waiting):
        log.info("%d sets of %d kinds did not settle", len(waiting), matrix.shape[1])
    return exemplars


def _all_alike(matrix: Float64) -> tuple[Mask, Mask]:
    """Sets whose devices are all alike, and their exemplars: one if joining pays, else all."""
    off = ~np.eye(matrix.shape[1], dtype=bool)
    others, own = matrix[:, off], matrix[:, ~off]
    equal = (others == others[:, :1]).all(axis=1) & (own == own[:, :1]).all(axis=1)
    joins = others[:, 0] >= own[:, 0]
    exemplars = np.repeat(equal[:, None], matrix.shape[1], axis=1)
    exemplars[joins, 1:] = False
    return exemplars, equal
