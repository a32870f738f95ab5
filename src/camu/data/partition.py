"""Deal the samples of a data set to devices.

Each partition is a small frozen class with one method from (labels, devices, generator) to one
index array per device. Samples are dealt without sharing; where the data set is too small for that,
a request is refused with the reason, or devices share samples if `with_replacement` says so. Shared
samples are dealt like cards: when the deck is used up, it is shuffled and dealt again. So every
sample is held by nearly the same number of devices, and a device holds a sample twice only if it
asks for more than there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from camu.arrays import Float64, Int64, Labels
from camu.errors import InputError

_TOGETHER_SAMPLES = 1 << 20  # samples that are put in random order at the same time


class Partition(Protocol):
    """Anything that deals samples to devices."""

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        """One array of sample indices per device."""
        ...


@dataclass(frozen=True)
class Sizes:
    """How many samples each device holds: all the same, or falling as a power of a random rank.

    `given` numbers, one per device, replace all that.
    """

    mean: int | None = None
    exponent: float = 0.0
    given: tuple[int, ...] | None = None

    def shares(self, devices: int, generator: np.random.Generator) -> Float64:
        """Each device's size relative to the mean size."""
        if self.exponent == 0:
            return np.ones(devices)
        shares = np.arange(1.0, devices + 1) ** -self.exponent
        return generator.permutation(shares * (devices / shares.sum()))

    def draw(self, shares: Float64, largest_mean: int, shared: bool) -> Int64:
        """Whole sizes of at least 1 with the wanted mean; where it is unset, with the largest.

        Where devices may share samples, the largest mean may be 0.
        """
        if self.given is not None:
            return np.array(self.given, dtype=np.int64)
        mean = self.mean or (max(1, largest_mean) if shared else largest_mean)
        return whole_numbers(shares, mean * len(shares))


@dataclass(frozen=True)
class Iid:
    """Every device draws uniformly from all samples."""

    sizes: Sizes = field(default_factory=Sizes)
    with_replacement: bool = False

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        sizes = _sizes_of(self, labels, devices, generator)
        if sizes.sum() <= len(labels):
            order = generator.permutation(len(labels))[: sizes.sum()]
            return _by_device(order, sizes)
        return _by_device(deal_decks(np.arange(len(labels)), sizes, generator), sizes)


@dataclass(frozen=True)
class Mixed:
    """Some devices IID, uniform over labels; the others hold a few labels in equal parts.

    Which devices are Non-IID is random. Labels are dealt so that each is used by nearly the same
    number of Non-IID devices, and a device never holds the same label twice.
    """

    noniid_devices: int | None = None
    labels_per_device: int = 2
    sizes: Sizes = field(default_factory=Sizes)
    with_replacement: bool = False

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        supply = np.bincount(labels)
        if (self.noniid_devices or 0) > devices:
            raise InputError(
                f"data.noniid_devices = {self.noniid_devices}: there are only {devices} devices"
            )
        if self.labels_per_device > len(supply):
            raise InputError(
                f"data.labels_per_device = {self.labels_per_device}: the data set has only "
                f"{len(supply)} label{'s' if len(supply) > 1 else ''}; lower it, or use another "
                "data.partition"
            )
        wanted = self._label_shares(devices, len(supply), generator)
        shares = self.sizes.shares(devices, generator)
        largest = self._largest_mean(wanted, shares, supply)
        sizes = self.sizes.draw(shares, largest, self.with_replacement)
        demand = np.floor(wanted * sizes[:, None]).astype(np.int64)
        for device in np.flatnonzero(demand.sum(axis=1) < sizes):
            demand[device] = _whole_part(wanted[device], int(sizes[device]), generator)
        return deal(labels, demand, generator, self.with_replacement)

    def _label_shares(self, devices: int, classes: int, generator: np.random.Generator) -> Float64:
        """Row k: which part of device k's data has each label."""
        shares = np.full((devices, classes), 1.0 / classes)
        chosen = generator.permutation(devices)[: self.noniid_devices]  # None: all
        used, held, everything = [0] * classes, [], range(classes)
        for ties in generator.random((len(chosen), classes)).tolist():
            # The least used labels first, ties at random.
            order = sorted(everything, key=lambda label: (used[label], ties[label]))
            held.append(order[: self.labels_per_device])
            for label in held[-1]:
                used[label] += 1
        shares[chosen] = 0.0
        if held:
            shares[chosen[:, None], np.array(held)] = 1.0 / self.labels_per_device
        return shares

    @staticmethod
    def _largest_mean(wanted: Float64, shares: Float64, supply: Int64) -> int:
        """The largest mean size for which no label runs out, with room for rounding up."""
        per_sample = (wanted * shares[:, None]).sum(axis=0)
        rounding = (wanted > 0).sum(axis=0)
        used = per_sample > 0
        return int(((supply - rounding)[used] / per_sample[used]).min())


