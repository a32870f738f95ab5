"""Deal the samples of a data set to devices.

Each partition is a small frozen class with one method from (labels, devices, generator) to one
index array per device. Samples are dealt without sharing; where the data set is too small for that,
a request is refused with the reason, or shares samples if `with_replacement` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, Labels
from camu.config import DataConfig
from camu.data.catalog import Dataset
from camu.data.dealing import deal, deal_decks, split
from camu.data.samples import check_parts
from camu.data.store import load
from camu.errors import InputError
from camu.plugins import import_method, user_code
from camu.seeding import derive

_TOGETHER_DEVICES = 10_000  # whose labels are counted at the same time


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
    law: Literal["equal", "power-law"] = "equal"
    exponent: float = 1.0
    given: tuple[int, ...] | None = None

    def shares(self, devices: int, generator: np.random.Generator) -> Float64:
        """Each device's size relative to the mean size."""
        if self.law == "equal":
            return np.ones(devices)
        shares = np.arange(1.0, devices + 1) ** -self.exponent
        return generator.permutation(shares * (devices / shares.sum()))

    def draw(self, devices: int, available: int, generator: np.random.Generator) -> Int64:
        """Whole sizes of at least 1 with the wanted mean; `available` samples where unset."""
        if self.given is not None:
            return np.array(self.given, dtype=np.int64)
        _at_least_one_each(devices, available)
        mean = self.mean if self.mean is not None else available // devices
        return _whole(self.shares(devices, generator), mean * devices)


@dataclass(frozen=True)
class Iid:
    """Every device draws uniformly from all samples."""

    sizes: Sizes = field(default_factory=Sizes)
    with_replacement: bool = False

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        sizes = self.sizes.draw(devices, len(labels), generator)
        _check_total(int(sizes.sum()), len(labels), self.with_replacement)
        if sizes.sum() <= len(labels):
            order = generator.permutation(len(labels))[: sizes.sum()]
            return list(np.split(order, np.cumsum(sizes)[:-1]))
        return split(deal_decks(np.arange(len(labels)), sizes, generator), sizes)


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
                f"{len(supply)} labels"
            )
        wanted = self._label_shares(devices, len(supply), generator)
        sizes = self._draw_sizes(wanted, supply, generator)
        demand = np.floor(wanted * sizes[:, None]).astype(np.int64)
        for device in np.flatnonzero(demand.sum(axis=1) < sizes):
            demand[device] = _whole_part(wanted[device], int(sizes[device]), generator)
        return deal(labels, demand, generator, self.with_replacement)

    def _draw_sizes(self, wanted: Float64, supply: Int64, generator: np.random.Generator) -> Int64:
        devices, mean = len(wanted), self.sizes.mean
        if self.sizes.given is not None:
            return np.array(self.sizes.given, dtype=np.int64)
        shares = self.sizes.shares(devices, generator)
        if mean is None:
            mean = self._largest_mean(wanted, shares, supply)
        return _whole(shares, mean * devices)

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
        mean = int(((supply - rounding)[used] / per_sample[used]).min())
        _at_least_one_each(len(shares), mean * len(shares))
        return mean


@dataclass(frozen=True)
class Dirichlet:
    """Each device's label mix is drawn from a Dirichlet distribution; small alpha is skewed."""

    alpha: float = 0.5
    sizes: Sizes = field(default_factory=Sizes)
    with_replacement: bool = False

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        supply = np.bincount(labels)
        sizes = self.sizes.draw(devices, len(labels), generator)
        _check_total(int(sizes.sum()), len(labels), self.with_replacement)
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
        if self.sizes.given is None and self.sizes.law != "equal":
            raise InputError(
                'data.sizes = "power-law": shards are of one size; use "equal" or other partitions'
            )
        sizes = self.sizes.draw(devices, len(labels), generator)
        total = int(sizes.sum())
        _check_total(total, len(labels), self.with_replacement)
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


@dataclass(frozen=True)
class OwnPartition:
    """The user's function, or the method `split` of the user's class; its indices are checked."""

    name: str
    function: Callable[[Labels, int, np.random.Generator], Iterable[npt.ArrayLike]]

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        what = f"data.partition = {self.name}"
        with user_code(what, self.function, "(labels, devices, generator)"):
            parts = [np.asarray(part) for part in self.function(labels, devices, generator)]
        if len(parts) != devices:
            raise InputError(
                f"{what}: {len(parts)} arrays for {devices} devices; return one per device"
            )
        return list(check_parts(parts, what, len(labels)))


@dataclass(frozen=True, eq=False)
class Given:
    """The division that comes with the data; of more parts than devices, some at random."""

    parts: tuple[Int64, ...]

    def split(self, labels: Labels, devices: int, generator: np.random.Generator) -> list[Int64]:
        if len(self.parts) < devices:
            raise InputError(
                f'data.partition = "given": the data come in {len(self.parts)} parts and there are '
                f"{devices} devices; use fewer devices"
            )
        chosen = generator.permutation(len(self.parts))[:devices]
        return [self.parts[part] for part in np.sort(chosen)]


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


def _whole(shares: Float64, total: int) -> Int64:
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


def _check_total(wanted: int, available: int, with_replacement: bool) -> None:
    if wanted > available and not with_replacement:
        raise InputError(
            f"the devices ask for {wanted} samples and the data set has {available}; lower "
            "data.samples_per_device, or set data.with_replacement=true"
        )


@dataclass(frozen=True)
class Federation:
    """A data set and, for each device, the indices of its training samples."""

    dataset: Dataset
    indices: tuple[Int64, ...]

    @cached_property
    def label_counts(self) -> Int64:
        """Samples of each label on each device, (devices, classes)."""
        classes = self.dataset.spec.classes
        labels = self.dataset.train_labels
        counts = np.empty((len(self.indices), classes), np.int64)
        for start in range(0, len(self.indices), _TOGETHER_DEVICES):
            part = self.indices[start : start + _TOGETHER_DEVICES]
            device = np.repeat(np.arange(len(part)), [len(own) for own in part])
            places = device * classes + labels[np.concatenate(part)]
            counted = np.bincount(places, minlength=len(part) * classes)
            counts[start : start + len(part)] = counted.reshape(len(part), classes)
        return counts


def choose_partition(config: DataConfig, given: tuple[Int64, ...] | None = None) -> Partition:
    """The partition that a configuration asks for; `given` is the one that comes with the data."""
    sizes = Sizes(config.samples_per_device, config.sizes, config.size_exponent)
    shared = config.with_replacement
    if config.partition == "mixed":
        return Mixed(config.noniid_devices, config.labels_per_device, sizes, shared)
    if config.partition == "dirichlet":
        return Dirichlet(config.alpha, sizes, shared)
    if config.partition == "shards":
        return Shards(config.shards_per_device, sizes, shared)
    if config.partition == "iid":
        return Iid(sizes, shared)
    if config.partition == "given":
        if given is None:
            raise InputError(
                f'data.partition = "given": data.dataset = {config.dataset} comes undivided; name '
                "a function that returns a list of arrays of sample indices too, one per device"
            )
        return Given(given)
    own = config.partition
    return OwnPartition(own, import_method(own, "data.partition", "split", config))


def dealer(seed: int) -> np.random.Generator:
    """The generator that deals samples to devices."""
    return derive(seed, "partition").numpy()


def federate(config: DataConfig, devices: int, seed: int) -> Federation:
    """Load the data set and deal it to the devices."""
    dataset = load(config.dataset, config.directory)
    partition = choose_partition(config, dataset.parts)
    indices = partition.split(dataset.train_labels, devices, dealer(seed))
    return Federation(dataset, tuple(indices))
