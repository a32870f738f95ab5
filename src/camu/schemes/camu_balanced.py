"""Near-IID clusters with equal work, a few steps between gathers, and momentum at the server.

The progress of a round is counted in gradient steps of the whole fleet. N gathers of H steps each
are worth N H steps, less a loss by drift: steps that a device takes alone lose in proportion to the
distance of its labels from everyone's, and gathers inside a cluster lose in proportion to the
cluster's distance. Noise with the share r of the update's power divides the progress by 1 + r.

A design is priced by joules x seconds / progress^2, the energy-delay product of a step. It needs no
exchange rate between joules and seconds. Joules are those of devices that slow down where they
would wait, or of full speed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.clustering.near_iid import balanced_groups, dealt_groups
from camu.errors import InputError
from camu.learning.job import LocalRule
from camu.planning.codecs import parameter_count
from camu.planning.contribution import extra_updates, group_counts, label_distance
from camu.planning.costs import Costs
from camu.planning.dvfs import joules_if_late, priced_round
from camu.planning.groups import (
    Groups,
    assess,
    clustering,
    clusters,
    make_plan,
    within_hearing,
)
from camu.planning.prices import model_bits, unit_costs
from camu.schemes.aggregation import with_momentum
from camu.schemes.contract import (
    Count,
    CountFromZero,
    NonNegative,
    Plan,
    Positive,
    Scheme,
    Share,
    State,
    View,
    Weights,
    World,
)

MOST_STEPS = 8
MOST_GATHERS = 4
POWER_SHARES = tuple(2.0**-k for k in range(7))  # of the most that a leader can send with
EXACT = 1 - 1e-9  # what rounding leaves of a bound
LEADERS = 16  # members with the best uplinks, among which a leader is chosen


@dataclass(frozen=True)
class CamuBalanced(Scheme):
    """Near-IID clusters, weights by samples, equal updates of several steps, server momentum.

    Clusters, gathers, steps, power and CPU frequencies are those with the least joules x seconds of
    a step, unless they are set. Each other rule can be switched off alone.
    """

    near_iid: bool = True  # False: the dual-segment clusters
    sample_weights: bool = True  # False: the paper's G_c
    equal_updates: bool = True  # False: as many as fit while the slowest updates once
    momentum: Share = 0.7  # 0: none
    dvfs: bool = True  # False: every device computes at its own frequency
    clusters_per_area: Count | None = None
    gathers: Count | None = None
    steps: Count | None = None
    power_watts: Positive | None = None
    drift: NonNegative = 0.16  # share of a step that is lost per step before it on the wrong labels
    max_extra_updates: CountFromZero = 4  # without equal_updates
    name = "camu-balanced"
    tunable = {
        "drift": (0.02, 1.0, "log"),
        "momentum": [0.0, 0.5, 0.7, 0.9],
        "training.server_momentum": None,  # this scheme's is its own
    }
    family = "clusters"
    citation = "this project; momentum after Hsu et al., 2019"
    choices = [
        "areas are regions or primary clusters, whichever costs less",
        "the base station knows label counts, as theta_c needs them too",
    ]

    def plan(self, world: World) -> Plan:
        """The design with the least price, as a plan."""
        design = self.design(world)
        groups = design.groups
        weights = groups.sample_weights if self.sample_weights else groups.contribution_weights
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        updates = design.gathers * (1 + (0 if self.equal_updates else extra))
        rule = LocalRule(steps=design.steps)
        plan = make_plan(self, groups, weights, updates, design.power_watts, rule=rule)
        return plan.with_dvfs(world) if self.dvfs else plan

    def aggregate(self, view: View, state: State) -> Weights:
        mean = super().aggregate(view, state)
        return with_momentum(view, state, mean, self.momentum) if self.momentum else mean

    def design(self, world: World) -> Design:
        """The design with the least price.

        The number of near-IID clusters is chosen among clusters that are dealt out; those are then
        improved by swaps, and the rest is chosen for them.
        """
        if not self.near_iid:
            return self.best_design([clusters(world)])
        divisions = [(area, n) for area in areas(world) for n in self._cluster_numbers(area)]
        dealt = [near_iid_clusters(world, *division, swapped=False) for division in divisions]
        chosen = self.best_design(dealt).groups
        division = divisions[[groups is chosen for groups in dealt].index(True)]
        return self.best_design([near_iid_clusters(world, *division, swapped=True)])

    def best_design(self, choices: Iterable[Groups]) -> Design:
        """The design with the least price among these groupings; the first of equal ones.

        Bounds on prices are cheap and schedules of the medium are not: the least bound goes first,
        and is made closer before it is replaced by prices.
        """
        searches = [_Search(self, groups) for groups in choices]
        left = [(*found, k, False) for k, one in enumerate(searches) for found in one.bounds()]
        heapq.heapify(left)
        best: tuple[float, tuple[int, int, int, int], Design] | None = None
        while left and (best is None or left[0][0] <= best[0]):
            _, steps, gathers, k, close = heapq.heappop(left)
            if not close:
                bound = searches[k].close_bound(steps, gathers)
                heapq.heappush(left, (bound, steps, gathers, k, True))
                continue
            for place, design in enumerate(searches[k].designs(steps, gathers)):
                found = (design.price, (k, place, steps, gathers), design)
                best = found if best is None or found[:2] < best[:2] else best
        if best is None:
            raise InputError("camu-balanced: no design makes progress; choose a smaller drift or H")
        return best[2]

    def _cluster_numbers(self, area: Int64) -> list[int]:
        """The numbers of clusters per area that are tried."""
        return cluster_numbers(area) if self.clusters_per_area is None else [self.clusters_per_area]


@dataclass(frozen=True, eq=False)
class Design:
    """Groups, and how they train in a round."""

    groups: Groups
    gathers: int  # N, local updates per round
    steps: int  # H, steps of a member between two gathers
    power_watts: Float64  # of each leader
    progress: float  # of a round, in steps
    joules: float  # of a round
    seconds: float

    @property
    def price(self) -> float:
        """Joules times seconds of a step."""
        return self.joules * self.seconds / self.progress**2


class _Search:
    """The designs of a grouping: bounds on their prices, and the prices.

    A round is no shorter than its busiest unit, nor than the gathers of units that hear each other,
    nor than all uplinks in turn if units never waited for the medium. In a round of S seconds no
    unit has more slack than S less what it is busy.
    """

    def __init__(self, scheme: CamuBalanced, groups: Groups) -> None:
        self.scheme, self.groups = scheme, groups
        self.access = groups.world.config.radio.access
        most = groups.world.devices.max_power_watts[np.array(groups.leaders)]
        self.powers = [share * most for share in POWER_SHARES]
        if scheme.power_watts is not None:
            self.powers = [np.minimum(most, scheme.power_watts)]
        each = [groups.costs(watts) for watts in self.powers]
        self.costs = [replace(each[0], **_uplinks(own)) for own in each]  # gathers are the same
        self.noise = [_noise(groups, own) for own in each]
        self.distances = _distances(groups)
        self.slows = scheme.dvfs and groups.world.config.readings.compute_model == "cycles"
        self.idle_watts = each[0].all_idle_watts
        medium = self.costs[0].medium
        cliques = medium.cliques() if medium is not None else []
        cliques = cliques or [np.arange(1)]  # nobody waits for anyone
        self.clique = np.concatenate(cliques)
        self.starts = np.cumsum([0, *map(len, cliques[:-1])])

    def bounds(self) -> Iterator[tuple[float, int, int]]:
        """A bound on the price, with the steps and gathers, where they make progress."""
        chosen = self.scheme
        all_steps = range(1, MOST_STEPS + 1) if chosen.steps is None else (chosen.steps,)
        all_gathers = range(1, MOST_GATHERS + 1) if chosen.gathers is None else (chosen.gathers,)
        for steps in all_steps:
            for gathers in all_gathers:
                if self.progress(steps, gathers, 0) > 0:
                    yield min(self.far_bounds(steps, gathers)), steps, gathers

    def progress(self, steps: int, gathers: int, place: int) -> float:
        """Steps that a round is worth, with the power in this place."""
        worth = progress(gathers, steps, *self.distances, self.scheme.drift)
        return worth / (1 + self.noise[place])

    def far_bounds(self, steps: int, gathers: int) -> list[float]:
        """A bound on the price for each power: the shortest round, devices at their cheapest."""
        cheapest = self.compute_joules(steps, gathers, self.costs[0], np.inf)
        found = []
        for place, costs in enumerate(self.costs):
            shortest = self.shortest_seconds(steps, gathers, costs)
            joules = _other_joules(costs, gathers) + self.idle_watts * shortest + cheapest
            worth = self.progress(steps, gathers, place)
            found.append(EXACT * joules * shortest / worth**2)
        return found

    def close_bound(self, steps: int, gathers: int) -> float:
        """A bound on the price that knows how much slack a round leaves, for any power."""
        far, least = self.far_bounds(steps, gathers), np.inf
        if not self.slows:
            return min(far)
        cheapest = self.compute_joules(steps, gathers, self.costs[0], np.inf)
        for place in np.argsort(far).tolist():
            if far[place] >= least:
                break
            costs = self.costs[place]
            busy = costs.with_steps(steps).busy_seconds(gathers) + costs.uplink_seconds
            other, worth = _other_joules(costs, gathers), self.progress(steps, gathers, place)
            seconds, wider = self.shortest_seconds(steps, gathers, costs), 0.01
            # Rounds of at least so many seconds, and of at most so many: one interval at a time.
            while (at_least := other + self.idle_watts * seconds + cheapest) * seconds < (
                least * worth**2 / EXACT
            ):
                longest = seconds * (1 + wider)
                computing = self.compute_joules(steps, gathers, costs, longest - busy)
                least = min(least, EXACT * (at_least - cheapest + computing) * seconds / worth**2)
                seconds, wider = longest, 2 * wider
        return float(least)

    def shortest_seconds(self, steps: int, gathers: int, costs: Costs) -> float:
        """No round is shorter."""
        air = costs.uplink_seconds
        computed = costs.downlink_seconds + steps * costs.compute_seconds
        busy = computed + (gathers - 1) * steps * costs.compute_seconds
        busy = busy + gathers * costs.gather_seconds
        shortest = float((busy + air).max())
        if self.access == "tdma" and costs.queues is None:
            order = np.argsort(-busy)
            shortest = max(shortest, float((busy[order] + np.cumsum(air[order])).max()))
        if costs.medium is not None:
            first, last = (
                np.minimum.reduceat(own[self.clique], self.starts) for own in (computed, air)
            )
            sent = np.add.reduceat(costs.gather_seconds[self.clique], self.starts)
            shortest = max(shortest, float((first + gathers * sent + last).max()))
        return shortest

    def designs(self, steps: int, gathers: int) -> Iterator[Design]:
        """The designs with so many steps and gathers, one for each power."""
        for place, costs in enumerate(self.costs):
            own = costs.with_steps(steps)
            joules, seconds = priced_round(own, gathers, self.access, self.slows)
            worth = self.progress(steps, gathers, place)
            watts = self.powers[place]
            yield Design(self.groups, gathers, steps, watts, worth, joules, seconds)

    def compute_joules(
        self, steps: int, gathers: int, costs: Costs, slack: Float64 | float
    ) -> float:
        """Energy to compute in a round in which each unit may be late by this slack, in seconds."""
        own = costs.with_steps(steps)
        late = np.broadcast_to(slack / gathers, own.sizes.shape)
        each = joules_if_late(own, late) if self.slows else own.compute_joules
        return gathers * float(each.sum())


def _uplinks(costs: Costs) -> dict[str, Any]:
    """What the leaders' power decides."""
    names = ("uplink_seconds", "uplink_joules", "uplink_snr", "uplink_bits", "outage")
    return {name: getattr(costs, name) for name in names}


