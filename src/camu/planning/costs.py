"""What each unit costs in seconds and joules: computing, gathering, sending."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.learning.job import LocalRule
from camu.planning import link_costs
from camu.planning.cells import interference
from camu.planning.gathering import Gathers, gathers_of_round
from camu.planning.medium import Medium, gather_costs
from camu.planning.packets import drawn_tries, mean_tries, packet_error
from camu.planning.queues import Queue
from camu.world import World
from camu.world.devices import static_watts, update_joules, update_seconds
from camu.world.link_types import SHANNON


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
    uplink_snr: Float64  # linear, within the band of each unit
    member_compute_joules: Float64  # of one local update
    member_gather_joules: Float64  # of a leader: its answer
    member_compute_seconds: Float64  # of one local update at its own frequency
    member_slowest: Float64  # the least frequency, as a share of its own
    uplink_bits: Int64  # of the whole round
    gather_bits: Int64  # of one local update: what the members and the answering leader send
    downlink_bits: int  # of the broadcast that all units receive, over each link type
    downlink_seconds: Float64 | float = 0.0  # of the broadcast, before units start
    receive_watts: Float64 | float = 0.0  # of a device of each unit while it receives
    station_seconds: float = 0.0  # in which the base station sends
    queues: Sequence[Queue] | None = None  # of uplinks; None: all have the link type `shannon`
    member_speeds: Float64 | None = None  # shares of own frequencies; None: all at full speed
    dvfs_seconds: Float64 | float = 0.0  # by how much slowed units compute longer, per round
    static_watts: float = 0.0  # of a device that computes, whatever its frequency
    medium: Medium | None = None  # that gathers share; None: none waits for another
    outage: npt.NDArray[np.bool_] | None = None  # rates that are too high; None: none is
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
        start = self.downlink_seconds
        return gathers_of_round(self.medium, self.compute_seconds, each, start)

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
        queues = self.queues or [Queue(SHANNON, 0)] * len(self.sizes)
        return {
            "wait_seconds": waits.tolist(),
            "interference_joules": extra.tolist(),
            "per_update": list(per_update),
            "uplink_seconds": self.uplink_seconds.tolist(),
            "uplink_joules": self.uplink_joules.tolist(),
            "downlink_seconds": self._each(self.downlink_seconds).tolist(),
            "receive_watts": self._each(self.receive_watts).tolist(),
            "idle_watts": [self.idle_watts] * len(self.sizes),
            "link": [queue.link for queue in queues],
            "channels": [queue.channels for queue in queues],
            "cell": [queue.cell for queue in queues],
        }

    def _each(self, value: Float64 | float) -> Float64:
        """A number of each unit, where one may stand for all."""
        return np.broadcast_to(np.asarray(value, dtype=np.float64), self.sizes.shape)


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
    uplinks: Mapping[str, int] | None = None,
    round_: int | None = None,
    bandwidth_hz: Sequence[float | None] | None = None,
    cpu_share: Sequence[float] | None = None,
    symbols: int | None = None,
    gather_symbols: int | None = None,
) -> Costs:
    """What these units cost; uplink gains (K,), which set rates, are the mean ones unless given.

    After every local update the members send their model to the leader, in turn over the whole
    band, and the leader answers with the mean, at the rate of its weakest member. Under
    `radio.d2d = "shared"` units that hear each other do so in turn (`planning/medium.py`).
    Leaders share the uplink as `radio.access` or their link type says; `uplinks` is how many units
    use each band at the same time, by default all of these. A unit with a `bandwidth_hz` of
    its own has that; `cpu_share` slows the members of a unit. If a round is given, tries of
    packets, gains between devices and rates that are too high are those of it; by default they are
    the means, and none is. With `radio.downlink` members receive the model before they start.
    Of units that transmit at once each sends so many `symbols` over the whole band, with at most
    the given power; so do members that transmit to their leader at once, with `gather_symbols`.
    """
    flat, starts = flatten_groups(members)
    sizes = np.diff(starts, append=len(flat))
    share = np.repeat(np.ones(len(sizes)) if cpu_share is None else np.array(cpu_share), sizes)
    cpu_hz = world.devices.cpu_hz[flat]
    seconds, joules = _member_updates(world, flat, sizes, rules, parameters, share)
    bits = model_bits(world, parameters)
    gather = gather_costs(world, flat, sizes, leaders, bits, round_, gather_symbols)
    power = np.asarray(power_watts, dtype=float)
    gains = world.links.uplink_gain if uplink_gain is None else uplink_gain
    true = _true_gains(world, gains, round_)
    together = link_costs.senders(world.links, leaders) if uplinks is None else uplinks
    sending = _Uplinks(world, leaders, power, gains, true, together, bandwidth_hz, symbols)
    sent, tries = sending.sent_and_tries(payload_bits, parameters, round_)
    model = broadcast(world, flat, leaders, true, bits)
    return Costs(
        sizes=sizes,
        compute_seconds=np.maximum.reduceat(seconds, starts),
        gather_seconds=gather.seconds,
        answer_seconds=gather.answer_seconds,
        compute_joules=np.add.reduceat(joules, starts),
        gather_joules=np.add.reduceat(gather.joules, starts),
        uplink_seconds=sent.seconds,
        uplink_joules=sent.joules,
        uplink_snr=sending.snr,
        member_compute_joules=joules,
        member_gather_joules=gather.joules,
        member_compute_seconds=seconds,
        member_slowest=np.minimum(1.0, world.config.fleet.min_hz / (share * cpu_hz)),
        uplink_bits=np.asarray(np.rint(tries * np.asarray(payload_bits)), dtype=np.int64),
        gather_bits=np.where(sizes > 1, sizes, 0) * bits,
        downlink_bits=model.copies * bits,
        downlink_seconds=model.seconds,
        receive_watts=model.receive_watts,
        station_seconds=model.station_seconds,
        queues=link_costs.queues_of(world.links, leaders),
        static_watts=static_watts(world.config),
        medium=gather.medium,
        outage=sending.outage,
        idle_watts=world.config.fleet.idle_watts,
    )


def _true_gains(world: World, gains: Float64, round_: int | None) -> Float64:
    """The gains of uplinks (K,) where rates are chosen for these."""
    if round_ is None or world.config.radio.knows_channels:
        return gains
    return world.links.uplink_gain * world.links.fading(round_)


@dataclass(frozen=True, eq=False)
class _Uplinks:
    """Leaders that send to the server in the same round."""

    world: World
    leaders: Sequence[int]
    power_watts: Float64
    gains: Float64  # (K,) for which rates are chosen
    true_gains: Float64  # (K,)
    together: Mapping[str, int]  # how many share each band
    bandwidth_hz: Sequence[float | None] | None  # of each leader; None: its share
    symbols: int | None  # that each sends at once with all others; None: it sends by itself

    def sent_and_tries(
        self, payload_bits: npt.ArrayLike, parameters: int, round_: int | None
    ) -> tuple[link_costs.Sent, Float64]:
        """What each leader's sending costs, and how often it sends its update."""
        air, tries = self.seconds_and_tries(payload_bits, parameters, round_)
        plain = link_costs.Sent(air, self.world.links.supply_watts(self.power_watts) * air)
        own = self.world, self.leaders, self.power_watts, self.heard(self.gains)
        return link_costs.uplinks(*own, payload_bits, self.together, plain), tries

    def seconds_and_tries(
        self, payload_bits: npt.ArrayLike, parameters: int, round_: int | None
    ) -> tuple[Float64, Float64]:
        """How long each leader sends, and how often it sends its update."""
        links, radio, hertz = self.world.links, self.world.config.radio, self.hertz
        once = np.ones(len(self.leaders))
        if self.symbols is not None:
            return self.symbols / radio.bandwidth_hz * once, once
        if radio.uplink == "analog":  # a complex symbol carries two parameters
            return math.ceil(parameters / 2) / hertz * once, once
        gain = self.heard(self.gains)
        seconds = links.transmit_seconds(payload_bits, self.power_watts, gain, hertz)
        if radio.uplink != "packet" or radio.packet_tries == 1:
            return seconds, once
        error = packet_error(self.snr)
        if round_ is None:
            tries = mean_tries(error, radio.packet_tries)
        else:
            if self.outage is not None:
                error = np.where(self.outage, 1.0, error)  # all tries meet the same fade
            drawn = drawn_tries(self.world.config, round_, self.leaders, error)
            tries = np.minimum(drawn, radio.packet_tries)
        return tries * seconds, tries

    @property
    def rows(self) -> Int64:
        """The leaders as an array."""
        return np.asarray(self.leaders, dtype=np.int64)

    @cached_property
    def _noise_rise(self) -> Float64:
        return 1.0 + interference(self.world, self.leaders, self.power_watts)

    def heard(self, gains: Float64) -> Float64:
        """Of these gains (K,) those of the leaders, less what other cells add to their noise."""
        return gains[self.rows] / self._noise_rise

    @cached_property
    def hertz(self) -> Float64 | float:
        """What each has of the band."""
        links = self.world.links
        parts: Any = self.together.get(SHANNON, 1)
        if links.cells.any():
            own = link_costs.bands(links, self.leaders)
            parts = np.array([self.together.get(band, 1) for band in own])
        share = links.share(parts).bandwidth_hz
        given = [np.nan if one is None else one for one in self.bandwidth_hz or ()]
        return np.where(np.isnan(given), share, given) if given else share

    @property
    def snr(self) -> Float64:
        """The linear SNR of each at the base station; a band holds its share of the noise."""
        links = self.world.links
        noise_watts = links.noise_watts * (self.hertz / links.radio.bandwidth_hz)
        if links.types is not None:
            typed = np.array([name != SHANNON for name in links.types.of(self.leaders)])
            noise_watts = np.where(typed, np.asarray(links.own_noise_watts)[self.rows], noise_watts)
        return np.asarray(self.power_watts * self.heard(self.true_gains) / noise_watts)

    @property
    def outage(self) -> npt.NDArray[np.bool_] | None:
        """Whose rate is higher than its channel carries; None where all channels are known."""
        if self.true_gains is self.gains:
            return None
        chosen, most = (
            self.world.links.rate_bps(self.power_watts, self.heard(gains), self.hertz)
            for gains in (self.gains, self.true_gains)
        )
        return np.asarray(most < chosen)


