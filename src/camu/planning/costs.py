"""What each unit costs in seconds and joules: computing, gathering, sending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
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

    compute_seconds: Float64  # of one local update
    gather_seconds: Float64
    compute_joules: Float64
    gather_joules: Float64
    uplink_seconds: Float64  # of the whole round
    uplink_joules: Float64
    member_compute_joules: Float64  # of one local update
    member_gather_joules: Float64  # zero for leaders
    member_compute_seconds: Float64  # of one local update at its own frequency
    downlink_seconds: float = 0.0  # of the broadcast that all units receive before they start
    receive_watts: float = 0.0  # of a device while it receives
    member_speeds: Float64 | None = None  # shares of own frequencies; None: all at full speed
    slow_seconds: Float64 | float = 0.0  # by how much slowed units compute longer, per round

    def per_update(self, index: int) -> UpdateCost:
        """What one local update of a unit costs."""
        return UpdateCost(
            float(self.compute_seconds[index]),
            float(self.gather_seconds[index]),
            float(self.compute_joules[index]),
            float(self.gather_joules[index]),
        )

    def per_update_of_all(self) -> list[UpdateCost]:
        """What one local update of each unit costs; faster than one after the other."""
        columns = (
            self.compute_seconds,
            self.gather_seconds,
            self.compute_joules,
            self.gather_joules,
        )
        return list(map(UpdateCost, *(column.tolist() for column in columns)))


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
    flat, starts = in_a_row(members)
    sizes = np.diff(starts, append=len(flat))
    seconds, joules = _member_updates(world, flat, sizes, rules, parameters)
    gather = _gather(world, flat, sizes, leaders, parameters)
    power = np.asarray(power_watts, dtype=float)
    gain = (links.uplink_gain if uplink_gain is None else uplink_gain)[np.array(leaders)]
    band = links.share(len(members) if uplinks is None else uplinks)
    air = links.transmit_seconds(payload_bits, power, gain, band.bandwidth_hz)
    radio = world.config.radio
    return Costs(
        compute_seconds=np.maximum.reduceat(seconds, starts),
        gather_seconds=gather[0],
        compute_joules=np.add.reduceat(joules, starts),
        gather_joules=gather[1],
        uplink_seconds=air,
        uplink_joules=power * air,
        member_compute_joules=joules,
        member_gather_joules=gather[2],
        member_compute_seconds=seconds,
        downlink_seconds=broadcast_seconds(world, flat, parameters, uplink_gain),
        receive_watts=radio.receive_watts if radio.downlink else 0.0,
    )


def broadcast_seconds(
    world: World,
    devices: npt.NDArray[np.int64],
    parameters: int,
    uplink_gain: Float64 | None = None,
) -> float:
    """Time in which the base station sends the model to these devices; 0 without downlink.

    One signal for all cannot be steered to each, so it lacks the gain of the combined antennas.
    The device with the weakest link sets the rate.
    """
    links, radio = world.links, world.config.radio
    if not radio.downlink:
        return 0.0
    gain = (links.uplink_gain if uplink_gain is None else uplink_gain)[devices].min()
    bits = radio.bits_per_parameter * parameters
    return float(links.transmit_seconds(bits, radio.bs_power_watts, gain / radio.antennas))


@dataclass(frozen=True, eq=False)
class Spending:
    """What a round costs each device that takes part, by kind; one array entry per device."""

    devices: npt.NDArray[np.int64]
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
    flat, starts = in_a_row(members)
    sizes = np.diff(starts, append=len(flat))
    each = np.repeat(updates, sizes)
    transmit = each * costs.member_gather_joules
    receive = np.full(len(flat), costs.receive_watts * costs.downlink_seconds)
    leads = flat == np.repeat(np.asarray(leaders, dtype=np.int64), sizes)
    transmit[leads] += costs.uplink_joules
    receive[leads] += costs.receive_watts * updates * costs.gather_seconds
    return Spending(flat, each * costs.member_compute_joules, transmit, receive)


def in_a_row(
    groups: Sequence[Sequence[int]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The devices of all groups one after the other, and where each group begins."""
    sizes = np.array([len(group) for group in groups])
    flat = np.fromiter(chain.from_iterable(groups), np.int64, int(sizes.sum()))
    return flat, np.cumsum(sizes) - sizes


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
    leader = np.repeat(np.asarray(leaders, dtype=np.int64), sizes)
    sending = np.flatnonzero(flat != leader)
    devices = flat[sending]
    power = world.devices.power_watts[devices]
    gain = world.links.pair_gain(devices, leader[sending])
    bits = world.config.radio.bits_per_parameter * parameters
    air = world.links.transmit_seconds(bits, power, gain)
    unit = np.repeat(np.arange(len(sizes)), sizes)[sending]
    each = np.zeros(len(flat))
    each[sending] = power * air
    return _sum_by_unit(air, unit, len(sizes)), _sum_by_unit(power * air, unit, len(sizes)), each


def _sum_by_unit(values: Float64, unit: npt.NDArray[np.int64], count: int) -> Float64:
    """The sum over each unit; `unit` ascends, and a unit may have no value."""
    # A zero before the values of each unit: reduceat must find at least one entry everywhere.
    padded = np.insert(values, np.searchsorted(unit, np.arange(count)), 0.0)
    counts = np.bincount(unit, minlength=count) + 1
    return np.asarray(np.add.reduceat(padded, np.cumsum(counts) - counts))


def send_in_turn(ready_seconds: Float64, air_seconds: Float64) -> Float64:
    """When each transmission ends if they share one channel and queue in the order of readiness.

    Those ready at the same time go in the order of their index.
    """
    order = np.argsort(ready_seconds, kind="stable")
    ends, free = [], 0.0
    for ready, air in zip(ready_seconds[order].tolist(), air_seconds[order].tolist(), strict=True):
        free = max(free, ready) + air
        ends.append(free)
    result = np.empty(len(ends))
    result[order] = ends
    return result
