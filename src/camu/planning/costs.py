"""What each unit costs in seconds and joules: computing, gathering, sending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, send_in_turn
from camu.learning.job import LocalRule
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

    sizes: Int64  # members of each unit
    compute_seconds: Float64  # of one local update
    gather_seconds: Float64
    compute_joules: Float64
    gather_joules: Float64
    uplink_seconds: Float64  # of the whole round
    uplink_joules: Float64
    member_compute_joules: Float64  # of one local update
    member_gather_joules: Float64  # zero for leaders
    member_compute_seconds: Float64  # of one local update at its own frequency
    uplink_bits: Int64  # of the whole round
    gather_bits: Int64  # of one local update: what all members but the leader send
    downlink_bits: int  # of the broadcast that all units receive
    downlink_seconds: float = 0.0  # of the broadcast that all units receive before they start
    receive_watts: float = 0.0  # of a device while it receives
    member_speeds: Float64 | None = None  # shares of own frequencies; None: all at full speed
    dvfs_seconds: Float64 | float = 0.0  # by how much slowed units compute longer, per round

    @property
    def update_seconds(self) -> Float64:
        """Seconds of one local update: the slowest member computes, then the others send."""
        return self.compute_seconds + self.gather_seconds

    @property
    def update_joules(self) -> Float64:
        """Energy of one local update: all compute, members send to the leader, which receives."""
        return self.compute_joules + self.gather_joules + self.receive_watts * self.gather_seconds

    @property
    def fixed_joules(self) -> Float64:
        """Energy of a round without its updates: members receive the model, the leader sends."""
        return self.uplink_joules + self.receive_watts * self.downlink_seconds * self.sizes

    def ready_seconds(self, updates: Float64 | float) -> Float64:
        """When each unit can send after so many updates, counted from the start of the round."""
        return self.downlink_seconds + updates * self.update_seconds

    def round_joules(self, updates: Float64 | float) -> Float64:
        """Energy of a round with so many updates of each unit, all members together."""
        return self.fixed_joules + updates * self.update_joules

    def with_steps(self, steps: int) -> Costs:
        """The costs if each local update were so many times as long."""
        return replace(
            self,
            compute_seconds=steps * self.compute_seconds,
            compute_joules=steps * self.compute_joules,
            member_compute_seconds=steps * self.member_compute_seconds,
            member_compute_joules=steps * self.member_compute_joules,
        )

    def columns(self) -> dict[str, list[Any]]:
        """The fields of units that are prices, a list each: faster than one unit after another."""
        names = ("compute_seconds", "gather_seconds", "compute_joules", "gather_joules")
        per_update = map(UpdateCost, *(getattr(self, name).tolist() for name in names))
        return {
            "per_update": list(per_update),
            "uplink_seconds": self.uplink_seconds.tolist(),
            "uplink_joules": self.uplink_joules.tolist(),
            "downlink_seconds": [self.downlink_seconds] * len(self.sizes),
            "receive_watts": [self.receive_watts] * len(self.sizes),
        }


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
    With `radio.downlink` every member receives the model before its unit starts.
    """
    links = world.links
    flat, starts = flatten_groups(members)
    sizes = np.diff(starts, append=len(flat))
    seconds, joules = _member_updates(world, flat, sizes, rules, parameters)
    gather = _gather(world, flat, sizes, leaders, parameters)
    power = np.asarray(power_watts, dtype=float)
    gains = links.uplink_gain if uplink_gain is None else uplink_gain
    band = links.share(len(members) if uplinks is None else uplinks)
    air = links.transmit_seconds(payload_bits, power, gains[np.array(leaders)], band.bandwidth_hz)
    radio = world.config.radio
    return Costs(
        sizes=sizes,
        compute_seconds=np.maximum.reduceat(seconds, starts),
        gather_seconds=gather[0],
        compute_joules=np.add.reduceat(joules, starts),
        gather_joules=gather[1],
        uplink_seconds=air,
        uplink_joules=power * air,
        member_compute_joules=joules,
        member_gather_joules=gather[2],
        member_compute_seconds=seconds,
        uplink_bits=np.asarray(payload_bits, dtype=np.int64),
        gather_bits=(sizes - 1) * model_bits(world, parameters),
        downlink_bits=model_bits(world, parameters),
        downlink_seconds=broadcast_seconds(world, gains[flat], parameters),
        receive_watts=radio.receive_watts if radio.downlink else 0.0,
    )


def model_bits(world: World, parameters: int) -> int:
    """The size of a model of so many parameters that is sent as it is."""
    return world.config.radio.bits_per_parameter * parameters


