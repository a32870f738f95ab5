"""Affinity propagation (Frey and Dueck 2007) on any similarity, for few devices and for many.

Up to a limit all devices take part at once. Above it the fleet is cut into tiles of devices that
are alike, each tile is clustered, and the exemplars found stand for their devices in the next pass,
whose tiles are cut elsewhere. Many small sets, such as the primary clusters of a large fleet, pass
their messages together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering import messages
from camu.clustering.messages import Mask
from camu.clustering.similarity import DataSimilarity, Similarity
from camu.config import ClusteringConfig
from camu.seeding import derive

log = logging.getLogger(__name__)

TILE_DEVICES = 500
TWO_LEVELS_ABOVE = 3000  # devices; larger fleets are clustered in tiles, which are then merged
_MOST_PASSES = 8
_LEAST_MERGED = 0.02  # a pass that merges a smaller share of the exemplars is the last
_MIDDLE = (0.35, 0.65)  # where a tile may be cut, as shares of its devices
_BLOCK_ENTRIES = 4_000_000
_TOGETHER_ENTRIES = 1 << 16  # of the matrices of sets that pass messages together: half a megabyte
_TILE_ITERATIONS = 100  # a tile that settles takes about 40; the next pass mends the others


def propagate(
    similarity: Similarity, devices: Int64, config: ClusteringConfig, two_level: bool
) -> Int64 | None:
    """The exemplar of each of these devices, or None where the messages single out none.

    Devices with equal data are merged and weighted, because the messages handle ties badly. With
    two levels the devices of an exemplar move together and count with the sum of their
    similarities, so that every pass maximises the net similarity that affinity propagation of all
    devices would. A cluster that the border of a tile has cut in two is mended by the next pass,
    because its borders run elsewhere.
    """
    first, exemplar_of = similarity.twins(devices)
    exemplars = devices[first]
    limit = TILE_DEVICES if two_level else len(exemplars)
    for level in range(_MOST_PASSES):
        tiles = _cut(similarity, exemplars, limit, level)
        before, moved, several = len(exemplars), np.empty_like(exemplar_of), len(tiles) > 1
        for tile, own, group in _tiles_with_members(tiles, exemplar_of):
            joined = _join(similarity, exemplars[tile], devices[own], group, config, several)
            if joined is None and not several:
                return None
            moved[own] = tile[group if joined is None else joined]
        kept, exemplar_of = np.unique(moved, return_inverse=True)
        exemplars = exemplars[kept]
        if several:
            log.info(
                "pass %d: %d exemplars in %d tiles, %d left", level, before, len(tiles), len(kept)
            )
        if not several or len(kept) > (1 - _LEAST_MERGED) * before:
            break
    return exemplars[exemplar_of]


def _tiles_with_members(
    tiles: list[Int64], exemplar_of: Int64
) -> Iterator[tuple[Int64, Int64, Int64]]:
    """Each tile, the devices of its exemplars, and the place of each one's exemplar in the tile."""
    number, place = np.empty((2, sum(map(len, tiles))), np.int64)  # of each exemplar
    for index, tile in enumerate(tiles):
        number[tile], place[tile] = index, np.arange(len(tile))
    order = np.lexsort((place[exemplar_of], number[exemplar_of]))
    borders = np.searchsorted(number[exemplar_of][order], np.arange(1, len(tiles)))
    for tile, own in zip(tiles, np.split(order, borders), strict=True):
        yield tile, own, place[exemplar_of[own]]


def _join(
    similarity: Similarity,
    exemplars: Int64,
    devices: Int64,
    group: Int64,
    config: ClusteringConfig,
    several: bool,
) -> Int64 | None:
    """The exemplar that each device joins, by position; `group` is its present one.

    `several`: this is one of several tiles, so that a rough answer does.
    """
    if len(exemplars) == 1:
        return group
    itself = devices == exemplars[group]
    matrix = _sums(similarity, exemplars, devices, group, itself)
    np.fill_diagonal(matrix, similarity.preference[exemplars] + matrix.diagonal())
    found = np.flatnonzero(
        _settle_tile(matrix, config) if several else _settle(matrix[None], config)[0]
    )
    if not len(found):
        return None
    joined = np.empty(len(devices), np.int64)
    for part in _parts(len(devices), len(found)):
        joined[part] = found[similarity.block(devices[part], exemplars[found]).argmax(axis=1)]
    leads = itself & np.isin(group, found)
    joined[leads] = group[leads]
    return joined


def _sums(
    similarity: Similarity, exemplars: Int64, devices: Int64, group: Int64, itself: Mask
) -> Float64:
    """How similar the devices of each exemplar (rows) are to each exemplar, added up.

    What an exemplar is to itself is its preference, and is left out.
    """
    if itself.all():  # every device for itself
        matrix = similarity.block(exemplars, exemplars)
        np.fill_diagonal(matrix, 0.0)
        return matrix
    from scipy.sparse import csr_array  # deferred: it takes 0.1 s, and many plans have no twins

    size = len(exemplars)
    matrix = np.zeros((size, size))
    for part in _parts(len(devices), size):
        block = similarity.block(devices[part], exemplars)
        own = np.flatnonzero(itself[part])
        block[own, group[part][own]] = 0.0
        rows = (np.ones(len(block)), (group[part], np.arange(len(block))))
        matrix += np.asarray(csr_array(rows, shape=(size, len(block))) @ block)
    return matrix


