"""The medium that gathers share: who sends when, and what the interference that remains costs.

In a gather the members of a unit send to their leader in turn, and the leader answers with one
signal for all. Two units hear each other if one's leader receives the other's at least at
`radio.carrier_sense_dbm`; of those, one gathers at a time, as under CSMA-CA with ideal backoff:
first come, first served, at equal times the unit with the lower number. A unit may overtake one
that waits for a neighbour which it does not hear itself. Units that do not hear each other gather
at once, and what a leader receives of the other leaders adds to its noise: rates are constant
between the starts and ends of gathers. Signals more than 30 dB below the noise are left out.

Each link type has a band of its own: devices that listen before they send wait for those of their
own type, and interference is that between units of the type `shannon`.

Only units that start in the same round share the medium here, and uplinks have a band of their own.
Of more than 1000 units that gather, none waits for another, and a line of the log says so.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from camu.arrays import Float64, Int64, from_decibels
from camu.planning.link_costs import Sent, gather_messages, side_by_side
from camu.world import World

log = logging.getLogger(__name__)

_NEGLIGIBLE = 1e-3  # of the noise
_PREAMBLE_DBM, _PREAMBLE_HZ = -82.0, 20e6  # what an 802.11 receiver must notice in this band
MOST_UNITS = 1000  # that gather; of more, waits are not computed
_BLOCK = 256  # leaders whose links to all others are computed at a time


@dataclass(frozen=True, eq=False)
class Gathers:
    """The gathers of a round, one array entry per unit, and of members one per member."""

    ready_seconds: Float64  # when the last one has ended
    shortest_wait: Float64  # of a unit before a gather; 0 without gathers
    extra_joules: Float64  # of each member: sending takes longer under interference


@dataclass(frozen=True, eq=False)
class Medium:
    """The senders of all gathers, unit by unit; the leader of a unit is its last sender."""

    world: World
    leaders: Int64
    counts: Int64  # senders of each unit; 0: it does not gather
    places: Int64  # of each sender among the members of all units
    seconds: Float64  # of each sender if no other unit sends
    snr: Float64  # the same, at the receiver with the weakest link
    watts: Float64  # what each sender draws meanwhile
    bits: int
    members: int  # of all units together

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *np.cumsum(self.counts).tolist()]

    def senders(self, unit: int) -> slice:
        """Where the senders of a unit are in the arrays."""
        return slice(self._ends[unit], self._ends[unit + 1])

    @cached_property
    def _neighbours(self) -> tuple[list[set[int]], list[dict[int, float]], list[list[int]]]:
        """By unit: those it hears, how loud others are at its leader, and those it disturbs.

        Loudness is in noise powers.
        """
        links, devices = self.world.links, self.world.devices
        units = np.flatnonzero(self.counts).tolist()
        leaders, power = self.leaders[units], devices.power_watts[self.leaders[units]]
        threshold = carrier_sense_watts(self.world)
        types = links.types
        hears: list[set[int]] = [set() for _ in self.counts]
        noise: list[dict[int, float]] = [{} for _ in self.counts]
        for start in range(0, len(units), _BLOCK):
            rows = slice(start, start + _BLOCK)
            gain = links.pair_gain(leaders[rows, None], leaders)
            heard, told = gain * power, gain * power[rows, None]
            near = np.maximum(heard, told) >= threshold
            loud = ~near & (heard > _NEGLIGIBLE * links.noise_watts)
            loud &= leaders[rows, None] != leaders  # nobody disturbs itself
            if types is not None:  # each link type has a band of its own
                own = types.bandwidth_hz[leaders[rows]] / links.radio.bandwidth_hz
                near = np.maximum(heard, told) >= (threshold * own)[:, None]
                alike = types.place[leaders[rows, None]] == types.place[leaders]
                near &= alike & types.senses[leaders]
                loud &= alike & np.isneginf(types.lowest_snr_db[leaders])
            for row, unit in enumerate(units[rows]):
                hears[unit] = {units[k] for k in np.flatnonzero(near[row])} - {unit}
                others = np.flatnonzero(loud[row])
                levels = (heard[row, others] / links.noise_watts).tolist()
                noise[unit] = dict(zip((units[k] for k in others), levels, strict=True))
        disturbs: list[list[int]] = [[] for _ in self.counts]
        for unit, loud_units in enumerate(noise):
            for other in loud_units:
                disturbs[other].append(unit)
        return hears, noise, disturbs

    def durations(self, unit: int, interference: float) -> list[float]:
        """Seconds of each sender of a unit under interference, in noise powers."""
        own = self.senders(unit)
        if not interference:
            return list(self.seconds[own].tolist())
        links = self.world.links
        rates = links.rate_bps(self.snr[own] * links.noise_watts / (1 + interference), 1.0)
        return list((self.bits / rates).tolist())

    def schedule(
        self, compute_seconds: Float64, updates: Float64, start_seconds: Float64 | float
    ) -> Gathers:
        """The gathers of a round in which units start at this time and update so many times."""
        return _Schedule(self, compute_seconds, updates, start_seconds).run()


def carrier_sense_watts(world: World) -> float:
    """The received power from which on a device takes the medium for busy."""
    radio = world.config.radio
    if radio.carrier_sense_dbm is not None:
        return float(from_decibels(radio.carrier_sense_dbm - 30.0))
    share = radio.bandwidth_hz / _PREAMBLE_HZ
    return float(from_decibels(_PREAMBLE_DBM - 30.0)) * share


@dataclass
class _Sending:
    """A gather in progress."""

    sender: int  # its place in the unit
    left: float  # the share of this sender's bits that is not sent yet
    durations: list[float]  # of all senders at the present rates
    since: float
    interference: float

    @property
    def end(self) -> float:
        rest = self.left * self.durations[self.sender]
        return self.since + rest + math.fsum(self.durations[self.sender + 1 :])


class _Schedule:
    """One round of the medium, from event to event."""

    def __init__(
        self,
        medium: Medium,
        compute_seconds: Float64,
        updates: Float64,
        start_seconds: Float64 | float,
    ) -> None:
        self.medium = medium
        self.hears, self.noise, self.disturbs = medium._neighbours
        self.compute, self.left = compute_seconds.tolist(), updates.astype(int).tolist()
        self.ready = start_seconds + updates * compute_seconds
        self.waits = np.zeros(len(self.left))
        self.extra = np.zeros(medium.members)
        self.coming: list[tuple[float, int]] = []
        self.waiting: dict[int, float] = {}  # since when
        self.busy = [0] * len(self.left)  # neighbours of each unit that gather now
        self.active: dict[int, _Sending] = {}
        starts = np.broadcast_to(start_seconds, updates.shape).tolist()
        for unit in np.flatnonzero(medium.counts).tolist():
            self.waits[unit] = math.inf
            self.coming.append((starts[unit] + self.compute[unit], unit))
        heapq.heapify(self.coming)

    def run(self) -> Gathers:
        while self.coming or self.active:
            end = min((one.end for one in self.active.values()), default=math.inf)
            now = min(end, self.coming[0][0]) if self.coming else end
            over = self.finish(now) if end <= now else set()
            free = {near for unit in over for near in self.hears[unit]} & self.waiting.keys()
            while self.coming and self.coming[0][0] <= now:
                since, unit = heapq.heappop(self.coming)
                self.waiting[unit] = since
                free.add(unit)
            self.retune(now, over | self.start(now, free))
        return Gathers(self.ready, self.waits, self.extra)

    def finish(self, now: float) -> set[int]:
        """End the gathers that are over; their units compute again, or are ready."""
        over = {unit for unit, one in self.active.items() if one.end <= now}
        for unit in sorted(over):
            self.advance(unit, now)
            del self.active[unit]
            for near in self.hears[unit]:
                self.busy[near] -= 1
            self.left[unit] -= 1
            if self.left[unit]:
                heapq.heappush(self.coming, (now + self.compute[unit], unit))
            else:
                self.ready[unit] = now
        return over

    def start(self, now: float, free: set[int]) -> set[int]:
        """Start the gathers of these waiting units, in order, where no neighbour gathers."""
        started = set()
        for unit in sorted(free, key=lambda one: (self.waiting[one], one)):
            if self.busy[unit]:
                continue
            self.active[unit] = _Sending(0, 1.0, self.medium.durations(unit, 0.0), now, 0.0)
            self.waits[unit] = min(self.waits[unit], now - self.waiting.pop(unit))
            for near in self.hears[unit]:
                self.busy[near] += 1
            started.add(unit)
        return started

    def retune(self, now: float, changed: set[int]) -> None:
        """The rates of gathers whose interference is another one since some began or ended."""
        touched = {other for unit in changed for other in self.disturbs[unit]} | changed
        for unit in touched & self.active.keys():
            loud, one = self.noise[unit], self.active[unit]
            level = math.fsum(loud[other] for other in loud.keys() & self.active.keys())
            if level != one.interference:
                self.advance(unit, now)
                one.durations, one.interference = self.medium.durations(unit, level), level

    def advance(self, unit: int, now: float) -> None:
        """Note what a gather has sent until now."""
        one, medium = self.active[unit], self.medium
        first, over = medium.senders(unit).start, one.end <= now
        elapsed = now - one.since
        while elapsed > 0 or over:
            rest = one.left * one.durations[one.sender]
            spent = rest if over else min(rest, elapsed)
            share = one.left if spent == rest else spent / one.durations[one.sender]
            if one.interference:
                sender = first + one.sender
                longer = spent - share * medium.seconds[sender]
                self.extra[medium.places[sender]] += longer * medium.watts[sender]
            elapsed -= spent
            one.left -= share
            if one.left <= 0 and one.sender + 1 < len(one.durations):
                one.sender, one.left = one.sender + 1, 1.0
            elif over or one.left <= 0:
                break
        one.since = now


@dataclass(frozen=True, eq=False)
class GatherCosts:
    """One gather of each unit, alone on the medium."""

    seconds: Float64
    answer_seconds: Float64
    joules: Float64  # of each member
    medium: Medium | None  # that gathers share; None: none waits for another


def gather_costs(
    world: World, flat: Int64, sizes: Int64, leaders: Sequence[int], bits: int
) -> GatherCosts:
    """What the gather of each unit takes: the members send in turn, and the leader answers."""
    links, lead = world.links, np.asarray(leaders, dtype=np.int64)
    leader = np.repeat(lead, sizes)
    sending = np.flatnonzero(flat != leader)
    devices = flat[sending]
    power = world.devices.power_watts[devices]
    gain = links.pair_gain(devices, leader[sending])
    unit = np.repeat(np.arange(len(sizes)), sizes)[sending]
    starts = np.flatnonzero(np.diff(unit, prepend=-1))  # of units with senders
    groups = unit[starts]
    weakest = np.minimum.reduceat(gain, starts) if len(starts) else gain
    air = links.transmit_seconds(bits, power, gain)
    sent = Sent(air, links.supply_watts(power) * air)
    sent = gather_messages(world, devices, power, gain, bits, sizes[unit] - 1, sent)
    air = side_by_side(world, devices, unit, sent.seconds)
    answer_power = world.devices.power_watts[lead[groups]]
    back = links.transmit_seconds(bits, answer_power, weakest)
    answers = Sent(back, links.supply_watts(answer_power) * back)
    alone = np.ones_like(groups)
    answers = gather_messages(world, lead[groups], answer_power, weakest, bits, alone, answers)
    answer = np.zeros(len(sizes))
    answer[groups] = answers.seconds
    joules = np.zeros(len(flat))
    joules[sending] = sent.joules
    places = np.flatnonzero(flat == leader)
    joules[places[groups]] = answers.joules
    order = np.lexsort((np.r_[np.zeros(len(unit)), np.ones(len(groups))], np.r_[unit, groups]))
    medium = Medium(
        world,
        lead,
        counts=np.where(sizes > 1, sizes, 0),
        places=np.r_[sending, places[groups]][order],
        seconds=np.r_[air, answer[groups]][order],
        snr=(np.r_[power * gain, answer_power * weakest] / links.noise_watts)[order],
        watts=links.supply_watts(np.r_[power, answer_power])[order],
        bits=bits,
        members=len(flat),
    )
    seconds = _sum_by_unit(air, unit, len(sizes)) + answer
    return GatherCosts(seconds, answer, joules, _shared_medium(world, medium))


def _sum_by_unit(values: Float64, unit: Int64, count: int) -> Float64:
    """The sum over each unit; `unit` ascends, and a unit may have no value."""
    # A zero before the values of each unit: reduceat must find at least one entry everywhere.
    padded = np.insert(values, np.searchsorted(unit, np.arange(count)), 0.0)
    counts = np.bincount(unit, minlength=count) + 1
    return np.asarray(np.add.reduceat(padded, np.cumsum(counts) - counts))


def _shared_medium(world: World, medium: Medium) -> Medium | None:
    """The medium that gathers share; None: they do not wait for each other."""
    gathers = int((medium.counts > 0).sum())
    if world.config.radio.d2d == "free":
        return None
    if gathers <= MOST_UNITS:
        return medium
    world.cached(
        "no waits for the medium",
        lambda: log.warning(
            "%d clusters: waits for the medium of gathers are computed for %d at most, and left "
            "out here as with radio.d2d = free",
            *(gathers, MOST_UNITS),
        ),
    )
    return None
