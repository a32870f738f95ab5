"""How alike devices are: in their links (S_c) and in their data (S_d), and who would lead.

A `Similarity` is asked for blocks, so that clustering a large fleet never needs the whole matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from camu.arrays import Float64, Int64
from camu.config import ClusteringConfig
from camu.seeding import derive
from camu.world import Links

# Pairs looked at when the quantile of all similarities is wanted: all of them up to this many
# devices, a fixed sample of rows and columns above.
_QUANTILE_DEVICES = 3000
_FEW_ROWS = 10_000  # rows that are sorted whole


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
        return _link_block(self.links, self.reading, rows, cols)

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
        return _data_block(self.features, self.literal, rows, cols)

    def blocks(self, devices: Int64) -> Float64:
        """Similarities inside each of several sets of devices (sets, n): (sets, n, n)."""
        features = self.features[devices]
        return _alike(features, features, self.literal)

    @cached_property
    def _has_twins(self) -> bool:
        return not self.literal and float(self.preference.max()) <= 0.0

    def twins(self, devices: Int64) -> tuple[Int64, Int64]:
        """Devices with the same data are one, unless it is better for them to be apart."""
        if not self._has_twins:
            return np.arange(len(devices)), np.arange(len(devices))
        return equal_rows(self.features[devices])


def equal_rows(rows: Float64) -> tuple[Int64, Int64]:
    """The first of each kind of equal rows, and each row's kind; kinds in the order of np.unique.

    Where one number per row tells kinds apart, as it nearly always does, only these are sorted.
    """
    if len(rows) > _FEW_ROWS:
        weights = derive(0, "twins").numpy().uniform(1.0, 2.0, rows.shape[1])
        _, first, kind = np.unique(
            (rows * weights).sum(axis=1), return_index=True, return_inverse=True
        )
        if (rows[first][kind] == rows).all():
            _, order, sorted_kind = np.unique(
                rows[first], axis=0, return_index=True, return_inverse=True
            )
            return first[order], sorted_kind[kind]
    _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, kind


def link_similarity(links: Links, config: ClusteringConfig) -> LinkSimilarity:
    """The first segment: similarity of links, with preferences that favour good uplinks.

    The median similarity alone treats all devices alike; the diagonal of Gamma holds their links to
    the base station, which a leader needs. Where similarities are dB, `uplink` therefore adds to
    the median by how many dB device k's uplink is better than the median one. Other readings have
    no such common unit: there device k prefers the quantile, between the quartiles of the
    similarities, that its uplink has among all uplinks. Where links between devices are not known,
    uplinks are all there is to compare.
    """
    reading, count = "uplink" if links.blind else config.communication, links.count
    if config.preference == "value":
        return LinkSimilarity(links, reading, np.full(count, config.preference_value))
    sample = _off_diagonal(lambda r, c: _link_block(links, reading, r, c), count)
    if not sample.size:
        return LinkSimilarity(links, reading, np.zeros(count))
    if config.preference == "quantile":
        preference = np.full(count, np.quantile(sample, config.preference_value))
    elif reading == "snr-db":
        uplink_db = 10 * np.log10(links.uplink_snr())
        preference = np.median(sample) + uplink_db - np.median(uplink_db)
    else:
        from scipy.stats import rankdata  # deferred: it takes a second, and only this reading ranks

        share = (rankdata(links.uplink_snr()) - 0.5) / count
        preference = np.quantile(sample, 0.25 + 0.5 * share)
    return LinkSimilarity(links, reading, preference)


def data_similarity(label_counts: Int64, config: ClusteringConfig) -> DataSimilarity:
    """The second segment: similarity of data, with one preference P_d for all devices.

    P_d is taken over all pairs of devices, not inside a primary cluster: it is one number in the
    paper, and a small primary cluster has too few pairs to say what 'alike' means.
    """
    counts = label_counts.astype(float)
    pmf = counts / counts.sum(axis=1, keepdims=True)
    features = pmf if config.data == "pmf" else information(label_counts)
    literal = config.data == "literal"
    value = config.data_preference_value
    if config.data_preference == "quantile":
        sample = _off_diagonal(lambda r, c: _data_block(features, literal, r, c), len(features))
        value = float(np.quantile(sample, value)) if sample.size else 0.0
    return DataSimilarity(features, literal, np.full(len(features), value))


def information(label_counts: Int64) -> Float64:
    """The matrix Xi, eq. (11): (C_k^l / D) log(D C_k^l / (D_k C^l)), with 0 log 0 = 0."""
    counts = label_counts.astype(float)
    total = counts.sum()
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / total
    ratio = np.divide(counts, expected, out=np.ones_like(counts), where=counts > 0)
    return np.asarray(counts / total * np.log(ratio))


def _link_block(links: Links, reading: str, rows: Int64, cols: Int64) -> Float64:
    if reading == "uplink":
        uplink_db = 10 * np.log10(links.uplink_snr())
        return np.asarray(-((uplink_db[rows][:, None] - uplink_db[cols][None, :]) ** 2))
    snr_db = links.device_snr_db(rows, cols)
    return snr_db if reading == "snr-db" else -(10.0 ** (snr_db / 5.0))


def _data_block(features: Float64, literal: bool, rows: Int64, cols: Int64) -> Float64:
    return _alike(features[rows], features[cols], literal)


def _alike(left: Float64, right: Float64, literal: bool) -> Float64:
    """Similarities of the rows of `left` to those of `right`; in stacks, of each pair of them."""
    squares = (left**2).sum(axis=-1)[..., :, None] + (right**2).sum(axis=-1)[..., None, :]
    distance = np.maximum(squares - 2 * left @ right.swapaxes(-1, -2), 0.0)
    # The product form leaves rounding where rows are equal; such devices are exactly alike.
    distance[distance < 1e-14 * squares] = 0.0
    return np.asarray(distance**2 if literal else -distance)


def _off_diagonal(block: _Block, count: int) -> Float64:
    """The similarities of all pairs, or of a fixed sample of devices in a large fleet."""
    if count < 2:
        return np.empty(0)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _QUANTILE_DEVICES)).astype(np.int64))
    matrix = block(chosen, chosen)
    return matrix[~np.eye(len(chosen), dtype=bool)]


class _Block(Protocol):
    def __call__(self, rows: Int64, cols: Int64, /) -> Float64: ...
