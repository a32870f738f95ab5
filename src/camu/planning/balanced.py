"""Clusters, steps and power with the least joules times seconds for the same progress.

The progress of a round is counted in gradient steps of the whole fleet. N gathers of H steps each
are worth N H steps, less a loss by drift: steps that a device takes alone lose in proportion to the
distance of its labels from everyone's, and gathers inside a cluster lose in proportion to the
cluster's distance. Noise with the share r of the update's power divides the progress by 1 + r.

A choice is priced by joules x seconds / progress^2, the energy-delay product of a step. It needs no
exchange rate between joules and seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.clustering import cluster_devices
from camu.clustering.near_iid import balanced_groups
from camu.learning.job import LocalRule
from camu.planning.codecs import BITS_PER_PARAMETER
from camu.planning.costs import Costs, send_in_turn, unit_costs
from camu.planning.groups import Groups, assess, group_counts, label_distance
from camu.planning.parameters import parameter_count
from camu.world import World

MOST_STEPS = 8
MOST_GATHERS = 4
POWER_SHARES = tuple(2.0**-k for k in range(7))  # of the most that a leader can send with
_LEADERS = 16  # members with the best uplinks, among which a leader is chosen


@dataclass(frozen=True)
class Limits:
    """Numbers that are fixed instead of chosen; None is chosen."""

    clusters: int | None = None  # per area
    gathers: int | None = None
    steps: int | None = None
    power_watts: float | None = None


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


def best_design(choices: Sequence[Groups], drift: float, limits: Limits) -> Design:
    """The design with the least price among these groupings; the first of equal ones."""
    found = [design for groups in choices for design in _designs(groups, drift, limits)]
    return min(found, key=lambda design: design.price)


def near_iid_choices(world: World, clusters: int | None) -> list[Groups]:
    """Near-IID clusters inside areas of good links: several divisions to choose from.

    Areas are the fleet's regions, or its primary clusters. Each is divided into this many clusters,
    or into 1, 2, 3, 4, 6, 8, ... where None is given.
    """
    counts = world.devices.label_counts
    everyone = counts.sum(axis=0)
    found: dict[tuple[tuple[int, ...], ...], Groups] = {}
    for area in _areas(world):
        sizes = np.bincount(area)
        for number in _numbers(int(sizes.max())) if clusters is None else (clusters,):
            groups: list[tuple[int, ...]] = []
            for place in range(len(sizes)):
                own = np.flatnonzero(area == place)
                part = balanced_groups(counts[own], everyone, min(number, len(own)), world.seed)
                groups += [tuple(own[part == k].tolist()) for k in range(int(part.max()) + 1)]
            members = tuple(sorted(groups))
            if members not in found:
                found[members] = assess(world, members, _leaders(world, members))
    return list(found.values())


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


def _designs(groups: Groups, drift: float, limits: Limits) -> Iterator[Design]:
    """All designs of a grouping that make progress."""
    world, leaders = groups.world, np.array(groups.leaders)
    counts = world.devices.label_counts
    everyone = counts.sum(axis=0)
    samples = world.devices.samples
    alone = float(np.average(label_distance(counts, everyone, "tv"), weights=samples))
    pooled = group_counts(counts, groups.members)
    apart = float(np.average(label_distance(pooled, everyone, "tv"), weights=groups.samples))
    most = world.devices.max_power_watts[leaders]
    for share in POWER_SHARES if limits.power_watts is None else (1.0,):
        watts = share * most if limits.power_watts is None else np.minimum(most, limits.power_watts)
        costs, noise = _once(groups, watts), _noise(groups, watts)
        for gathers in _range(limits.gathers, MOST_GATHERS):
            for steps in _range(limits.steps, MOST_STEPS):
                worth = progress(gathers, steps, alone, apart, drift) / (1 + noise)
                if worth > 0:
                    joules, seconds = _round(groups, costs, gathers, steps)
                    yield Design(groups, gathers, steps, watts, worth, joules, seconds)


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


def _round(groups: Groups, costs: Costs, gathers: int, steps: int) -> tuple[float, float]:
    """Joules and seconds of a round. CPU frequencies are the devices' own."""
    ready = gathers * (steps * costs.compute_seconds + costs.gather_seconds)
    in_turn = groups.world.config.radio.access == "tdma"
    ends = send_in_turn(ready, costs.uplink_seconds) if in_turn else ready + costs.uplink_seconds
    local = gathers * (steps * costs.compute_joules + costs.gather_joules)
    return float((local + costs.uplink_joules).sum()), float(ends.max())
