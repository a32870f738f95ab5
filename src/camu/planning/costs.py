"""What each unit costs in seconds and joules: computing, gathering, sending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.learning.job import LocalRule
from camu.planning.codecs import BITS_PER_PARAMETER
from camu.world import World
from camu.world.devices import update_joules, update_seconds


@dataclass(frozen=True)
class UpdateCost:
    """What one local update of a unit costs, the gather at its leader included."""

    compute_seconds: float  # of the slowest member
    gather_seconds: float  # members send to the leader, in turn
    compute_joules: float  # of all members
    gather_joules: float


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of several units, one array entry per unit; of members, one entry per member.

    Members follow each other unit by unit, in the order in which they were given.
    """

    compute_seconds: Float64  # of one local update
    gather_seconds: Float64
    compute_joules: Float64
    gather_joules: Float64
    uplink_seconds: Float64  # of the whole round
    uplink_joules: Float64
    member_compute_joules: Float64  # of one local update
    member_gather_joules: Float64  # zero for leaders

    def per_update(self, index: int) -> UpdateCost:
        """What one local update of a unit costs."""
        return UpdateCost(
            float(self.compute_seconds[index]),
            float(self.gather_seconds[index]),
            float(self.compute_joules[index]),
            float(self.gather_joules[index]),
        )


def unit_costs(
    world: World,
    members: Sequence[Sequence[int]],
    leaders: Sequence[int],
    power_watts: npt.ArrayLike,
    payload_bits: npt.ArrayLike,
    parameters: int,
    *,
    rules: Sequence[LocalRule] | None = None,
    uplink_gain: Float64 | None = None,
    uplinks: int | None = None,
) -> Costs:
    """What these units cost; uplink gains (K,) are the mean ones unless given.

    After every local update the members send their model to the leader, in turn over the whole
    band; units are far enough apart to reuse it. The leaders share the uplink as `radio.access`
    says; `uplinks` is how many units use it at the same time, by default all of these.
    """
    links = world.links
    flat = np.concatenate([np.asarray(own, dtype=np.int64) for own in members])
    sizes = np.array([len(own) for own in members])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    seconds, joules = _member_updates(world, flat, sizes, rules, parameters)
    gather = _gather(world, flat, sizes, leaders, parameters)
    power = np.asarray(power_watts, dtype=float)
    gain = (links.uplink_gain if uplink_gain is None else uplink_gain)[np.array(leaders)]
    band = links.share(len(members) if uplinks is None else uplinks)
    air = links.transmit_seconds(payload_bits, power, gain, band.bandwidth_hz)
    return Costs(
        compute_seconds=np.maximum.reduceat(seconds, starts),
        gather_seconds=gather[0],
        compute_joules=np.add.reduceat(joules, starts),
        gather_joules=gather[1],
        uplink_seconds=air,
        uplink_joules=power * air,
        member_compute_joules=joules,
        member_gather_joules=gather[2],
    )


def _member_updates(
    world: World,
    flat: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    rules: Sequence[LocalRule] | None,
    parameters: int,
) -> tuple[Float64, Float64]:
    """Seconds and joules of one local update of each member under its unit's rule."""
    config, devices = world.config, world.devices
    seconds = update_seconds(devices, config.training)[flat]
    joules = update_joules(devices, config.fleet, config.training, parameters)[flat]
    for batch in {rule.batch for rule in rules or () if rule.batch is not None}:
        training = config.training.model_copy(update={"batch": batch})
        affected = np.repeat([rule.batch == batch for rule in rules or ()], sizes)
        own = update_seconds(devices, training)[flat]
        seconds = np.where(affected, own, seconds)
        own = update_joules(devices, config.fleet, training, parameters)[flat]
        joules = np.where(affected, own, joules)
    if rules is not None and any(rule.steps != 1 or rule.work != 1 for rule in rules):
        steps = np.repeat([rule.steps * rule.work for rule in rules], sizes)
        seconds, joules = steps * seconds, steps * joules
    return seconds, joules


def _gather(
    world: World,
    flat: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    leaders: Sequence[int],
    parameters: int,
) -> tuple[Float64, Float64, Float64]:
    """Seconds and joules of each unit's gather, and the joules of each member in it."""
    seconds, joules, each = np.zeros(len(sizes)), np.zeros(len(sizes)), np.zeros(len(flat))
    bits = BITS_PER_PARAMETER * parameters
    start = 0
    for index, (size, leader) in enumerate(zip(sizes, leaders, strict=True)):
        if size > 1:
            own = flat[start : start + size]
            sending = np.flatnonzero(own != leader)
            power = world.devices.power_watts[own[sending]]
            gain = world.links.device_gain(own[sending], [leader])[:, 0]
            air = world.links.transmit_seconds(bits, power, gain)
            seconds[index], joules[index] = air.sum(), (power * air).sum()
            each[start + sending] = power * air
        start += size
    return seconds, joules, each


def send_in_turn(ready_seconds: Float64, air_seconds: Float64) -> Float64:
    """When each transmission ends if they share one channel and queue in the order of readiness.

    Those ready at the same time go in the order of their index.
    """
    order = np.argsort(ready_seconds, kind="stable")
    ends = np.empty_like(ready_seconds, dtype=float)
    free = 0.0
    for index in order:
        free = max(free, float(ready_seconds[index])) + float(air_seconds[index])
        ends[index] = free
    return ends
