"""Groups of devices, their contribution, and plans built from them (sections II-A and III-B).

W_c is the distance of a cluster's labels to everyone's, theta_c its contribution, G_c its weight.

`e^(1/W)` overflows for clusters whose labels look like everyone's, so everything is computed from
its logarithm: weights are a softmax, and the gate compares logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.clustering import cluster_devices
from camu.config import ClusteringConfig
from camu.errors import InputError
from camu.learning.job import PLAIN_RULE, LocalRule
from camu.planning.codecs import RAW, Codec, payload_bits
from camu.planning.costs import Costs, in_a_row, unit_costs
from camu.planning.parameters import parameter_count
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.world import World
from camu.world.devices import update_joules, update_seconds

# Smaller distances count as this one, whatever w_min is: it is less than one sample in a million,
# and next to 1/W enough digits of log |D_c| are left.
SMALLEST_DISTANCE = 1e-6


def group_counts(label_counts: Int64, groups: Sequence[Sequence[int]]) -> Int64:
    """Samples of each label in each group of devices, (groups, labels)."""
    flat, starts = in_a_row(groups)
    return np.asarray(np.add.reduceat(label_counts[flat], starts, axis=0))


def label_distance(counts: Int64, everyone: Int64, kind: str = "wasserstein") -> Float64:
    """W_c, eq. (3): distance of each row's label distribution to that of everyone's labels.

    `wasserstein` is the 1-D distance on label indices; `tv` is total variation, which does not
    depend on how labels are numbered.
    """
    pmf = counts / counts.sum(axis=1, keepdims=True)
    difference = pmf - everyone / everyone.sum()
    if kind == "tv":
        return np.asarray(0.5 * np.abs(difference).sum(axis=1))
    return np.asarray(np.abs(np.cumsum(difference, axis=1)[:, :-1]).sum(axis=1))


def log_contribution(samples: npt.ArrayLike, distance: Float64, w_min: float) -> Float64:
    """log theta_c = log |D_c| + 1 / max(W_c, w_min)."""
    return np.asarray(np.log(samples) + 1.0 / np.maximum(distance, max(w_min, SMALLEST_DISTANCE)))


def contribution(log_theta: Float64) -> Float64:
    """theta_c itself, eq. (17), held at the largest number where it would overflow."""
    return np.asarray(np.exp(np.minimum(log_theta, np.log(np.finfo(float).max))))


def aggregation_weights(log_theta: Float64) -> Float64:
    """G_c, eq. (4): contributions scaled to add up to 1."""
    shares = np.exp(log_theta - log_theta.max())
    return np.asarray(shares / shares.sum())


def gate(log_theta: Float64, threshold: float | None, quantile: float) -> npt.NDArray[np.bool_]:
    """S_c, eq. (19): whether a cluster's contribution reaches the threshold."""
    return np.asarray(log_theta >= log_threshold(log_theta, threshold, quantile))


def log_threshold(log_theta: Float64, threshold: float | None, quantile: float) -> float:
    """The logarithm of the threshold, or of a quantile of the contributions where that is None."""
    if threshold is None:
        # One of the contributions themselves, so that rounding never shuts out the cluster at it.
        return float(np.quantile(log_theta, quantile, method="lower"))
    with np.errstate(divide="ignore"):  # a threshold of 0 admits everyone
        return float(np.log(threshold))


def extra_updates(step_seconds: Float64, most: int) -> Int64:
    """n_c by capability: how many more updates fit while the slowest cluster does its one.

    The paper gives no formula; this is clip(floor(T_slow / T_c) - 1, 0, most). T_c is the time of
    one local update: the slowest member computes, then the members send to their leader.
    """
    # The small number forgives rounding where the ratio is whole.
    times = np.floor(step_seconds.max() / step_seconds + 1e-9)
    return np.asarray(np.clip(times - 1, 0, most), dtype=np.int64)


