"""Affinity propagation (Frey and Dueck 2007) on any similarity, for few devices and for many.

Up to a limit all devices take part at once. Above it the fleet is
cut into tiles of devices that are alike, each tile is clustered, and the exemplars found stand for
their devices in the next pass, whose tiles are cut elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.clustering.messages import pass_messages
from camu.clustering.similarity import Similarity
from camu.config import ClusteringConfig
from camu.seeding import derive

log = logging.getLogger(__name__)

TILE_DEVICES = 500
_MOST_PASSES = 8
_LEAST_MERGED = 0.02  # a pass that merges a smaller share of the exemplars is the last
_MIDDLE = (0.35, 0.65)  # where a tile may be cut, as shares of its devices
_BLOCK_ENTRIES = 4_000_000
_TILE_ITERATIONS = 100  # a tile that settles takes about 40; the next pass mends the others


def propagate(
    similarity: Similarity, devices: Int64, config: ClusteringConfig, two_level: bool
) -> Int64 | None:
    """The exemplar of each of these devices, or None where the messages single out none.

    Twins are taken as one device that counts several times: the same aim without ties, which
    the messages handle badly. The same holds for the devices behind an exemplar where there are
    two levels: they move together, and count with the sum of their similarities. So every pass
    maximises the net similarity that affinity propagation of all devices would. A cluster that the
    border of a tile has cut in two is mended by the next pass, because its borders run elsewhere.
    """
    first, behind = similarity.twins(devices)
    heads = devices[first]
    limit = TILE_DEVICES if two_level else len(heads)
    for level in range(_MOST_PASSES):
        tiles = _cut(similarity, heads, limit, level)
        before, moved = len(heads), np.empty_like(behind)
        several = len(tiles) > 1
        for tile, own, group in _behind_tiles(tiles, behind):
            joined = _join(similarity, heads[tile], devices[own], group, config, several)
            if joined is None and len(tiles) == 1:
                return None
            moved[own] = tile[group if joined is None else joined]
        kept, behind = np.unique(moved, return_inverse=True)
        heads = heads[kept]
        if len(tiles) == 1:
            break
        log.info("pass %d: %d exemplars in %d tiles, %d left", level, before, len(tiles), len(kept))
        if len(kept) > (1 - _LEAST_MERGED) * before:
            break
    return heads[behind]


def _behind_tiles(tiles: list[Int64], behind: Int64) -> Iterator[tuple[Int64, Int64, Int64]]:
    """Each tile, the devices behind its heads, and the place of their head in the tile."""
    heads = np.concatenate(tiles)
    ends = np.cumsum([len(tile) for tile in tiles])
    rank = np.empty_like(heads)
    rank[heads] = np.arange(len(heads))
    places = rank[behind]
    order = np.argsort(places, kind="stable")
    places = places[order]
    borders = np.searchsorted(places, [0, *ends])
    for number, tile in enumerate(tiles):
        part = slice(borders[number], borders[number + 1])
        yield tile, order[part], places[part] - (ends[number] - len(tile))


def _join(
    similarity: Similarity,
    heads: Int64,
    devices: Int64,
    group: Int64,
    config: ClusteringConfig,
    several: bool,
) -> Int64 | None:
    """The head that each device joins, as a position in heads; `group` is its present head.

    `several`: this is one of several tiles, so that a rough answer does.
    """
    if len(heads) == 1:
        return group
    itself = devices == heads[group]
    matrix = _sums(similarity, heads, devices, group, itself)
    preference = similarity.preference[heads] + matrix.diagonal()
    settle = _settle_tile if several else _settle
    exemplars = settle(matrix, preference, config)
    if exemplars is None:
        return None
    left = np.unique(exemplars)
    joined = np.empty(len(devices), np.int64)
    for part in _parts(len(devices), len(left)):
        joined[part] = left[similarity.block(devices[part], heads[left]).argmax(axis=1)]
    leads = itself & np.isin(group, left)
    joined[leads] = group[leads]
    return joined


def _sums(
    similarity: Similarity,
    heads: Int64,
    devices: Int64,
    group: Int64,
    itself: npt.NDArray[np.bool_],
) -> Float64:
    """How similar the devices behind each head (rows) are to each head, added up.

    What a head is to itself is its preference, and is left out.
    """
    if itself.all():  # every device for itself
        matrix = similarity.block(heads, heads)
        np.fill_diagonal(matrix, 0.0)
        return matrix
    from scipy.sparse import csr_array  # deferred: it takes 0.1 s, and many plans have no twins

    matrix = np.zeros((len(heads), len(heads)))
    for part in _parts(len(devices), len(heads)):
        block = similarity.block(devices[part], heads)
        own = np.flatnonzero(itself[part])
        block[own, group[part][own]] = 0.0
        rows = (np.ones(len(block)), (group[part], np.arange(len(block))))
        matrix += np.asarray(csr_array(rows, shape=(len(heads), len(block))) @ block)
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


def _settle(matrix: Float64, preference: Float64, config: ClusteringConfig) -> Int64 | None:
    """The exemplars, or None; also if all pairs are alike."""
    alike = _common_value(matrix)
    if alike is not None and preference.min() == preference.max():
        # Messages have nothing to say: one cluster if joining is worth at least as much as
        # leading, otherwise everyone alone.
        everyone = np.arange(len(matrix))
        return np.zeros_like(everyone) if alike >= preference[0] else everyone
    return _run(matrix, preference, config)


def _settle_tile(matrix: Float64, preference: Float64, config: ClusteringConfig) -> Int64 | None:
    """The exemplars of one of several tiles, or None.

    Very near devices all have the same link. Whoever gains by leading then leads, and at least the
    one that loses least: that is the largest net similarity. Messages would not settle.
    """
    joining = _common_rows(matrix)
    if joining is not None:
        gain = preference - joining
        return np.flatnonzero((gain > 0) | (np.arange(len(gain)) == gain.argmax()))
    iterations = min(config.max_iter, _TILE_ITERATIONS)
    return _exemplars(matrix, preference, config.damping, iterations, config)[0]


def _common_rows(matrix: Float64) -> Float64 | None:
    """The one value of the off-diagonal entries of each row, or None when some row has several."""
    first = matrix[:, 0].copy()
    first[0] = matrix[0, 1]
    same = matrix == first[:, None]
    np.fill_diagonal(same, True)
    return first if same.all() else None


def _common_value(matrix: Float64) -> float | None:
    """The one value of all off-diagonal entries, or None when they differ."""
    first = float(matrix[0, 1])
    same = matrix == first
    np.fill_diagonal(same, True)
    return first if same.all() else None


def dampings(config: ClusteringConfig) -> tuple[float, ...]:
    """The configured damping, and those to try where messages do not settle with it."""
    return (config.damping, *(more for more in (0.85, 0.95) if more > config.damping))


def _run(matrix: Float64, preference: Float64, config: ClusteringConfig) -> Int64 | None:
    """Pass messages; where they do not settle, raise the damping and try again."""
    exemplars: Int64 | None = None
    for damping in dampings(config):
        found, settled = _exemplars(matrix, preference, damping, config.max_iter, config)
        if found is not None:
            exemplars = found
            if settled:
                return exemplars
        log.info("affinity propagation did not settle at damping %g", damping)
    log.warning(
        "affinity propagation of %d devices did not settle in %d iterations; %s",
        len(matrix),
        config.max_iter,
        "its last state is used" if exemplars is not None else "no exemplar was found",
    )
    return exemplars


def _exemplars(
    matrix: Float64,
    preference: Float64,
    damping: float,
    iterations: int,
    config: ClusteringConfig,
) -> tuple[Int64 | None, bool]:
    """The exemplars, None where there are none, and whether the messages have settled."""
    similarity = matrix.copy()
    np.fill_diagonal(similarity, preference)
    found = pass_messages(similarity[None], damping, iterations, config.convergence_iter)
    exemplars = np.flatnonzero(found.exemplars[0])
    return (exemplars if len(exemplars) else None), bool(found.settled[0])
