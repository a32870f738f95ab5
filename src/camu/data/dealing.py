"""Deal samples of each label to devices, without sharing, or from decks that are shuffled again.

Where a label has fewer samples than the devices ask for, they share it: its samples are dealt like
cards, and when the deck is used up it is shuffled and dealt again. So every sample is held by
nearly the same number of devices, and a device holds a sample twice only if it asks for more than
there are.
"""

from __future__ import annotations

import numpy as np

from camu.arrays import Int64, Labels
from camu.errors import InputError

_TOGETHER_SAMPLES = 1 << 20  # samples that are put in random order at the same time


def deal(labels: Labels, demand: Int64, generator: np.random.Generator, share: bool) -> list[Int64]:
    """Give device k `demand[k, label]` samples of each label; shared where a label runs out."""
    supply = np.bincount(labels, minlength=demand.shape[1])
    short = np.flatnonzero(demand.sum(axis=0) > supply)
    if short.size and not share:
        label = int(short[0])
        raise InputError(
            f"the devices ask for {demand[:, label].sum()} samples of label {label} and the data "
            f"set has {supply[label]}; lower data.samples_per_device, or set "
            "data.with_replacement=true"
        )
    if short.size:
        return _deal_shared(labels, np.where(supply > 0, demand, 0), generator)
    parts: list[list[Int64]] = [[] for _ in demand]
    for label in range(demand.shape[1]):
        pool = generator.permutation(np.flatnonzero(labels == label))
        pieces = np.split(pool, np.cumsum(demand[:, label]))[:-1]
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return [generator.permutation(np.concatenate(part)) for part in parts]


def _deal_shared(labels: Labels, demand: Int64, generator: np.random.Generator) -> list[Int64]:
    """As `deal`, with as many decks of each label as it takes."""
    sizes = demand.sum(axis=1)
    flat = np.empty(int(sizes.sum()), np.int64)
    starts = (np.cumsum(demand) - demand.reshape(-1)).reshape(demand.shape)
    for label in range(demand.shape[1]):
        wanted = demand[:, label]
        places = _places(starts[:, label], wanted)
        flat[places] = deal_decks(np.flatnonzero(labels == label), wanted, generator)
    _shuffle_parts(flat, sizes, generator)
    return split(flat, sizes)


def deal_decks(pool: Int64, counts: Int64, generator: np.random.Generator) -> Int64:
    """`counts[k]` samples of the pool for each device k, one device after the other.

    Every device gets the whole pool as often as it fits; the rest is dealt from the decks.
    """
    if not counts.any():
        return np.empty(0, np.int64)
    size = len(pool)
    whole, rest = np.divmod(counts, size)
    decks = -(-int(rest.sum()) // size)
    stream = generator.permuted(np.tile(pool, (decks, 1)), axis=1).reshape(-1)
    ends = np.cumsum(rest)
    _mend_borders(stream, ends - rest, ends, size)
    starts = np.cumsum(counts) - counts
    dealt = np.empty(int(counts.sum()), np.int64)
    dealt[_places(starts + whole * size, rest)] = stream[: int(rest.sum())]
    for device in np.flatnonzero(whole):
        part = slice(starts[device], starts[device] + whole[device] * size)
        dealt[part] = np.tile(pool, whole[device])
    return dealt


def _mend_borders(stream: Int64, starts: Int64, ends: Int64, size: int) -> None:
    """Let no device get a sample from the end of one deck and again from the start of the next.

    The samples that it has already move to the end of the next deck.
    """
    borders = (starts // size + 1) * size
    held = np.zeros(int(stream.max(initial=0)) + 1, bool)
    for device in np.flatnonzero(ends > borders):
        border = borders[device]
        had, deck = stream[starts[device] : border], stream[border : border + size]
        held[had] = True
        twice = held[deck]
        held[had] = False
        stream[border : border + size] = np.concatenate([deck[~twice], deck[twice]])


def _places(starts: Int64, counts: Int64) -> Int64:
    """The places starts[k], starts[k] + 1, ..., `counts[k]` of them, for one k after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def _shuffle_parts(flat: Int64, sizes: Int64, generator: np.random.Generator) -> None:
    """Put the samples of each device in random order; devices of one size at the same time."""
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[sizes > 1]).tolist():
        rows = starts[sizes == size]
        step = max(1, _TOGETHER_SAMPLES // size)
        for begin in range(0, len(rows), step):
            places = rows[begin : begin + step, None] + np.arange(size)
            flat[places] = generator.permuted(flat[places], axis=1)


def split(flat: Int64, sizes: Int64) -> list[Int64]:
    """One array per device."""
    return list(np.split(flat, np.cumsum(sizes)[:-1]))