@dataclass(frozen=True)
class Dirichlet:
    """Each device's label mix is drawn from a Dirichlet distribution; small alpha is skewed."""

    alpha: float = 0.5
    sizes: Sizes = field(default_factory=Sizes)
    with_replacement: bool = False

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        supply = np.bincount(labels)
        sizes = _sizes_of(self, labels, devices, generator)
        mixes = generator.dirichlet(np.full(len(supply), self.alpha), devices)
        # Tiny alpha can underflow to a row of nan or zeros: such a device holds a single label.
        for device in np.flatnonzero(~(mixes.sum(axis=1) > 0.5)):
            mixes[device] = np.eye(len(supply))[generator.integers(len(supply))]
        shared = bool(sizes.sum() > len(labels))
        if shared:
            demand = generator.multinomial(sizes, mixes / mixes.sum(axis=1, keepdims=True))
            for device in np.flatnonzero((demand > supply).any(axis=1)):
                demand[device] = _draw_mix(mixes[device], int(sizes[device]), supply, generator)
            return deal(labels, demand, generator, shared)
        left = supply.astype(np.int64)
        demand = np.zeros((devices, len(supply)), np.int64)
        for device in generator.permutation(devices):
            demand[device] = _draw_mix(mixes[device], int(sizes[device]), left, generator)
            left = left - demand[device]
        return deal(labels, demand, generator, shared)


@dataclass(frozen=True)
class Shards:
    """Samples sorted by label are cut into shards of one size; each device gets a few at random."""

    shards_per_device: int = 2
    sizes: Sizes = field(default_factory=Sizes)
    with_replacement: bool = False

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        if self.sizes.given is None and self.sizes.exponent:
            raise InputError(
                f"data.size_exponent = {self.sizes.exponent:g}: shards are of one size; use 0 or "
                "another partition"
            )
        sizes = _sizes_of(self, labels, devices, generator)
        total = int(sizes.sum())
        shards = devices * self.shards_per_device
        if shards > total:
            raise InputError(
                f"data.shards_per_device = {self.shards_per_device}: {shards} shards cannot be cut "
                f"from {total} samples; lower it or raise data.samples_per_device"
            )
        if total <= len(labels):
            chosen = generator.permutation(len(labels))[:total]
        else:
            chosen = deal_decks(np.arange(len(labels)), np.array([total]), generator)
        chosen = chosen[np.argsort(labels[chosen], kind="stable")]
        order = generator.permutation(shards).reshape(devices, self.shards_per_device)
        pieces = self._cut(chosen, order, sizes)
        # With shared samples two shards of a device may hold the same one: keep it once.
        return [np.unique(np.concatenate([pieces[i] for i in row])) for row in order]

    def _cut(self, chosen: Int64, order: Int64, sizes: Int64) -> list[Int64]:
        """Shards of one size; where sizes are given, a device's shards share its size equally."""
        if self.sizes.given is None:
            return np.array_split(chosen, order.size)
        lengths = np.empty(order.size, np.int64)
        each, rest = np.divmod(sizes, self.shards_per_device)
        lengths[order] = each[:, None] + (np.arange(self.shards_per_device) < rest[:, None])
        return np.split(chosen, np.cumsum(lengths)[:-1])


def _draw_mix(mix: Float64, size: int, limit: Int64, generator: np.random.Generator) -> Int64:
    """Draw `size` labels from a mix, moving on to other labels where one runs out."""
    taken = np.zeros(len(limit), np.int64)
    while (missing := size - int(taken.sum())) > 0:
        open_labels = taken < limit
        weights = np.where(open_labels, mix, 0.0)
        if weights.sum() <= 0:  # the mix's own labels are used up: take what is left
            weights = np.where(open_labels, limit - taken, 0).astype(float)
        if weights.sum() <= 0:
            return taken + _whole_part(mix, missing, generator)  # shared pool: beyond all samples
        drawn: Int64 = generator.multinomial(missing, weights / weights.sum())
        taken = np.minimum(taken + drawn, limit).astype(np.int64)
    return taken


def whole_numbers(shares: Float64, total: int) -> Int64:
    """Whole numbers of at least 1 in proportion to the shares that add up to the total."""
    _at_least_one_each(len(shares), total)
    exact = 1 + (shares / shares.sum()) * (total - len(shares))
    whole: Int64 = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def _whole_part(shares: Float64, total: int, generator: np.random.Generator) -> Int64:
    """Whole numbers in proportion to the shares; what rounding leaves goes to random members."""
    whole: Int64 = np.floor(shares * total).astype(np.int64)
    rest = total - int(whole.sum())
    if rest > 0:
        whole[
            generator.choice(np.flatnonzero(shares), rest, replace=rest > (shares > 0).sum())
        ] += 1
    return whole


def _at_least_one_each(devices: int, total: int) -> None:
    if devices < 1:
        raise InputError("a partition needs at least one device")
    if total < devices:
        raise InputError(
            f"{total} samples cannot give {devices} devices at least one each; use fewer devices, "
            "raise data.samples_per_device or set data.with_replacement=true"
        )


def _sizes_of(
    partition: Iid | Dirichlet | Shards,
    labels: Labels,
    devices: int,
    generator: np.random.Generator,
) -> Int64:
    """The sizes of the devices; refused where they need more samples than there are."""
    available, shared = len(labels), partition.with_replacement
    if not shared and partition.sizes.given is None:
        _at_least_one_each(devices, available)
    shares = partition.sizes.shares(devices, generator)
    sizes = partition.sizes.draw(shares, available // devices, shared)
    if (wanted := int(sizes.sum())) > available and not shared:
        raise InputError(
            f"the devices ask for {wanted} samples and the data set has {available}; lower "
            "data.samples_per_device, or set data.with_replacement=true"
        )
    return sizes


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
    return _by_device(flat, sizes)


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


def _by_device(flat: Int64, sizes: Int64) -> list[Int64]:
    """One array per device."""
    return list(np.split(flat, np.cumsum(sizes)[:-1]))