def local_updates(multi_update: npt.NDArray[np.bool_], extra: Int64) -> Int64:
    """N_c = 1 + S_c n_c, eq. (18)."""
    return np.asarray(1 + np.where(multi_update, extra, 0), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of devices with what decides about them, one array entry per group."""

    world: World
    members: tuple[tuple[int, ...], ...]
    leaders: tuple[int, ...]
    samples: npt.NDArray[np.int64]  # |D_c|
    wasserstein: Float64  # W_c
    log_contribution: Float64  # log theta_c
    update_seconds: Float64  # T_c, slowest member
    update_joules: Float64  # sum over members

    @cached_property
    def once(self) -> Costs:
        """Seconds and joules of a round with one local update, leaders at their own power."""
        world, leaders = self.world, np.array(self.leaders)
        parameters = parameter_count(world)
        power = world.devices.power_watts[leaders]
        bits = world.config.radio.bits_per_parameter * parameters
        return unit_costs(world, self.members, self.leaders, power, bits, parameters)

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.members)

    @property
    def step_seconds(self) -> Float64:
        """Seconds of one local update: the slowest member computes, then all send to the leader."""
        return self.once.compute_seconds + self.once.gather_seconds

    @property
    def sample_weights(self) -> Float64:
        """Weights in proportion to data size, as in FedAvg."""
        return np.asarray(self.samples / self.samples.sum())

    @property
    def member_weights(self) -> list[list[float]]:
        """Weights inside each group, in proportion to the members' data."""
        flat, starts = in_a_row(self.members)
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
    own = config or world.config.clustering
    found = world.once(("clusters", own), lambda: cluster_devices(world, own).clusters)
    return assess(world, [cluster.members for cluster in found], [c.leader for c in found])


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
    counts = group_counts(devices.label_counts, members)
    distance = label_distance(
        counts, devices.label_counts.sum(axis=0), config.contribution.distance
    )
    seconds = update_seconds(devices, config.training)
    joules = update_joules(devices, config.fleet, config.training, parameter_count(world))
    flat, starts = in_a_row(members)
    return Groups(
        world=world,
        members=tuple(tuple(map(int, group)) for group in members),
        leaders=tuple(int(leader) for leader in leaders),
        samples=counts.sum(axis=1),
        wasserstein=distance,
        log_contribution=log_contribution(counts.sum(axis=1), distance, config.contribution.w_min),
        update_seconds=np.maximum.reduceat(seconds[flat], starts),
        update_joules=np.add.reduceat(joules[flat], starts),
    )


def _whole_updates(scheme: Named, local_updates: npt.ArrayLike, count: int) -> Int64:
    """Local updates of each group, checked."""
    given = np.asarray(local_updates)
    if given.shape not in ((), (count,)) or given.dtype.kind not in "iuf" or (given % 1 != 0).any():
        raise InputError(
            f"scheme {scheme.name}: local_updates = {local_updates!r}: give one whole number, or "
            f"one for each of the {count} groups"
        )
    return np.broadcast_to(given.astype(np.int64), (count,))


def _one_each(scheme: Named, weights: npt.ArrayLike, count: int) -> Float64:
    """Weights of the groups, checked."""
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (count,):
        raise InputError(
            f"scheme {scheme.name}: weights have shape {given.shape}; give one for each of the "
            f"{count} groups"
        )
    return given


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
    updates = _whole_updates(scheme, local_updates, count)
    power = _leader_powers(scheme, groups, power_watts)
    multi = np.broadcast_to(updates > 1 if multi_update is None else multi_update, (count,))
    rules = [rule] * count if isinstance(rule, LocalRule) else list(rule)
    codecs = list(codec) if isinstance(codec, Sequence) else [codec] * count
    bits = [payload_bits(own, parameters, world.config.radio.bits_per_parameter) for own in codecs]
    costs = unit_costs(world, groups.members, groups.leaders, power, bits, parameters, rules=rules)
    # Columns in the order of the fields of a unit; plain numbers, because a plan may be large.
    columns = (
        groups.members,
        groups.leaders,
        _one_each(scheme, weights, count).tolist(),
        [tuple(map(float, own)) for own in member_weights or groups.member_weights],
        updates.tolist(),
        power.tolist(),
        groups.samples.tolist(),
        groups.wasserstein.tolist(),
        contribution(groups.log_contribution).tolist(),
        multi.astype(bool).tolist(),
        costs.per_update_of_all(),
        costs.uplink_seconds.tolist(),
        costs.uplink_joules.tolist(),
        bits,
        [1.0] * count,  # update_scale
        rules,
        codecs,
        [costs.downlink_seconds] * count,
        [costs.receive_watts] * count,
    )
    units = tuple(Unit(*values) for values in zip(*columns, strict=True))
    return Plan(scheme.name, world.seed, parameters, world.config.radio.access, units)


def _leader_powers(scheme: Named, groups: Groups, power_watts: npt.ArrayLike | None) -> Float64:
    """The power of each group's leader; more than a leader can send with is refused."""
    devices, leaders = groups.world.devices, np.array(groups.leaders)
    power = devices.power_watts[leaders] if power_watts is None else np.asarray(power_watts, float)
    power = np.broadcast_to(power, (len(groups),))
    limit = devices.max_power_watts[leaders]
    over = np.flatnonzero(power > limit * (1 + 1e-9))
    if over.size:
        raise InputError(
            f"scheme {scheme.name}: unit {over[0]}: power_watts = {power[over[0]]:g} exceeds the "
            f"{limit[over[0]]:g} W that its leader can send with"
        )
    return power
