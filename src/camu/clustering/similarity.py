"""How alike devices are: in their links (S_c) and in their data (S_d), and who would lead.

A `Similarity` is asked for blocks, so that clustering a large fleet never needs the whole matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from camu.arrays import Float64, Int64, decibels
from camu.config import ClusteringConfig
from camu.world import Links

# Pairs looked at when the quantile of all similarities is wanted: all of them up to this many
# devices, a fixed sample of rows and columns above.
_QUANTILE_DEVICES = 3000


class Similarity(Protocol):
    """Similarities between devices (larger is more alike), and each device's preference to lead."""

    @property
    def preference(self) -> Float64:
        """How willingly each device leads (the diagonal of the similarity matrix)."""
        ...

    def block(self, rows: Int64, cols: Int64) -> Float64:
        """Similarities of some devices (rows) to others (columns)."""
        ...

    def twins(self, devices: Int64) -> tuple[Int64, Int64]:
        """Devices that may be taken as one: the first of each kind, and each device's kind."""
        ...


@dataclass(frozen=True)
class LinkSimilarity:
    """S_c, eq. (7), under the reading `snr-db`, `uplink` or `literal`."""

    links: Links
    reading: str
    preference: Float64

    def block(self, rows: Int64, cols: Int64) -> Float64:
        """Similarities of some devices (rows) to others (columns)."""
        if self.reading == "uplink":
            uplink_db = decibels(self.links.uplink_snr())
            return np.asarray(-((uplink_db[rows][:, None] - uplink_db[cols][None, :]) ** 2))
        snr_db = self.links.device_snr_db(rows, cols)
        return snr_db if self.reading == "snr-db" else -(10.0 ** (snr_db / 5.0))

    def twins(self, devices: Int64) -> tuple[Int64, Int64]:
        """Every device has links of its own."""
        return np.arange(len(devices)), np.arange(len(devices))


@dataclass(frozen=True)
class DataSimilarity:
    """S_d, eq. (12): from rows of features, minus their squared distance or the printed power."""

    features: Float64
    literal: bool
    preference: Float64

    def block(self, rows: Int64, cols: Int64) -> Float64:
        """Similarities of some devices (rows) to others (columns)."""
        return self._between(self.features[rows], self.features[cols])

    def blocks(self, devices: Int64) -> Float64:
        """Similarities inside each of several sets of devices (sets, n): (sets, n, n)."""
        return self._between(self.features[devices], self.features[devices])

    def _between(self, left: Float64, right: Float64) -> Float64:
        squares = (left**2).sum(axis=-1)[..., :, None] + (right**2).sum(axis=-1)[..., None, :]
        distance = np.maximum(squares - 2 * left @ right.swapaxes(-1, -2), 0.0)
        # The product form leaves rounding where rows are equal; such devices are exactly alike.
        distance[distance < 1e-14 * squares] = 0.0
        return np.asarray(distance**2 if self.literal else -distance)

    @cached_property
    def _has_twins(self) -> bool:
        return not self.literal and float(self.preference.max()) <= 0.0

    def twins(self, devices: Int64) -> tuple[Int64, Int64]:
        """Devices with the same data are one, unless it is better for them to be apart."""
        if not self._has_twins:
            return np.arange(len(devices)), np.arange(len(devices))
        rows = self.features[devices]
        _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first, kind


def link_similarity(
    links: Links, config: ClusteringConfig, devices: Int64 | None = None
) -> LinkSimilarity:
    """The first segment: similarity of links, with preferences that favour good uplinks.

    The median similarity alone treats all devices alike; the diagonal of Gamma holds their links to
    the base station, which a leader needs. Where similarities are dB, `uplink` therefore adds to
    the median by how many dB device k's uplink is better than the median one. Other readings have
    no such common unit: there device k prefers the quantile, between the quartiles of the
    similarities, that its uplink has among all uplinks. Where most links between devices are not
    known, uplinks are all there is to compare. With `devices` only these are compared with each
    other.
    """
    reading, count = "uplink" if links.uplinks_alone else config.communication, links.count
    plain = LinkSimilarity(links, reading, np.zeros(count))
    own = np.arange(count) if devices is None else devices
    sample = _off_diagonal(plain, own)
    if not sample.size:
        return plain
    if config.preference == "quantile":
        preference = np.full(count, np.quantile(sample, config.preference_quantile))
    elif reading == "snr-db":
        uplink_db = decibels(links.uplink_snr())
        preference = np.median(sample) + uplink_db - np.median(uplink_db[own])
    else:
        from scipy.stats import rankdata  # deferred: it takes a second, and only this reading ranks

        share = (rankdata(links.uplink_snr()[own]) - 0.5) / len(own)
        preference = np.zeros(count)
        preference[own] = np.quantile(sample, 0.25 + 0.5 * share)
    return replace(plain, preference=preference)


def data_similarity(label_counts: Int64, config: ClusteringConfig) -> DataSimilarity:
    """The second segment: similarity of data, with one preference P_d for all devices.

    P_d is taken over all pairs of devices, not inside a primary cluster: it is one number in the
    paper, and a small primary cluster has too few pairs to say what 'alike' means.
    """
    counts = label_counts.astype(float)
    pmf = counts / counts.sum(axis=1, keepdims=True)
    features = pmf if config.data == "pmf" else information(label_counts)
    plain = DataSimilarity(features, config.data == "literal", np.zeros(len(features)))
    sample = _off_diagonal(plain, np.arange(len(features)))
    value = float(np.quantile(sample, config.preference_quantile)) if sample.size else 0.0
    return replace(plain, preference=np.full(len(features), value))


def information(label_counts: Int64) -> Float64:
    """The matrix Xi, eq. (11): (C_k^l / D) log(D C_k^l / (D_k C^l)), with 0 log 0 = 0."""
    counts = label_counts.astype(float)
    total = counts.sum()
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / total
    ratio = np.divide(counts, expected, out=np.ones_like(counts), where=counts > 0)
    return np.asarray(counts / total * np.log(ratio))


def _off_diagonal(similarity: Similarity, devices: Int64) -> Float64:
    """The similarities of all pairs of devices, or of a fixed sample of many."""
    count = len(devices)
    places = np.unique(np.linspace(0, count - 1, min(count, _QUANTILE_DEVICES)).astype(np.int64))
    chosen = devices[places]
    matrix = similarity.block(chosen, chosen)
    return matrix[~np.eye(len(chosen), dtype=bool)]
