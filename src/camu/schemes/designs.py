"""Designs of camu-auto: the structures of a world, the price of a round, and the search.

The levers of a structure are moved one after the other, each to its best value with the others as
they are, until none moves. Every price is that of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering.near_iid import balanced_groups, dealt_groups
from camu.errors import InputError
from camu.learning.job import LocalRule
from camu.planning.air import ALIGNED, TOGETHER
from camu.planning.codecs import RAW, Codec, Quantised, parameter_count, payload_bits
from camu.planning.contribution import group_counts, label_distance
from camu.planning.costs import Costs
from camu.planning.dvfs import priced_round
from camu.planning.groups import Groups, clusters, single_devices
from camu.planning.prices import unit_costs
from camu.schemes.camu_balanced import areas, cluster_numbers, near_iid_clusters, progress
from camu.schemes.levers import (
    UNCODED,
    Goal,
    Levers,
    Makeup,
    Training,
    levels_of,
    promised,
    reached,
)
from camu.world import World

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
GATHERS = (1, 2, 3, 4)
COHORTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
BITS = (UNCODED, 8, 5, 4, 3, 2)
POWERS = (None, *(2.0**-k for k in range(7)))  # shares of the most that a leader can send with
RATES = tuple(2.0 ** (k / 2) for k in range(-8, 13))
MOMENTA = (0.0, 0.5, 0.7, 0.8, 0.9)
_SWEEPS = 5
_SAMPLE = 3  # cohorts whose prices stand for those of all while searching
_FINALISTS = 3  # structures whose waits for the medium are computed
_FEW = 100  # units whose cohorts are improved by swaps


@dataclass(frozen=True, eq=False)
class Structure:
    """Groups of devices, with a name for people and how to improve them."""

    name: str
    groups: Groups
    improved: Callable[[], Groups] | None = None


def structures(world: World, wanted: str) -> list[Structure]:
    """The structures of a world, found once: `auto` for all, or the word of some of them."""
    found = world.cached(("structures", wanted), lambda: tuple(_structures(world, wanted)))
    return list(found)


def _structures(world: World, wanted: str) -> Iterator[Structure]:
    if wanted in ("auto", "devices"):
        yield Structure("single devices", single_devices(world))
    if wanted in ("auto", "dual-segment"):
        yield Structure("dual-segment clusters", clusters(world))
    if wanted in ("auto", "near-iid"):
        known = set()
        for name, area in zip(("region", "primary cluster"), areas(world), strict=True):
            for number in cluster_numbers(area):
                dealt = near_iid_clusters(world, area, number, swapped=False)
                if dealt.members in known:
                    continue
                known.add(dealt.members)

                def improved(area: Int64 = area, number: int = number) -> Groups:
                    return near_iid_clusters(world, area, number, swapped=True)

                yield Structure(f"near-IID clusters, {number} per {name}", dealt, improved)


def cohorts_of(world: World, members: Sequence[Sequence[int]], number: int) -> Int64:
    """The cohort of each unit: cohorts of about equal size whose labels look like everyone's."""

    def make() -> Int64:
        counts = group_counts(world.devices.label_counts, members)
        everyone = world.devices.label_counts.sum(axis=0)
        if len(counts) > _FEW:
            return dealt_groups(counts, everyone, number)
        return balanced_groups(counts, everyone, number, world.seed)

    return world.cached(("cohorts", tuple(map(tuple, members)), number), make)


@dataclass(frozen=True, eq=False)
class Design:
    """Groups with levers: what a round costs on average, and how far a run gets."""

    structure: Structure
    levers: Levers
    joules: float
    seconds: float
    rounds: float  # that the goal pays for
    worth: float  # how far they get

    @property
    def name(self) -> str:
        """Of the structure."""
        return self.structure.name

    @property
    def groups(self) -> Groups:
        return self.structure.groups

    @property
    def power_watts(self) -> Float64:
        """Of each leader."""
        return watts_of(self.structure.groups, self.levers.power)

    @property
    def codec(self) -> Codec:
        """How updates are sent."""
        return codec_of(self.levers.bits)


def codec_of(bits: int) -> Codec:
    """The codec with so many bits per parameter."""
    return RAW if bits >= UNCODED else Quantised(levels_of(bits))


def watts_of(groups: Groups, power: float | None) -> Float64:
    """The power of each leader at a share of its most; None: its configured one."""
    devices, leaders = groups.world.devices, np.array(groups.leaders)
    most = devices.max_power_watts[leaders]
    own = devices.power_watts[leaders] if power is None else power * most
    return np.asarray(np.minimum(own, most))


