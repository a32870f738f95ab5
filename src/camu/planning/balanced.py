"""Clusters, steps and power with the least joules times seconds for the same progress.

The progress of a round is counted in gradient steps of the whole fleet. N gathers of H steps each
are worth N H steps, less a loss by drift: steps that a device takes alone lose in proportion to the
distance of its labels from everyone's, and gathers inside a cluster lose in proportion to the
cluster's distance. Noise with the share r of the update's power divides the progress by 1 + r.

A choice is priced by joules x seconds / progress^2, the energy-delay product of a step. It needs no
exchange rate between joules and seconds. Joules are those of devices that slow down where they
would wait, or of full speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering import cluster_devices
from camu.clustering.near_iid import balanced_groups, dealt_groups
from camu.errors import InputError
from camu.learning.job import LocalRule
from camu.planning.codecs import BITS_PER_PARAMETER
from camu.planning.costs import Costs, send_in_turn, unit_costs
from camu.planning.groups import Groups, assess, group_counts, label_distance
from camu.planning.parameters import parameter_count
from camu.planning.slow_down import latest_ready
from camu.world import World

MOST_STEPS = 8
MOST_GATHERS = 4
POWER_SHARES = tuple(2.0**-k for k in range(7))  # of the most that a leader can send with
_LEADERS = 16  # members with the best uplinks, among which a leader is chosen


@dataclass(frozen=True)
class Limits:
    """Numbers that are fixed instead of chosen; None is chosen. And whether devices slow down."""

    clusters: int | None = None  # per area
    gathers: int | None = None
    steps: int | None = None
    power_watts: float | None = None
    slow_down: bool = True


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


def best_design(choices: Iterable[Groups], drift: float, limits: Limits) -> Design:
    """The design with the least price among these groupings; the first of equal ones."""
    best: Design | None = None
    for groups in choices:
        for design in _designs(groups, drift, limits, best):
            if best is None or design.price < best.price:
                best = design
    if best is None:
        raise InputError("camu-balanced: no design makes progress; choose a smaller drift or H")
    return best


def best_near_iid_design(world: World, drift: float, limits: Limits) -> Design:
    """The best design with near-IID clusters.

    The number of clusters is chosen among clusters that are dealt out; those are then improved by
    swaps, and the rest is chosen for them.
    """
    divisions = list(_divisions(world, limits.clusters))
    dealt = {division: division.groups(world, swapped=False) for division in divisions}
    chosen = best_design(dealt.values(), drift, limits).groups
    division = next(one for one, groups in dealt.items() if groups is chosen)
    return best_design([division.groups(world, swapped=True)], drift, limits)


@dataclass(frozen=True, eq=False)
class Division:
    """Areas of good links, and the number of near-IID clusters in each."""

    area: Int64  # of each device
    number: int  # at most; an area with fewer devices has as many

    def groups(self, world: World, swapped: bool) -> Groups:
        """The clusters, with a leader each."""
        counts = world.devices.label_counts
        everyone = counts.sum(axis=0)
        order = np.argsort(self.area, kind="stable")
        members: list[tuple[int, ...]] = []
        for own in np.split(order, np.cumsum(np.bincount(self.area))[:-1]):
            number = min(self.number, len(own))
            if swapped:
                part = balanced_groups(counts[own], everyone, number, world.seed)
            else:
                part = dealt_groups(counts[own], everyone, number)
            members += [tuple(own[part == k].tolist()) for k in range(number)]
        return assess(world, sorted(members), _leaders(world, sorted(members)))


def _divisions(world: World, clusters: int | None) -> Iterator[Division]:
    """Regions and primary clusters, each divided into 1, 2, 3, 4, 6, 8, ... or a fixed number."""
    for area in _areas(world):
        most = int(np.bincount(area).max())
        for number in _numbers(most) if clusters is None else (clusters,):
            yield Division(area, number)


def _areas(world: World) -> Iterator[Int64]:
    """The area of each device, in two ways."""
    _, region = np.unique(world.devices.regions, return_inverse=True)
    yield np.asarray(region, dtype=np.int64)
    yield cluster_devices(world).primaries()


def _numbers(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to half of this, so that clusters have two devices or more."""
    powers = [2**k for k in range(max(1, most).bit_length())]
    return sorted({n for p in powers for n in (p, 3 * p // 2) if n <= max(1, most // 2)})


def _leaders(world: World, members: Sequence[Sequence[int]]) -> list[int]:
    """Of the members with the best uplinks, the one for which all sending takes the least time."""
    uplink, links = world.links.uplink_snr(), world.links
    bits, power = BITS_PER_PARAMETER * parameter_count(world), world.devices.power_watts
    leaders = []
    for group in members:
        own = np.array(group)
        best = own[np.argsort(-uplink[own], kind="stable")][:_LEADERS]
        first, second = np.tile(own, len(best)), np.repeat(best, len(own))
        apart = first != second
        seconds = np.zeros(len(first))
        gain = links.pair_gain(first[apart], second[apart])
        seconds[apart] = links.transmit_seconds(bits, power[first[apart]], gain)
        gather = seconds.reshape(len(best), len(own)).sum(axis=1)
        send = links.transmit_seconds(bits, power[best], links.uplink_gain[best])
        leaders.append(int(best[np.argmin(gather + send)]))
    return leaders


def _designs(groups: Groups, drift: float, limits: Limits, best: Design | None) -> Iterator[Design]:
    """All designs of a grouping that make progress and may cost less than the best so far."""
    world, leaders = groups.world, np.array(groups.leaders)
    alone, apart = _distances(groups)
    most = world.devices.max_power_watts[leaders]
    access, sizes = world.config.radio.access, np.array([len(own) for own in groups.members])
    slow_down = limits.slow_down and world.config.fleet.compute_model == "cycles"
    for share in POWER_SHARES if limits.power_watts is None else (1.0,):
        watts = share * most if limits.power_watts is None else np.minimum(most, limits.power_watts)
        costs, noise = _once(groups, watts), _noise(groups, watts)
        joules_of, air = _priced(costs, sizes, slow_down), costs.uplink_seconds
        for gathers in _range(limits.gathers, MOST_GATHERS):
            for steps in _range(limits.steps, MOST_STEPS):
                worth = progress(gathers, steps, alone, apart, drift) / (1 + noise)
                if worth <= 0:
                    continue
                ready = gathers * (steps * costs.compute_seconds + costs.gather_seconds)
                most_slack = ready.max() - ready + air.sum() - air
                cheapest = joules_of(gathers, steps, most_slack)
                if best and cheapest * float((ready + air).max()) / worth**2 >= best.price:
                    continue
                slack = latest_ready(ready, air, access) - ready
                joules, seconds = joules_of(gathers, steps, slack), _length(ready, air, access)
                yield Design(groups, gathers, steps, watts, worth, joules, seconds)


def _priced(costs: Costs, sizes: Int64, slow_down: bool) -> Callable[[int, int, Float64], float]:
    """The joules of a round, by gathers, steps and the seconds by which each unit may be late.

    A device that needs s seconds and e joules for a step and is given S spends e s^2 / S^2.
    """
    starts = np.cumsum(sizes) - sizes
    energy, seconds = costs.member_compute_joules, costs.member_compute_seconds
    work = np.add.reduceat(energy * seconds**2, starts)

    def joules(gathers: int, steps: int, slack: Float64) -> float:
        given = costs.compute_seconds + slack / (gathers * steps)  # for a step
        step = work / given**2 if slow_down else costs.compute_joules
        local = gathers * (steps * step + costs.gather_joules)
        return float((local + costs.uplink_joules).sum())

    return joules


def _distances(groups: Groups) -> tuple[float, float]:
    """Mean distance of labels to everyone's, of devices and of groups, by samples."""
    devices = groups.world.devices
    everyone = devices.label_counts.sum(axis=0)
    alone = label_distance(devices.label_counts, everyone, "tv")
    pooled = group_counts(devices.label_counts, groups.members)
    apart = label_distance(pooled, everyone, "tv")
    return (
        float(np.average(alone, weights=devices.samples)),
        float(np.average(apart, weights=groups.samples)),
    )


def _range(fixed: int | None, most: int) -> range:
    return range(1, most + 1) if fixed is None else range(fixed, fixed + 1)


def _once(groups: Groups, watts: Float64) -> Costs:
    """Costs of one gather of one step, and of sending at these powers."""
    world, parameters = groups.world, parameter_count(groups.world)
    bits, rules = BITS_PER_PARAMETER * parameters, [LocalRule()] * len(groups)
    return unit_costs(world, groups.members, groups.leaders, watts, bits, parameters, rules=rules)


def _noise(groups: Groups, watts: Float64) -> float:
    """Power of the noise on the mean update, relative to an update: sum_c G_c^2 / SNR_c."""
    world, leaders = groups.world, np.array(groups.leaders)
    if world.config.radio.uplink == "digital":
        return 0.0
    share = world.links.share(len(groups))
    snr = watts * world.links.uplink_gain[leaders] / share.noise_watts
    return float((groups.sample_weights**2 / snr).sum())


def _length(ready: Float64, air: Float64, access: str) -> float:
    """Seconds of a round."""
    return float((ready + air if access == "ofdma" else send_in_turn(ready, air)).max())