def broadcast_seconds(world: World, gains: Float64, parameters: int) -> float:
    """Time in which the base station sends the model to devices with these gains of their links.

    One signal for all cannot be steered to each, so it lacks the gain of the combined antennas.
    The device with the weakest link sets the rate. It is 0 without downlink.
    """
    radio, bits = world.config.radio, model_bits(world, parameters)
    if not radio.downlink:
        return 0.0
    gain = gains.min() / radio.antennas
    return float(world.links.transmit_seconds(bits, radio.bs_power_watts, gain))


@dataclass(frozen=True, eq=False)
class Spending:
    """What a round costs each device that takes part, by kind; one array entry per device."""

    devices: Int64
    compute_joules: Float64
    transmit_joules: Float64
    receive_joules: Float64

    @property
    def joules(self) -> Float64:
        """All kinds together."""
        return self.compute_joules + self.transmit_joules + self.receive_joules


def device_spending(
    members: Sequence[Sequence[int]], leaders: Sequence[int], updates: Float64, costs: Costs
) -> Spending:
    """What a round of these units costs each of their members, unit by unit.

    Members compute, send to their leader after every update and receive the model; leaders also
    receive from their members and send to the server.
    """
    flat, sizes = flatten_groups(members)[0], costs.sizes
    each = np.repeat(updates, sizes)
    transmit = each * costs.member_gather_joules
    receive = np.full(len(flat), costs.receive_watts * costs.downlink_seconds)
    leads = flat == np.repeat(np.asarray(leaders, dtype=np.int64), sizes)
    transmit[leads] += costs.uplink_joules
    receive[leads] += costs.receive_watts * updates * costs.gather_seconds
    return Spending(flat, each * costs.member_compute_joules, transmit, receive)


def flatten_groups(groups: Sequence[Sequence[int]]) -> tuple[Int64, Int64]:
    """The devices of all groups one after the other, and where each group begins."""
    sizes = np.array([len(group) for group in groups])
    flat = np.fromiter(chain.from_iterable(groups), np.int64, int(sizes.sum()))
    return flat, np.cumsum(sizes) - sizes


def _member_updates(
    world: World, flat: Int64, sizes: Int64, rules: Sequence[LocalRule] | None, parameters: int
) -> tuple[Float64, Float64]:
    """Seconds and joules of one local update of each member under its unit's rule."""
    config, devices = world.config, world.devices
    seconds = update_seconds(devices, config.training)[flat]
    joules = update_joules(devices, config.readings, config.training, parameters)[flat]
    for batch in {rule.batch for rule in rules or () if rule.batch is not None}:
        affected = np.repeat([rule.batch == batch for rule in rules or ()], sizes)
        own = update_seconds(devices, config.training, batch)[flat]
        seconds = np.where(affected, own, seconds)
        own = update_joules(devices, config.readings, config.training, parameters, batch)[flat]
        joules = np.where(affected, own, joules)
    if rules is not None and any(rule.steps != 1 or rule.work != 1 for rule in rules):
        steps = np.repeat([rule.steps * rule.work for rule in rules], sizes)
        seconds, joules = steps * seconds, steps * joules
    return seconds, joules


def _gather(
    world: World, flat: Int64, sizes: Int64, leaders: Sequence[int], parameters: int
) -> tuple[Float64, Float64, Float64]:
    """Seconds and joules of each unit's gather, and the joules of each member in it."""
    leader = np.repeat(np.asarray(leaders, dtype=np.int64), sizes)
    sending = np.flatnonzero(flat != leader)
    devices = flat[sending]
    power = world.devices.power_watts[devices]
    gain = world.links.pair_gain(devices, leader[sending])
    bits = model_bits(world, parameters)
    air = world.links.transmit_seconds(bits, power, gain)
    unit = np.repeat(np.arange(len(sizes)), sizes)[sending]
    each = np.zeros(len(flat))
    each[sending] = power * air
    return _sum_by_unit(air, unit, len(sizes)), _sum_by_unit(power * air, unit, len(sizes)), each


def _sum_by_unit(values: Float64, unit: Int64, count: int) -> Float64:
    """The sum over each unit; `unit` ascends, and a unit may have no value."""
    # A zero before the values of each unit: reduceat must find at least one entry everywhere.
    padded = np.insert(values, np.searchsorted(unit, np.arange(count)), 0.0)
    counts = np.bincount(unit, minlength=count) + 1
    return np.asarray(np.add.reduceat(padded, np.cumsum(counts) - counts))


def arrivals(ready_seconds: Float64, air_seconds: Float64, access: str) -> Float64:
    """When each unit's update has arrived: at once (`ofdma`), or after a queue (`tdma`)."""
    if access == "ofdma":
        return ready_seconds + air_seconds
    return send_in_turn(ready_seconds, air_seconds)