@dataclass(frozen=True, eq=False)
class Search:
    """The best levers of each structure for a goal.

    `fixed` are the levers that are not chosen; `slowed` says that waiting devices slow down.
    """

    world: World
    training: Training
    goal: Goal
    predictor: str
    drift: float
    fixed: Mapping[str, Any]
    slowed: bool
    airs: Sequence[bool] = (False,)  # whether units transmit at once: the values to choose from

    @cached_property
    def parameters(self) -> int:
        return parameter_count(self.world)

    @cached_property
    def _known(self) -> dict[Any, Any]:
        """What was found in this world, by whichever search."""
        return self.world.cached("designs", dict)

    def best(self, choices: Sequence[Structure]) -> Design:
        """The design that gets farthest; near-IID clusters are improved by swaps at the end."""
        tried: list[Design] = []
        for one in choices:  # the levers of the best structure so far are a good start
            start = max(tried, key=lambda design: design.worth).levers if tried else None
            tried.append(self.of(one, start))
        tried.sort(key=lambda design: -design.worth)
        found = self.exact(tried[:_FINALISTS])
        if found.structure.improved is not None:
            known, one = self._known, found.structure
            if one.groups not in known:
                known[one.groups] = replace(one, groups=found.structure.improved(), improved=None)
            better = known[one.groups]
            found = self.exact([self.of(better, found.levers)])
        if not found.worth > 0:
            raise InputError("camu-auto: no design makes progress; choose a smaller drift or rate")
        return found

    def exact(self, designs: Sequence[Design]) -> Design:
        """The best of these with all waits for the medium in its price."""
        priced = [self.design(one.structure, one.levers, exact=True) for one in designs]
        return max(priced, key=lambda design: design.worth)

    def of(self, structure: Structure, start: Levers | None = None) -> Design:
        """The best levers of a structure, moved one after the other."""
        begin = start or replace(Levers(air=self.airs[0]), **self.fixed)
        if self.alone(structure) and "gathers" not in self.fixed:
            begin = replace(begin, gathers=1)
        most = max(1, len(structure.groups) // 2)
        best = self.design(structure, replace(begin, cohorts=min(begin.cohorts, most)))
        for _ in range(_SWEEPS):
            before = best.worth
            for names, values in self.values(structure):
                for value in values:
                    tried = replace(best.levers, **dict(zip(names, value, strict=True)))
                    if tried != best.levers:
                        other = self.design(structure, tried)
                        best = other if other.worth > best.worth * (1 + 1e-9) else best
            if not best.worth > before * (1 + 1e-9):
                break
        return best

    def alone(self, structure: Structure) -> bool:
        """Whether all units are single devices, whose gathers are only more steps."""
        return len(structure.groups) == self.world.devices.count

    def values(self, structure: Structure) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        """Levers that move together, and their values."""
        units = len(structure.groups)
        coded = self.world.config.radio.uplink != "analog"
        for all_values in (
            {"air": self.airs},
            {"bits": BITS if coded else (UNCODED,)},
            {"gathers": (1,) if self.alone(structure) else GATHERS, "steps": STEPS},
            {"cohorts": [n for n in COHORTS if n <= max(1, units // 2)]},
            {"power": POWERS},
            {"rate": RATES, "momentum": MOMENTA},
        ):
            own = {key: values for key, values in all_values.items() if key not in self.fixed}
            if own:
                yield tuple(own), list(product(*own.values()))

    def design(self, structure: Structure, levers: Levers, exact: bool = False) -> Design:
        """What these levers cost and reach; waits for the medium are bounds unless `exact`."""
        if levers.air and levers.bits < UNCODED:
            levers = replace(levers, bits=UNCODED)
        joules, seconds = self.price(structure.groups, levers, exact)
        rounds = self.goal.rounds(joules, seconds)
        makeup = self.makeup(structure.groups, levers)
        if self.predictor == "bound":
            worth = promised(levers, self.training, makeup, self.parameters, rounds)
        else:
            distances = makeup.device_distance, makeup.unit_distance
            steps = progress(levers.gathers, levers.steps, *distances, self.drift)
            worth = reached(levers, self.training, makeup, steps, self.parameters, rounds)
        return Design(structure, levers, joules, seconds, rounds, worth)

    def price(self, groups: Groups, levers: Levers, exact: bool = True) -> tuple[float, float]:
        """Joules and seconds of a round, on average over the cohorts.

        Without `exact` units that hear each other gather in turn, and nobody waits otherwise.
        """
        key = ("price", groups, replace(levers, rate=1.0, momentum=0.0), exact, self.slowed)
        if key not in self._known:
            cohorts = self.costs(groups, levers, exact)
            each = [self._round(costs, levers, exact) for costs in cohorts]
            self._known[key] = tuple(np.mean(each, axis=0).tolist())
        found: tuple[float, float] = self._known[key]
        return found

    def _round(self, costs: Costs, levers: Levers, exact: bool) -> tuple[float, float]:
        access = TOGETHER if levers.air else self.world.config.radio.access
        slowed = self.slowed and self.world.config.readings.compute_model == "cycles"
        own = costs.with_steps(levers.steps)
        if exact or own.medium is None or not (own.sizes > 1).any():
            return priced_round(own, levers.gathers, access, slowed)
        calm = replace(own, medium=None)
        joules, seconds = priced_round(calm, levers.gathers, access, slowed)
        cliques = own.medium.cliques()
        longest = max((self._in_turn(own, levers.gathers, one) for one in cliques), default=0.0)
        late = max(0.0, longest - seconds)
        return joules + own.all_idle_watts * late, seconds + late

    def _in_turn(self, costs: Costs, gathers: int, clique: Int64) -> float:
        """A round is no shorter than the gathers of units that hear each other."""
        first = (costs.downlink_seconds + costs.compute_seconds)[clique].min()
        sent = costs.gather_seconds[clique].sum()
        return float(first + gathers * sent + costs.uplink_seconds[clique].min())

    def costs(self, groups: Groups, levers: Levers, exact: bool = True) -> list[Costs]:
        """The costs of the units of each cohort, or of a few cohorts, with one step."""
        key = ("costs", groups, levers.cohorts, levers.bits, levers.power, levers.air, exact)
        if key not in self._known:
            width = self.world.config.radio.bits_per_parameter
            bits = payload_bits(codec_of(levers.bits), self.parameters, width)
            watts = watts_of(groups, levers.power)
            burst = ALIGNED.signal(self.parameters) if levers.air else None
            self._known[key] = [
                unit_costs(
                    self.world,
                    [groups.members[k] for k in own],
                    [groups.leaders[k] for k in own],
                    watts[own],
                    bits,
                    self.parameters,
                    rules=[LocalRule()] * len(own),
                    burst=burst,
                )
                for own in self.rows(groups, levers.cohorts)[: None if exact else _SAMPLE]
            ]
        found: list[Costs] = self._known[key]
        return found

    def rows(self, groups: Groups, cohorts: int) -> list[Int64]:
        """The units of each cohort."""
        if cohorts == 1:
            return [np.arange(len(groups))]
        of = cohorts_of(self.world, groups.members, cohorts)
        return [np.flatnonzero(of == k) for k in range(cohorts)]

    def makeup(self, groups: Groups, levers: Levers) -> Makeup:
        """What noise sees of the units."""
        key = ("makeup", groups, levers.cohorts, levers.power, levers.air)
        if key not in self._known:
            self._known[key] = self._makeup(groups, levers)
        found: Makeup = self._known[key]
        return found

    def _makeup(self, groups: Groups, levers: Levers) -> Makeup:
        world, weights = self.world, groups.sample_weights
        counts, samples = world.devices.label_counts, world.devices.samples
        everyone, pooled = counts.sum(axis=0), group_counts(counts, groups.members)
        rows = self.rows(groups, levers.cohorts)
        together = np.stack([pooled[own].sum(axis=0) for own in rows])
        shares = [weights[own] / weights[own].sum() for own in rows]

        def away(of: Int64, by: Any) -> float:
            return float(np.average(label_distance(of, everyone, "tv"), weights=by))

        return Makeup(
            weights=weights,
            squares=float(np.mean([np.square(share).sum() for share in shares])),
            members=world.devices.count / len(groups),
            devices=world.devices.count / levers.cohorts,
            device_distance=away(counts, samples),
            unit_distance=away(pooled, groups.samples),
            cohort_distance=away(together, together.sum(axis=1)),
            channel=self._channel(groups, levers, rows, shares),
        )

    def _channel(
        self, groups: Groups, levers: Levers, rows: Sequence[Int64], shares: Sequence[Float64]
    ) -> float:
        """Noise of the channel on the mean of updates of equal norm, relative to that norm."""
        radio, links = self.world.config.radio, self.world.links
        leaders = np.array(groups.leaders)
        if levers.air:
            power = watts_of(groups, levers.power) * links.uplink_gain[leaders] / radio.antennas
            each = [
                float((share**2 * links.noise_watts / power[own]).max())
                for own, share in zip(rows, shares, strict=True)
            ]
        elif radio.uplink in ("digital", "packet"):
            return 0.0
        else:
            each = [
                float((share**2 / costs.uplink_snr).sum())
                for share, costs in zip(shares, self.costs(groups, levers), strict=True)
            ]
        return float(np.mean(each))