def _other_joules(costs: Costs, gathers: int) -> float:
    """Energy of an undisturbed round without computing and idle power."""
    per_gather = costs.gather_joules + costs.listening_joules
    return float((costs.fixed_joules + gathers * per_gather).sum())


def progress(
    gathers: int, steps: int, device_distance: float, group_distance: float, drift: float
) -> float:
    """Steps that a round is worth; distances are total variation, from 0 to 1.

    Of the H steps of a device, the one after i others loses the share drift x distance x i. Of the
    N gathers of a cluster, the one after i others loses drift x distance x i H of its H steps.
    """
    alone = gathers * steps * (steps - 1) / 2 * device_distance
    together = steps**2 * gathers * (gathers - 1) / 2 * group_distance
    return gathers * steps - drift * (alone + together)


def near_iid_clusters(world: World, area: Int64, number: int, swapped: bool) -> Groups:
    """At most so many near-IID clusters in each area; an area with fewer devices has as many."""
    counts = world.devices.label_counts
    everyone = counts.sum(axis=0)
    members: list[tuple[int, ...]] = []
    for own in (np.flatnonzero(area == index) for index in range(int(area.max()) + 1)):
        count = min(number, len(own))
        if swapped:
            part = balanced_groups(counts[own], everyone, count, world.seed)
        else:
            part = dealt_groups(counts[own], everyone, count)
        parts = [own[part == k].tolist() for k in range(count)]
        members += [tuple(group) for group in within_hearing(world, parts)]
    return assess(world, sorted(members), _leaders(world, sorted(members)))


