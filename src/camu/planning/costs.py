"""What each unit costs in seconds and joules: computing, gathering, sending."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, send_in_turn
from camu.learning.job import LocalRule
from camu.planning.medium import Gathers, Medium, gather_costs
from camu.planning.packets import drawn_tries, mean_tries, packet_error
from camu.world import World
from camu.world.devices import static_watts, update_joules, update_seconds


@dataclass(frozen=True)
class UpdateCost:
    """What one local update of a unit costs, the gather at its leader included."""

    compute_seconds: float  # of the slowest member
    gather_seconds: float  # members send to the leader, in turn, and the leader answers
    compute_joules: float  # of all members
    gather_joules: float
    answer_seconds: float = 0.0  # the part of the gather in which the leader answers

    @property
    def seconds(self) -> float:
        """Of the slowest member, with the gather."""
        return self.compute_seconds + self.gather_seconds


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of several units, one array entry per unit; of members, one entry per member.

    Members follow each other unit by unit, in the order in which they were given.
    """

    sizes: Int64  # members of each unit
    compute_seconds: Float64  # of one local update
    gather_seconds: Float64  # alone on the medium, with the leader's answer
    answer_seconds: Float64  # the part of it in which the leader answers
    compute_joules: Float64
    gather_joules: Float64
    uplink_seconds: Float64  # of the whole round
    uplink_joules: Float64
    member_compute_joules: Float64  # of one local update
    member_gather_joules: Float64  # of a leader: its answer
    member_compute_seconds: Float64  # of one local update at its own frequency
    member_slowest: Float64  # the least frequency, as a share of its own
    uplink_bits: Int64  # of the whole round
    gather_bits: Int64  # of one local update: what the members and the answering leader send
    downlink_bits: int  # of the broadcast that all units receive
    downlink_seconds: float = 0.0  # of the broadcast that all units receive before they start
    receive_watts: float = 0.0  # of a device while it receives
    member_speeds: Float64 | None = None  # shares of own frequencies; None: all at full speed
    dvfs_seconds: Float64 | float = 0.0  # by how much slowed units compute longer, per round
    static_watts: float = 0.0  # of a device that computes, whatever its frequency
    medium: Medium | None = None  # that gathers share; None: none waits for another
    idle_watts: float = 0.0  # of a device that takes part, whatever it does
    round_seconds: Float64 | float = 0.0  # how long each unit is expected to take part in a round

    @property
    def update_seconds(self) -> Float64:
        """Seconds of one local update alone on the medium: compute, gather, answer."""
        return self.compute_seconds + self.gather_seconds

    @property
    def update_joules(self) -> Float64:
        """Energy of one local update: all compute, members send to the leader, which receives."""
        return self.compute_joules + self.gather_joules + self.listening_joules

    @property
    def listening_joules(self) -> Float64:
        """Energy with which the leader receives from its members, and they receive its answer."""
        heard = self.gather_seconds + (self.sizes - 2) * self.answer_seconds
        return self.receive_watts * heard

    @property
    def fixed_joules(self) -> Float64:
        """Energy of a round without its updates: members receive the model, the leader sends."""
        return self.uplink_joules + self.receive_watts * self.downlink_seconds * self.sizes

    def busy_seconds(self, updates: Float64 | float) -> Float64:
        """When each unit could send after so many updates if it never waited for the medium."""
        busy = updates * self.compute_seconds + updates * self.gather_seconds
        return self.downlink_seconds + busy

    def ready_seconds(self, updates: Float64 | float) -> Float64:
        """When each unit can send after so many updates, counted from the start of the round."""
        gathers = self.gathers(updates)
        return self.busy_seconds(updates) if gathers is None else gathers.ready_seconds

    def gathers(self, updates: Float64 | float) -> Gathers | None:
        """The gathers of a round with so many updates of each unit, on the medium they share."""
        if self.medium is None or not (self.sizes > 1).any():
            return None
        each = np.broadcast_to(np.asarray(updates, dtype=np.float64), self.sizes.shape)
        asked = each.tobytes()
        if asked not in self._gathers:
            found = self.medium.schedule(self.compute_seconds, each, self.downlink_seconds)
            self._gathers[asked] = found
        return self._gathers[asked]

    @cached_property
    def _gathers(self) -> dict[bytes, Gathers]:
        return {}

    def extra_joules(self, updates: Float64 | float) -> Float64:
        """What interference adds to the energy of each member's sending in a round."""
        gathers = self.gathers(updates)
        count = int(self.sizes.sum())
        return np.zeros(count) if gathers is None else gathers.extra_joules

    def round_joules(self, updates: Float64 | float) -> Float64:
        """Energy of a round with so many updates of each unit, all members together."""
        extra = np.add.reduceat(self.extra_joules(updates), np.cumsum(self.sizes) - self.sizes)
        return self.fixed_joules + updates * self.update_joules + extra

    def with_steps(self, steps: int) -> Costs:
        """The costs if each local update were so many times as long."""
        return replace(
            self,
            compute_seconds=steps * self.compute_seconds,
            compute_joules=steps * self.compute_joules,
            member_compute_seconds=steps * self.member_compute_seconds,
            member_compute_joules=steps * self.member_compute_joules,
        )

    def columns(self, updates: Float64) -> dict[str, list[Any]]:
        """The fields of units that are prices, a list each: faster than one unit after another.

        They are those of a round with so many updates of each unit.
        """
        names = ("compute_seconds", "gather_seconds", "compute_joules", "gather_joules")
        values = (getattr(self, name).tolist() for name in (*names, "answer_seconds"))
        per_update = map(UpdateCost, *values)
        extra = np.add.reduceat(self.extra_joules(updates), np.cumsum(self.sizes) - self.sizes)
        waits = self.ready_seconds(updates) - self.busy_seconds(updates)
        return {
            "wait_seconds": waits.tolist(),
            "interference_joules": extra.tolist(),
            "per_update": list(per_update),
            "uplink_seconds": self.uplink_seconds.tolist(),
            "uplink_joules": self.uplink_joules.tolist(),
            "downlink_seconds": [self.downlink_seconds] * len(self.sizes),
            "receive_watts": [self.receive_watts] * len(self.sizes),
            "idle_watts": [self.idle_watts] * len(self.sizes),
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
    round_: int | None = None,
    bandwidth_hz: Sequence[float | None] | None = None,
    cpu_share: Sequence[float] | None = None,
) -> Costs:
    """What these units cost; uplink gains (K,) are the mean ones unless given.

    After every local update the members send their model to the leader, in turn over the whole
    band, and the leader answers with the mean, at the rate of its weakest member. Under
    `radio.d2d = "shared"` units that hear each other do so in turn (`planning/medium.py`).
    The leaders share the uplink as `radio.access` says; `uplinks` is how many units use it at the
    same time, by default all of these. A unit with a `bandwidth_hz` of its own has that;
    `cpu_share` slows the members of a unit. Packets are sent as often as in this round, or by
    default as often as on average.
    With `radio.downlink` every member receives the model before its unit starts.
    """
    radio, fleet = world.config.radio, world.config.fleet
    flat, starts = flatten_groups(members)
    sizes = np.diff(starts, append=len(flat))
    share = np.repeat(np.ones(len(sizes)) if cpu_share is None else np.array(cpu_share), sizes)
    seconds, joules = _member_updates(world, flat, sizes, rules, parameters, share)
    gather = gather_costs(world, flat, sizes, leaders, model_bits(world, parameters))
    power = np.asarray(power_watts, dtype=float)
    gains = world.links.uplink_gain if uplink_gain is None else uplink_gain
    together = len(members) if uplinks is None else uplinks
    sending = _Uplinks(world, leaders, power, gains[np.array(leaders)], together, bandwidth_hz)
    air, tries = sending.seconds_and_tries(payload_bits, parameters, round_)
    return Costs(
        sizes=sizes,
        compute_seconds=np.maximum.reduceat(seconds, starts),
        gather_seconds=gather.seconds,
        answer_seconds=gather.answer_seconds,
        compute_joules=np.add.reduceat(joules, starts),
        gather_joules=np.add.reduceat(gather.joules, starts),
        uplink_seconds=air,
        uplink_joules=world.links.supply_watts(power) * air,
        member_compute_joules=joules,
        member_gather_joules=gather.joules,
        member_compute_seconds=seconds,
        member_slowest=np.minimum(1.0, fleet.min_hz / (share * world.devices.cpu_hz[flat])),
        uplink_bits=np.asarray(np.rint(tries * np.asarray(payload_bits)), dtype=np.int64),
        gather_bits=np.where(sizes > 1, sizes, 0) * model_bits(world, parameters),
        downlink_bits=model_bits(world, parameters),
        downlink_seconds=broadcast_seconds(world, gains[flat], parameters),
        receive_watts=radio.receive_watts,
        static_watts=static_watts(world.config),
        medium=gather.medium,
        idle_watts=fleet.idle_watts,
    )


