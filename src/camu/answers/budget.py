"""What fits a budget that is too small: fewer rounds, bits or devices, or another scheme."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from camu.answers.dry import DryPlan
from camu.answers.upgrades import solo_seconds
from camu.config import Config
from camu.errors import CamuError
from camu.planning.central import Bill
from camu.schemes.registry import configs_for, field_names
from camu.work import Progress, silent
from camu.world import World

BITS = (16, 8)  # per parameter of what is sent as it is
SHARES = (0.75, 0.5, 0.25)  # of the devices, the quickest
SCHEMES = ("camu", "clustered", "fedsgd", "fedpaq")
WITHIN_ROUNDS = "camu-joint"  # it keeps to an energy in each round
MOST_OTHERS = 3


@dataclass(frozen=True)
class Budget:
    """What may be spent; None: as much as it takes."""

    seconds: float | None = None
    joules: float | None = None
    megabytes: float | None = None
    round_joules: float | None = None  # in each round

    @property
    def given(self) -> bool:
        """Whether there is a limit."""
        return any(one is not None for one in (*self._totals, self.round_joules))

    @property
    def _totals(self) -> tuple[float | None, float | None, float | None]:
        return self.seconds, self.joules, self.megabytes

    def rounds(self, dry: DryPlan) -> float:
        """How many whole rounds of a plan fit; infinite without a limit."""
        if self.round_joules is not None and dry.cost.joules > self.round_joules:
            return 0.0
        start, one = dry.bill(0.0), dry.bill(1.0)
        found = math.inf
        for limit, fixed, total in zip(self._totals, start, one, strict=True):
            if limit is not None:
                each = total - fixed
                left = limit - fixed
                fits = 0.0 if left < 0 else left / each if each > 0 else math.inf
                found = min(found, fits if math.isinf(fits) else math.floor(fits * (1 + 1e-12)))
        return found

    def used(self, bill: Bill) -> float:
        """The largest share of a limit that is used up."""
        pairs = zip(self._totals, bill, strict=True)
        return max((spent / limit for limit, spent in pairs if limit is not None), default=0.0)


@dataclass(frozen=True)
class Option:
    """Another plan, and what so many rounds of it cost."""

    scheme: str
    bits: int  # per parameter
    devices: int
    samples_share: float  # of the samples, that of these devices
    new_scheme: bool  # it is not the present one
    changes: int  # of scheme, bits and devices
    rounds: float  # that fit
    bill: Bill  # of the rounds that are asked for
    used: float  # the largest share of a limit, for the rounds that are asked for

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from other options."""
        return self.scheme, self.bits, self.devices


def options(
    dry: DryPlan, budget: Budget, rounds: float, progress: Progress = silent
) -> list[Option]:
    """All changes of scheme, bits and devices, and how many rounds of each fit the budget.

    Those that fit all rounds come first, the cheapest one first: of each scheme those for which no
    milder change will do. Then some others, by the rounds that fit. A scheme that can make no plan
    is left out.
    """
    world = dry.world
    tried = list(_variants(dry, budget))
    found = []
    for number, (own, name, bits, devices, changes) in enumerate(tried):
        progress("plans that would fit", number, len(tried))
        try:
            made = DryPlan.of(own)
        except CamuError:
            continue
        share = float(own.devices.samples.sum() / world.devices.samples.sum())
        bill = made.bill(rounds)
        fits = budget.rounds(made)
        new = name != world.config.scheme.name
        cost = fits, bill, budget.used(bill)
        found.append(Option(name, bits, devices, share, new, changes, *cost))
    fitting = [one for one in found if one.rounds >= rounds]
    least = [one for one in fitting if not any(_is_milder(other, one) for other in fitting)]
    others = [one for one in found if one.rounds < rounds]
    return [
        *sorted(least, key=lambda one: one.used),
        *sorted(others, key=lambda one: (-one.rounds, one.changes))[:MOST_OTHERS],
    ]


def _is_milder(one: Option, other: Option) -> bool:
    """Whether an option changes less than another one, of the same scheme or with the present."""
    same = one.scheme == other.scheme or not one.new_scheme
    less = one.bits >= other.bits and one.devices >= other.devices
    return same and less and one.key != other.key


def _variants(dry: DryPlan, budget: Budget) -> Iterator[tuple[World, str, int, int, int]]:
    """Worlds with other keys and fewer devices, and how many things were changed."""
    world = dry.world
    config, count = world.config, world.devices.count
    more = () if budget.round_joules is None else (WITHIN_ROUNDS,)
    names = list(dict.fromkeys([config.scheme.name, *SCHEMES, *more]))
    widths = [config.radio.bits_per_parameter]
    widths += [bits for bits in BITS if bits < widths[0]]
    order = np.arange(count)
    sizes = [count]
    if world.movement is None:
        order = np.argsort(solo_seconds(world, dry.plan), kind="stable")
        sizes += [size for size in (math.ceil(s * count) for s in SHARES) if 0 < size < count]
    for name, bits, size in product(names, widths, sizes):
        changes = (name != names[0]) + (bits != widths[0]) + (size != count)
        own = _narrowed(replace(world, config=_of_scheme(config, name)), bits)
        yield _smaller(own, np.sort(order[:size])), name, bits, size, changes


def _of_scheme(config: Config, name: str) -> Config:
    """The configuration of another scheme, with those parameters that it has."""
    known = field_names(name)
    given = {k: v for k, v in config.scheme.parameters.items() if k in known}
    own = config.replace({"scheme.parameters": given})
    return configs_for(own, [name])[name]


def _narrowed(world: World, bits: int) -> World:
    """The same world where numbers are sent with so many bits."""
    config = world.config
    if bits == config.radio.bits_per_parameter:
        return world
    config = config.replace({"radio.bits_per_parameter": bits})
    return replace(world, config=config, links=replace(world.links, radio=config.radio))


def _smaller(world: World, devices: np.typing.NDArray[np.int64]) -> World:
    """The same world with these devices only, without their training data."""
    if len(devices) == world.devices.count:
        return world
    return replace(world, links=world.links.select(devices), federation=None)