def cluster_numbers(area: Int64) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... clusters per area, with two devices or more in the largest."""
    most = int(np.bincount(area).max())
    powers = [2**k for k in range(most.bit_length())]
    return sorted({n for p in powers for n in (p, 3 * p // 2) if n <= max(1, most // 2)})


def areas(world: World) -> Iterator[Int64]:
    """The area of each device: its region, or its primary cluster."""
    for area in (world.devices.regions, clustering(world).primaries()):
        # Numbered without gaps: a primary cluster is lost where clusters are merged.
        number = np.unique(area, return_inverse=True)[1]
        if world.links.types is not None:  # only devices of one link type share a cluster
            both = len(world.links.types.names) * number + world.links.types.place
            number = np.unique(both, return_inverse=True)[1]
        yield np.asarray(number, dtype=np.int64)


def _leaders(world: World, members: Sequence[Sequence[int]]) -> list[int]:
    """Of the members with the best uplinks, the one for which all sending takes the least time."""
    uplink, parameters = world.links.uplink_snr(), parameter_count(world)
    bits, power = model_bits(world, parameters), world.devices.power_watts
    best = [np.array(group)[np.argsort(-uplink[list(group)], kind="stable")] for group in members]
    tried = [leader for group in best for leader in group[:LEADERS].tolist()]
    units = [group for group in members for _ in range(min(LEADERS, len(group)))]
    costs = unit_costs(
        world, units, tried, power[tried], bits, parameters, uplinks={}, alternatives=True
    )
    sending = costs.gather_seconds + costs.uplink_seconds
    sending[~_heard_by_all(world, units, tried)] = np.inf
    starts = np.cumsum([0] + [min(LEADERS, len(group)) for group in members])
    return [tried[k + int(np.argmin(sending[k:end]))] for k, end in pairwise(starts.tolist())]


def _heard_by_all(
    world: World, units: Sequence[Sequence[int]], leaders: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Whether all members of each unit hear its leader; with `shannon` they do."""
    if world.links.types is None:
        return np.ones(len(units), dtype=bool)
    pairs = [
        (np.array(unit), np.array(leader)) for unit, leader in zip(units, leaders, strict=True)
    ]
    return np.array(
        [(world.links.hear(unit, one, -np.inf) | (unit == one)).all() for unit, one in pairs]
    )


def _distances(groups: Groups) -> tuple[float, float]:
    """Mean distance of labels to everyone's, of devices and of groups, by samples."""
    counts, samples = groups.world.devices.label_counts, groups.world.devices.samples
    everyone, pooled = counts.sum(axis=0), group_counts(counts, groups.members)
    alone = np.average(label_distance(counts, everyone, "tv"), weights=samples)
    apart = np.average(label_distance(pooled, everyone, "tv"), weights=groups.samples)
    return float(alone), float(apart)


def _noise(groups: Groups, costs: Costs) -> float:
    """Power of the noise on the mean update, relative to an update: sum_c G_c^2 / SNR_c."""
    if groups.world.config.radio.uplink in ("digital", "packet"):
        return 0.0  # updates that arrive are exact
    return float((groups.sample_weights**2 / costs.uplink_snr).sum())