@dataclass(frozen=True, eq=False)
class _Uplinks:
    """Leaders that send to the server in the same round."""

    world: World
    leaders: Sequence[int]
    power_watts: Float64
    gain: Float64
    together: int  # how many share the band
    bandwidth_hz: Sequence[float | None] | None  # of each leader; None: its share

    def seconds_and_tries(
        self, payload_bits: npt.ArrayLike, parameters: int, round_: int | None
    ) -> tuple[Float64, Float64]:
        """How long each leader sends, and how often it sends its update."""
        links, radio = self.world.links, self.world.config.radio
        band = links.share(self.together)
        own = [band.bandwidth_hz if one is None else one for one in self.bandwidth_hz or ()]
        hertz = np.array(own) if own else band.bandwidth_hz
        once = np.ones(len(self.leaders))
        if radio.uplink == "analog":  # a complex symbol carries two parameters
            return math.ceil(parameters / 2) / hertz * once, once
        seconds = links.transmit_seconds(payload_bits, self.power_watts, self.gain, hertz)
        if radio.uplink != "packet" or radio.packet_tries == 1:
            return seconds, once
        error = packet_error(self.power_watts * self.gain / band.noise_watts)
        if round_ is None:
            tries = mean_tries(error, radio.packet_tries)
        else:
            drawn = drawn_tries(self.world.config, round_, self.leaders, error)
            tries = np.minimum(drawn, radio.packet_tries)
        return tries * seconds, tries


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
    idle_joules: Float64  # as expected: it is known when the round has ended

    @property
    def busy_joules(self) -> Float64:
        """What is known when a round starts: all kinds but idle power."""
        return self.compute_joules + self.transmit_joules + self.receive_joules

    @property
    def joules(self) -> Float64:
        """All kinds together."""
        return self.busy_joules + self.idle_joules