def model_bits(world: World, parameters: int) -> int:
    """The size of a model of so many parameters that is sent as it is."""
    return world.config.radio.bits_per_parameter * parameters


def broadcast_seconds(world: World, gains: Float64, bits: int) -> float:
    """Time in which the base station sends so many bits to devices with these gains of their links.

    One signal for all cannot be steered to each, so it lacks the gain of the combined antennas.
    The device with the weakest link sets the rate. It is 0 without downlink.
    """
    radio = world.config.radio
    if not radio.downlink:
        return 0.0
    gain = gains.min() / radio.antennas
    return float(world.links.transmit_seconds(bits, radio.bs_power_watts, gain))


def broadcast(
    world: World, flat: Int64, leaders: Sequence[int], gains: Float64, bits: int
) -> link_costs.Broadcast:
    """A broadcast to these members of units, at these gains of all devices."""
    radio, types = world.config.radio, world.links.types
    if types is None:
        seconds = broadcast_seconds(world, gains[flat], bits)
        return link_costs.Broadcast(seconds, seconds, 1, radio.receive_watts)
    plain = flat[[name == SHANNON for name in types.of(flat)]]
    band = {SHANNON: broadcast_seconds(world, gains[plain], bits)} if plain.size else {}
    return link_costs.typed_broadcast(world, flat, leaders, gains, bits, band)


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
    heard = costs.downlink_seconds + updates * costs.answer_seconds
    receive = np.repeat(costs.receive_watts * heard, sizes)
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