def _parts(rows: int, columns: int) -> list[slice]:
    """Rows in parts such that a block of them stays small."""
    step = max(1, _BLOCK_ENTRIES // columns)
    return [slice(start, start + step) for start in range(0, rows, step)]


def _cut(similarity: Similarity, devices: Int64, limit: int, level: int) -> list[Int64]:
    """Tiles of at most `limit` devices that are alike, as positions.

    A set that is too large is cut between any of its devices and the one least like it, at the
    widest gap near the middle; so hot spots stay whole, and every level has other borders.
    """
    generator = derive(0, "tiles", len(devices), level).numpy()
    tiles, waiting = [], [np.arange(len(devices))]
    while waiting:
        tile = waiting.pop()
        if len(tile) <= limit:
            tiles.append(np.sort(tile))
            continue
        own = devices[tile]
        one = similarity.block(own, own[[generator.integers(len(own))]])[:, 0]
        lean = one - similarity.block(own, own[[one.argmin()]])[:, 0]
        order = np.argsort(lean, kind="stable")
        low, high = (int(share * len(own)) for share in _MIDDLE)
        border = low + 1 + int(np.diff(lean[order[low : high + 1]]).argmax())
        waiting += [tile[order[:border]], tile[order[border:]]]
    return tiles


def _settle_tile(matrix: Float64, config: ClusteringConfig) -> Mask:
    """The exemplars of one of several tiles; preferences are the diagonal.

    Very near devices all have the same link. Whoever gains by leading then leads, and at least the
    one that loses least: that is the largest net similarity. Messages would not settle.
    """
    joining = matrix[:, 0].copy()
    joining[0] = matrix[0, 1]
    off = ~np.eye(len(matrix), dtype=bool)
    if (matrix == joining[:, None])[off].all():
        gain = matrix.diagonal() - joining
        return np.asarray((gain > 0) | (np.arange(len(gain)) == gain.argmax()))
    found = messages.pass_messages(matrix[None], config.damping, _TILE_ITERATIONS)
    return np.asarray(found.exemplars[0])


def _settle(matrix: Float64, config: ClusteringConfig) -> Mask:
    """The exemplars of each set (sets, n, n), none where none is singled out.

    Sets that do not settle try again with more damping.
    """
    exemplars, equal = _all_alike(matrix)
    waiting = np.flatnonzero(~equal)
    for damping in (config.damping, *(more for more in (0.85, 0.95) if more > config.damping)):
        if not len(waiting):
            return exemplars
        found = messages.pass_messages(matrix[waiting], damping, messages.MOST_ITERATIONS)
        some = found.exemplars.any(axis=1)
        exemplars[waiting[some]] = found.exemplars[some]
        waiting = waiting[~found.settled]
        if len(waiting):
            log.info(
                "%d of %d sets did not settle at damping %g", len(waiting), len(matrix), damping
            )
    for number in waiting.tolist():
        log.warning(
            "affinity propagation of %d devices did not settle in %d iterations; %s",
            matrix.shape[1],
            messages.MOST_ITERATIONS,
            "its last state is used" if exemplars[number].any() else "no exemplar was found",
        )
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


def propagate_sets(
    data: DataSimilarity, exemplar: Int64, config: ClusteringConfig, two_level: bool
) -> Int64:
    """The exemplar of each device, by data, among the devices with the same exemplar (K,) so far.

    Sets of as many kinds of devices pass their messages together. Where the messages single out no
    exemplar, the devices keep the one that they have.
    """
    kinds, kind = data.twins(np.arange(len(exemplar)))
    # A row per set and kind: its first device, and how many devices of the set are of this kind.
    _, first, row, count = np.unique(
        exemplar * len(kinds) + kind, return_index=True, return_inverse=True, return_counts=True
    )
    ends = np.flatnonzero(np.diff(exemplar[first], append=-1)) + 1
    sizes = np.diff(ends, prepend=0)
    found = first.copy()  # of each row: the device that it joins
    tiled = (sizes > TILE_DEVICES) & two_level
    for size in np.unique(sizes[(sizes > 1) & ~tiled]).tolist():
        starts = (ends - sizes)[sizes == size]
        step = max(1, _TOGETHER_ENTRIES // size**2)
        for begin in range(0, len(starts), step):
            rows = starts[begin : begin + step, None] + np.arange(size)
            found[rows] = _join_kinds(data, first[rows], count[rows], exemplar, config)
    result = found[row]
    for end, size in zip(ends[tiled], sizes[tiled], strict=True):
        own = np.flatnonzero((row >= end - size) & (row < end))
        among = propagate(data, own, config, True)
        result[own] = exemplar[own] if among is None else among
    return np.asarray(result)


def _join_kinds(
    data: DataSimilarity, devices: Int64, count: Int64, exemplar: Int64, config: ClusteringConfig
) -> Int64:
    """The device that each kind of each set joins, (sets, kinds)."""
    alike = data.blocks(devices)
    diagonal = np.arange(devices.shape[1])
    # A kind moves as one and pays for each of its devices; among themselves they are the same.
    matrix = count[:, :, None] * alike
    matrix[:, diagonal, diagonal] = data.preference[devices]
    exemplars = _settle(matrix, config)
    joined = np.where(exemplars[:, None, :], alike, -np.inf).argmax(axis=2)
    joined = np.take_along_axis(devices, np.where(exemplars, diagonal, joined), axis=1)
    none = np.asarray(~exemplars.any(axis=1))
    for devices_of_set in count[none].sum(axis=1).tolist():
        log.warning("no exemplar among %d devices by data; kept as one cluster", devices_of_set)
    return np.where(none[:, None], exemplar[devices], joined)
