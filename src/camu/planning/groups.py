"""Groups of devices, and plans built from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.clustering import Clustering, cluster_devices
from camu.config import ClusteringConfig
from camu.errors import InputError
from camu.learning.job import PLAIN_RULE, LocalRule
from camu.planning.codecs import RAW, Codec, parameter_count, payload_bits
from camu.planning.contribution import (
    aggregation_weights,
    contribution,
    group_counts,
    label_distance,
    log_contribution,
)
from camu.planning.costs import Costs, flatten_groups
from camu.planning.plan import Plan
from camu.planning.prices import model_bits, unit_costs
from camu.planning.unit import Unit
from camu.world import World


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of devices with what decides about them, one array entry per group."""

    world: World
    members: tuple[tuple[int, ...], ...]
    leaders: tuple[int, ...]
    samples: Int64  # |D_c|
    wasserstein: Float64  # W_c
    log_contribution: Float64  # log theta_c

    def costs(self, power_watts: Float64) -> Costs:
        """Seconds and joules of a round with one local update, leaders at these powers."""
        parameters = parameter_count(self.world)
        bits = model_bits(self.world, parameters)
        return unit_costs(self.world, self.members, self.leaders, power_watts, bits, parameters)

    @cached_property
    def costs_of_one_update(self) -> Costs:
        """Seconds and joules of a round with one local update, leaders at their own power."""
        return self.costs(self.world.devices.power_watts[np.array(self.leaders)])

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.members)

    @property
    def step_seconds(self) -> Float64:
        """Seconds of one local update: the slowest member computes, then all send to the leader."""
        return self.costs_of_one_update.update_seconds

    @property
    def sample_weights(self) -> Float64:
        """Weights in proportion to data size, as in FedAvg."""
        return np.asarray(self.samples / self.samples.sum())

    @property
    def member_weights(self) -> list[list[float]]:
        """Weights inside each group, in proportion to the members' data."""
        flat, starts = flatten_groups(self.members)
        sizes = np.diff(starts, append=len(flat))
        shares = (self.world.devices.samples[flat] / np.repeat(self.samples, sizes)).tolist()
        ends = (starts + sizes).tolist()
        return [shares[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]

    @property
    def contribution_weights(self) -> Float64:
        """G_c, eq. (4)."""
        return aggregation_weights(self.log_contribution)


def clusters(world: World, config: ClusteringConfig | None = None) -> Groups:
    """The dual-segment clusters of a fleet, as groups.

    Parameters:
        world: the fleet.
        config: replaces the section [clustering] of the world's configuration.

    Returns:
        A group per cluster, with its leader.
    """
    found = clustering(world, config).clusters
    return assess(world, [cluster.members for cluster in found], [c.leader for c in found])


def clustering(world: World, config: ClusteringConfig | None = None) -> Clustering:
    """The dual-segment clusters of a fleet, found once per world."""
    own = config or world.config.clustering
    _check_data(world, np.arange(world.devices.count))
    return world.cached(("clusters", own), lambda: cluster_devices(world, own))


def _check_data(world: World, devices: Int64) -> None:
    """Refuse devices without data: neither labels nor weights are defined for them."""
    empty = devices[world.devices.samples[devices] < 1]
    if empty.size:
        raise InputError(
            f"label_counts: device {world.devices.ids[empty[0]]} holds no samples; leave it out of "
            "the fleet or give it samples"
        )


def _check_links(world: World, members: Sequence[Sequence[int]], leaders: Sequence[int]) -> None:
    """Refuse a group whose members cannot reach their leader with their link type."""
    if world.links.types is None:
        return
    for group, leader in zip(members, leaders, strict=True):
        others = np.array([device for device in group if device != leader], dtype=np.int64)
        deaf = others[~_hear(world, others, leader)]
        if deaf.size:
            ids, link = world.devices.ids, world.devices.link
            raise InputError(
                f"a group of {len(group)} devices: {ids[deaf[0]]} ({link[deaf[0]]}) and its leader "
                f"{ids[leader]} ({link[leader]}) do not hear each other; `within_hearing` divides "
                "such groups"
            )


def _hear(world: World, devices: Int64, leader: int) -> npt.NDArray[np.bool_]:
    """Whether devices hear a leader with their link type; with `shannon` all do."""
    return world.links.hear(devices, np.array(leader), -np.inf)


def within_hearing(world: World, members: Sequence[Sequence[int]]) -> list[list[int]]:
    """These groups, divided where members could not hear a leader, each with the best uplink.

    Parameters:
        world: the fleet.
        members: the devices of each group, by index.

    Returns:
        The same groups if all devices have the link type `shannon`. Otherwise every group has one
        link type, and all members hear the one of them with the best uplink; devices that hear no
        others are groups of their own.
    """
    if world.links.types is None:
        return [list(group) for group in members]
    uplink, found = world.links.uplink_snr(), []
    for group in members:
        left = np.array(group, dtype=np.int64)
        while left.size:
            best = int(left[uplink[left].argmax()])
            near = _hear(world, left, best) | (left == best)
            found.append(left[near].tolist())
            left = left[~near]
    return found


def single_devices(world: World) -> Groups:
    """Every device as a group of its own.

    Parameters:
        world: the fleet.

    Returns:
        A group per device, in the order of the devices.
    """
    everyone = range(world.devices.count)
    return assess(world, [(device,) for device in everyone], everyone)


def assess(
    world: World, members: Sequence[Sequence[int]], leaders: Sequence[int] | None = None
) -> Groups:
    """Measure groups of devices: their data, contribution, seconds and joules of an update.

    Parameters:
        world: the fleet.
        members: the devices of each group, by index.
        leaders: the device of each group that sends to the server. By default it is the member
            with the best uplink.

    Returns:
        The groups, with an array entry each for everything that weights may depend on.
    """
    if not members or any(not len(group) for group in members):
        raise InputError("a group of devices is empty: every unit needs at least one device")
    if leaders is None:
        uplink = world.links.uplink_snr()
        leaders = [max(group, key=lambda device: uplink[device]) for group in members]
    config, devices = world.config, world.devices
    _check_data(world, flatten_groups(members)[0])
    _check_links(world, members, leaders)
    counts = group_counts(devices.label_counts, members)
    distance = label_distance(
        counts, devices.label_counts.sum(axis=0), config.contribution.distance
    )
    return Groups(
        world=world,
        members=tuple(tuple(map(int, group)) for group in members),
        leaders=tuple(int(leader) for leader in leaders),
        samples=counts.sum(axis=1),
        wasserstein=distance,
        log_contribution=log_contribution(counts.sum(axis=1), distance, config.readings.w_min),
    )


class Named(Protocol):
    """Anything with a name, such as a scheme."""

    @property
    def name(self) -> str: ...


def make_plan(
    scheme: Named,
    groups: Groups,
    weights: npt.ArrayLike,
    local_updates: npt.ArrayLike = 1,
    power_watts: npt.ArrayLike | None = None,
    multi_update: npt.ArrayLike | None = None,
    *,
    member_weights: Sequence[Sequence[float]] | None = None,
    rule: LocalRule | Sequence[LocalRule] = PLAIN_RULE,
    codec: Codec | Sequence[Codec] = RAW,
) -> Plan:
    """The plan of these groups; a single number, rule or codec applies to every group.

    Parameters:
        scheme: the scheme, `self` inside a method `plan`.
        groups: from `clusters`, `single_devices` or `assess`.
        weights: how much each group counts; they add up to 1.
        local_updates: local updates per round.
        power_watts: power of each leader; by default that of its device.
        multi_update: groups that may update more than once; by default those that do.
        member_weights: weights inside each group; by default in proportion to the data.
        rule: how devices train: learning rate, batch, proximal weight, steps between gathers.
        codec: how updates are compressed on their way to the server.

    Returns:
        The plan, with the seconds and joules of every unit.
    """
    world, count, parameters = groups.world, len(groups), parameter_count(groups.world)
    updates, power = _checked(scheme, groups, weights, local_updates, power_watts)
    multi = np.broadcast_to(updates > 1 if multi_update is None else multi_update, (count,))
    rules = [rule] * count if isinstance(rule, LocalRule) else list(rule)
    codecs = list(codec) if isinstance(codec, Sequence) else [codec] * count
    bits = [payload_bits(own, parameters, world.config.radio.bits_per_parameter) for own in codecs]
    costs = unit_costs(world, groups.members, groups.leaders, power, bits, parameters, rules=rules)
    # Plain numbers, because a plan may be large.
    columns: dict[str, Sequence[Any]] = {
        "members": groups.members,
        "leader": groups.leaders,
        "weight": np.asarray(weights, dtype=np.float64).tolist(),
        "member_weights": [tuple(map(float, w)) for w in member_weights or groups.member_weights],
        "local_updates": updates.tolist(),
        "power_watts": power.tolist(),
        "samples": groups.samples.tolist(),
        "wasserstein": groups.wasserstein.tolist(),
        "contribution": contribution(groups.log_contribution).tolist(),
        "multi_update": multi.astype(bool).tolist(),
        "payload_bits": bits,
        "rule": rules,
        "codec": codecs,
        **costs.columns(updates.astype(np.float64)),
    }
    rows = zip(*columns.values(), strict=True)
    units = tuple(Unit(**dict(zip(columns, row, strict=True))) for row in rows)
    return Plan(scheme.name, world.seed, parameters, world.config.radio.access, units)


def _checked(
    scheme: Named,
    groups: Groups,
    weights: npt.ArrayLike,
    local_updates: npt.ArrayLike,
    power_watts: npt.ArrayLike | None,
) -> tuple[Int64, Float64]:
    """The updates and the leader's power of each group; wrong numbers are refused."""
    count, devices, leaders = len(groups), groups.world.devices, np.array(groups.leaders)
    updates = np.asarray(local_updates)
    whole = updates.dtype.kind in "iuf" and not (updates % 1 != 0).any()
    if updates.shape not in ((), (count,)) or not whole:
        raise InputError(
            f"scheme {scheme.name}: local_updates = {local_updates!r}: give one whole number, or "
            f"one for each of the {count} groups"
        )
    if np.shape(weights) != (count,):
        raise InputError(
            f"scheme {scheme.name}: weights have shape {np.shape(weights)}; give one for each of "
            f"the {count} groups"
        )
    power = devices.power_watts[leaders] if power_watts is None else np.asarray(power_watts, float)
    power, limit = np.broadcast_to(power, (count,)), devices.max_power_watts[leaders]
    over = np.flatnonzero(power > limit * (1 + 1e-9))
    if over.size:
        raise InputError(
            f"scheme {scheme.name}: unit {over[0]}: power_watts = {power[over[0]]:g} exceeds the "
            f"{limit[over[0]]:g} W that its leader can send with"
        )
    return np.broadcast_to(updates.astype(np.int64), (count,)), power
