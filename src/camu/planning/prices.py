"""The one price: what units cost in a round, from their devices, links and the medium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.learning.job import LocalRule
from camu.planning import link_costs
from camu.planning.air import Signal
from camu.planning.cells import interference
from camu.planning.costs import Costs, flatten_groups
from camu.planning.medium import gather_costs
from camu.planning.packets import drawn_tries, mean_tries, packet_error
from camu.planning.secure import gather_bits
from camu.world import World
from camu.world.devices import static_watts, update_joules, update_seconds
from camu.world.link_types import SHANNON
from camu.world.rates import analog_seconds


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
    interference_watts: Sequence[float] | None = None,
    cpu_share: Sequence[float] | None = None,
    burst: Signal | None = None,
    gather_burst: Signal | None = None,
    alternatives: bool = False,
) -> Costs:
    """What these units cost; uplink gains (K,), which set rates, are the mean ones unless given.

    After every local update the members send their model to the leader, in turn over the whole
    band, and the leader answers with the mean, at the rate of its weakest member. Under
    `radio.d2d = "shared"` units that hear each other do so in turn (`planning/medium.py`).
    Leaders share the uplink as `radio.access` or their link type says; `uplinks` is how many units
    use each band at the same time, by default all of these. A unit with its own `bandwidth_hz` has
    that, and `interference_watts` in it; `cpu_share` slows the members of a unit. If a round is
    given, tries of packets, gains between devices and rates that are too high are those of it; by
    default they are the means, and none is. With `radio.downlink` members receive the model first.
    Units that transmit at once send a `burst` each over the whole band, with at most the given
    power, after their reports; so do members to their leader, with `gather_burst`. `alternatives`
    are units of which only one will send. Gathers of secure sums have more bits.
    """
    flat, starts = flatten_groups(members)
    sizes = np.diff(starts, append=len(flat))
    share = np.repeat(np.ones(len(sizes)) if cpu_share is None else np.array(cpu_share), sizes)
    bits = model_bits(world, parameters)
    sent, answered = gather_bits(world, sizes, parameters)
    gather = gather_costs(world, flat, sizes, leaders, (sent, answered), round_, gather_burst)
    power = np.asarray(power_watts, dtype=float)
    gains = world.links.uplink_gain if uplink_gain is None else uplink_gain
    true = _true_gains(world, gains, round_)
    together = link_costs.senders(world.links, leaders) if uplinks is None else uplinks
    bands = bandwidth_hz, interference_watts, burst, alternatives
    sending = _Uplinks(world, leaders, power, gains, true, together, *bands)
    model = broadcast(world, flat, leaders, true, bits)
    return Costs(
        sizes=sizes,
        gather_seconds=gather.seconds,
        answer_seconds=gather.answer_seconds,
        gather_joules=np.add.reduceat(gather.joules, starts),
        member_gather_joules=gather.joules,
        gather_bits=np.where(sizes > 1, (sizes - 1) * sent + answered, 0),
        medium=gather.medium,
        downlink_bits=model.copies * bits,
        downlink_seconds=model.seconds,
        receive_watts=model.receive_watts,
        station_seconds=model.station_seconds,
        **_computing(world, flat, starts, sizes, rules, parameters, share),
        **sending.costs(payload_bits, parameters, round_),
    )


def _computing(
    world: World,
    flat: Int64,
    starts: Int64,
    sizes: Int64,
    rules: Sequence[LocalRule] | None,
    parameters: int,
    share: Float64,
) -> dict[str, Any]:
    """The costs of computing, by their names in `Costs`."""
    seconds, joules = _member_updates(world, flat, sizes, rules, parameters, share)
    fleet, devices = world.config.fleet, world.devices
    return {
        "compute_seconds": np.maximum.reduceat(seconds, starts),
        "compute_joules": np.add.reduceat(joules, starts),
        "member_compute_joules": joules,
        "member_compute_seconds": seconds,
        "member_slowest": np.minimum(1.0, fleet.min_hz / (share * devices.cpu_hz[flat])),
        "static_watts": static_watts(devices, world.config.readings)[flat],
        "idle_watts": devices.idle_watts[flat],
    }


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
    interference_watts: Sequence[float] | None  # in the band of each; None: there is none
    burst: Signal | None  # that each sends at once with all others; None: it sends by itself
    alternatives: bool  # only one of them will send

    def costs(
        self, payload_bits: npt.ArrayLike, parameters: int, round_: int | None
    ) -> dict[str, Any]:
        """The costs of uplinks, by their names in `Costs`."""
        sent, tries = self.sent_and_tries(payload_bits, parameters, round_)
        return {
            "uplink_seconds": sent.seconds,
            "uplink_joules": sent.joules,
            "uplink_snr": self.snr,
            "uplink_bits": np.asarray(np.rint(tries * np.asarray(payload_bits)), dtype=np.int64),
            "queues": link_costs.queues_of(self.world.links, self.leaders),
            "outage": self.outage,
        }

    def sent_and_tries(
        self, payload_bits: npt.ArrayLike, parameters: int, round_: int | None
    ) -> tuple[link_costs.Sent, Float64]:
        """What each leader's sending costs, and how often it sends its update."""
        if self.burst is not None:
            return self.sent_at_once(self.burst), np.ones(len(self.leaders))
        air, tries = self.seconds_and_tries(payload_bits, parameters, round_)
        plain = link_costs.Sent(air, self.world.links.supply_watts(self.power_watts) * air)
        own = self.world, self.leaders, self.power_watts, self.heard(self.gains)
        return link_costs.uplinks(*own, payload_bits, self.together, plain), tries

    def sent_at_once(self, burst: Signal) -> link_costs.Sent:
        """Reports in turn, and then a burst; each unit sends for its own report and the burst."""
        links, power = self.world.links, self.power_watts
        report = links.transmit_seconds(burst.report_bits, power, self.heard(self.gains))
        together = burst.symbols / links.radio.bandwidth_hz
        joules = links.supply_watts(power) * (together + report)
        return link_costs.Sent(np.full(len(power), together + report.sum()), joules)

    def seconds_and_tries(
        self, payload_bits: npt.ArrayLike, parameters: int, round_: int | None
    ) -> tuple[Float64, Float64]:
        """How long each leader sends, and how often it sends its update."""
        links, radio, hertz = self.world.links, self.world.config.radio, self.hertz
        once = np.ones(len(self.leaders))
        if radio.uplink == "analog":
            return analog_seconds(parameters, hertz) * once, once
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
        rise = np.ones(len(self.leaders))
        if not self.alternatives:
            rise += interference(self.world, self.leaders, self.power_watts)
        if self.interference_watts is not None:
            rise += np.asarray(self.interference_watts) / self._band_noise_watts
        return rise

    def heard(self, gains: Float64) -> Float64:
        """Of these gains (K,) those of the leaders, less what interference adds to their noise."""
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
    def _band_noise_watts(self) -> Float64:
        """A band holds its share of the noise."""
        links = self.world.links
        noise_watts = links.noise_watts * (self.hertz / links.radio.bandwidth_hz)
        if links.types is not None:
            typed = np.array([name != SHANNON for name in links.types.of(self.leaders)])
            noise_watts = np.where(typed, np.asarray(links.own_noise_watts)[self.rows], noise_watts)
        return np.asarray(noise_watts, dtype=np.float64)

    @property
    def snr(self) -> Float64:
        """The linear SNR of each at the base station, interference counted as noise."""
        heard = self.heard(self.true_gains)
        return np.asarray(self.power_watts * heard / self._band_noise_watts)

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
    readings, training = config.readings, config.training
    seconds = update_seconds(devices, training)[flat]
    joules = update_joules(devices, readings, training, parameters)[flat]
    for batch in {rule.batch for rule in rules or () if rule.batch is not None}:
        affected = np.repeat([rule.batch == batch for rule in rules or ()], sizes)
        own = update_seconds(devices, training, batch)[flat]
        seconds = np.where(affected, own, seconds)
        own = update_joules(devices, readings, training, parameters, batch)[flat]
        joules = np.where(affected, own, joules)
    if rules is not None and any(rule.steps != 1 or rule.work != 1 for rule in rules):
        steps = np.repeat([rule.steps * rule.work for rule in rules], sizes)
        seconds, joules = steps * seconds, steps * joules
    if (speed == 1.0).all():
        return seconds, joules
    static = static_watts(devices, readings)[flat]
    dynamic = np.maximum(joules - static * seconds, 0.0)
    return seconds / speed, dynamic * speed**2 + static * seconds / speed