def device_spending(
    members: Sequence[Sequence[int]], leaders: Sequence[int], updates: Float64, costs: Costs
) -> Spending:
    """What a round of these units costs each of their members, unit by unit.

    Members compute, send to their leader after every update and receive its answer and the model;
    leaders also receive from their members and send to the server.
    """
    flat, sizes = flatten_groups(members)[0], costs.sizes
    each = np.repeat(updates, sizes)
    transmit = each * costs.member_gather_joules + costs.extra_joules(updates)
    answers = np.repeat(costs.answer_seconds, sizes)
    receive = costs.receive_watts * (costs.downlink_seconds + each * answers)
    leads = flat == np.repeat(np.asarray(leaders, dtype=np.int64), sizes)
    transmit[leads] += costs.uplink_joules
    members_send = updates * (costs.gather_seconds - costs.answer_seconds)
    receive[leads] = costs.receive_watts * (costs.downlink_seconds + members_send)
    idle = costs.idle_watts * np.broadcast_to(costs.round_seconds, sizes.shape)
    compute = each * costs.member_compute_joules
    return Spending(flat, compute, transmit, receive, np.repeat(idle, sizes))


def flatten_groups(groups: Sequence[Sequence[int]]) -> tuple[Int64, Int64]:
    """The devices of all groups one after the other, and where each group begins."""
    sizes = np.array([len(group) for group in groups])
    flat = np.fromiter(chain.from_iterable(groups), np.int64, int(sizes.sum()))
    return flat, np.cumsum(sizes) - sizes


def _member_updates(
    world: World,
    flat: Int64,
    sizes: Int64,
    rules: Sequence[LocalRule] | None,
    parameters: int,
    speed: Float64,
) -> tuple[Float64, Float64]:
    """Seconds and joules of one local update of each member under its unit's rule.

    `speed` is its frequency as a share of its own.
    """
    config, devices = world.config, world.devices
    readings, training, static = config.readings, config.training, static_watts(config)
    seconds = update_seconds(devices, training)[flat]
    joules = update_joules(devices, readings, training, parameters, None, static)[flat]
    for batch in {rule.batch for rule in rules or () if rule.batch is not None}:
        affected = np.repeat([rule.batch == batch for rule in rules or ()], sizes)
        own = update_seconds(devices, training, batch)[flat]
        seconds = np.where(affected, own, seconds)
        own = update_joules(devices, readings, training, parameters, batch, static)[flat]
        joules = np.where(affected, own, joules)
    if rules is not None and any(rule.steps != 1 or rule.work != 1 for rule in rules):
        steps = np.repeat([rule.steps * rule.work for rule in rules], sizes)
        seconds, joules = steps * seconds, steps * joules
    if (speed == 1.0).all():
        return seconds, joules
    dynamic = np.maximum(joules - static * seconds, 0.0)
    return seconds / speed, dynamic * speed**2 + static * seconds / speed


def arrivals(ready_seconds: Float64, air_seconds: Float64, access: str) -> Float64:
    """When each unit's update has arrived: at once (`ofdma`), or after a queue (`tdma`)."""
    if access == "ofdma":
        return ready_seconds + air_seconds
    return send_in_turn(ready_seconds, air_seconds)
