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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from typing import TypeVar

import numpy as np

from camu.arrays import AnyArray, Float64, Int64
from camu.planning.air import Signal
from camu.planning.link_costs import Sent, gather_messages, side_by_side
from camu.planning.nearby import NEGLIGIBLE, Nearby
from camu.world import World

Value = TypeVar("Value")

_KEPT = 32  # rounds and neighbourhoods of a world, which are asked for again


@dataclass(frozen=True, eq=False)
class Medium:
    """The senders of all gathers, unit by unit; the leader of a unit is its last sender."""

    world: World
    leaders: Int64
    counts: Int64  # senders of each unit; 0: it does not gather
    places: Int64  # of each sender among the members of all units
    seconds: Float64  # of each sender if no other unit sends
    snr: Float64  # the same, at the receiver with the weakest link; inf: seconds are fixed
    watts: Float64  # what each sender draws meanwhile
    bits: Int64  # of the message of each sender
    members: int  # of all units together

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *np.cumsum(self.counts).tolist()]

    def senders(self, unit: int) -> slice:
        """Where the senders of a unit are in the arrays."""
        return slice(self._ends[unit], self._ends[unit + 1])

    @cached_property
    def identity(self) -> bytes:
        """What decides about gathers on this medium, in short: others may be the same."""
        sent = self.places, self.seconds, self.snr, self.watts, self.bits
        return short(self.leaders, self.counts, *sent)

    @cached_property
    def _nearby(self) -> Nearby:
        units, leaders = np.flatnonzero(self.counts), self.leaders
        make = partial(Nearby, self.world, units, leaders)
        return kept_few(self.world, short(units, leaders), make)

    def neighbours(self, unit: int) -> Int64:
        """The units that gather which this one hears, or which hear it."""
        return self._nearby.neighbours(unit)

    def cliques(self) -> list[Int64]:
        """The units that gather, each in one set of which any two hear each other.

        Those with the longest gathers come first: of a set only one gathers at a time.
        """
        count = len(self.counts)
        sums = np.diff(np.cumsum(np.r_[0.0, self.seconds])[self._ends])
        free, found = self.counts > 0, []
        for unit in np.argsort(-sums, kind="stable").tolist():
            if not free[unit]:
                continue
            together, near = [unit], free.copy()
            while True:
                heard = np.zeros(count, dtype=bool)
                heard[self.neighbours(together[-1])] = True
                near &= heard
                if not near.any():
                    break
                together.append(int(np.argmax(np.where(near, sums, -1.0))))
            free[together] = False
            found.append(np.array(together))
        return found

    def disturbed(self, unit: int) -> tuple[Int64, Float64]:
        """The units that disturb this one, or that it disturbs, and the gains between them."""
        return self._nearby.disturbed(unit)

    def loudness(self, unit: int, others: Int64, gain: Float64) -> tuple[Float64, Float64]:
        """How loud others are at the leader of this unit, and it at theirs, in noise powers."""
        noise, power = self.world.links.noise_watts, self.world.devices.power_watts
        leader, their = self.leaders[unit], self.leaders[others]
        heard, told = gain * power[their], gain * power[leader]
        least = NEGLIGIBLE * noise
        return (
            np.where(heard > least, heard / noise, 0.0),
            np.where(told > least, told / noise, 0.0),
        )

    def sending_seconds(self, senders: Int64, interference: Float64 | float) -> Float64:
        """How long senders need for a message under interference, in noise powers; it is not 0."""
        links = self.world.links
        rates = links.rate_bps(self.snr[senders] * links.noise_watts / (1 + interference), 1.0)
        fixed = np.isinf(self.snr[senders])
        return np.where(fixed, self.seconds[senders], self.bits[senders] / rates)


def short(*arrays: AnyArray) -> bytes:
    """A few bytes that differ where the arrays do."""
    digest = blake2b(digest_size=32)
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())  # where one ends and the next begins
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def kept_few(world: World, key: bytes, make: Callable[[], Value]) -> Value:
    """The value that `make` gives, made once while it is among the last that were made."""
    known: dict[bytes, Value] = world.cached("medium", dict)
    if key not in known:
        if len(known) >= _KEPT:
            del known[next(iter(known))]
        known[key] = make()
    return known[key]


@dataclass(frozen=True, eq=False)
class GatherCosts:
    """One gather of each unit, alone on the medium."""

    seconds: Float64
    answer_seconds: Float64
    joules: Float64  # of each member
    medium: Medium | None  # that gathers share; None: none waits for another


def gather_costs(
    world: World,
    flat: Int64,
    sizes: Int64,
    leaders: Sequence[int],
    bits: tuple[Int64, Int64],
    round_: int | None = None,
    burst: Signal | None = None,
) -> GatherCosts:
    """What the gather of each unit takes: the members send in turn, and the leader answers.

    `bits` are those of a member's message, and of the answer, by unit. Members that send a `burst`
    at once need the time of one after their reports, whatever the interference. It is that of a
    round, or at mean gains; what leaders hear of each other always is.
    """
    links, lead = world.links, np.asarray(leaders, dtype=np.int64)
    leader = np.repeat(lead, sizes)
    sending = np.flatnonzero(flat != leader)
    devices = flat[sending]
    power = world.devices.power_watts[devices]
    gain = links.pair_gain(devices, leader[sending], round_)
    unit = np.repeat(np.arange(len(sizes)), sizes)[sending]
    starts = np.flatnonzero(np.diff(unit, prepend=-1))  # of units with senders
    groups = unit[starts]
    weakest = np.minimum.reduceat(gain, starts) if len(starts) else gain
    size, answer_size = bits[0][unit], bits[1][groups]
    air = links.transmit_seconds(size, power, gain)
    sent = Sent(air, links.supply_watts(power) * air)
    sent = gather_messages(world, devices, power, gain, size, sizes[unit] - 1, sent)
    air = side_by_side(world, devices, unit, sent.seconds)
    snr = power * gain / links.noise_watts
    if burst is not None:  # each has a part of the time in which all send
        together = burst.symbols / world.config.radio.bandwidth_hz
        report = links.transmit_seconds(burst.report_bits, power, gain)
        sent = Sent(together + report, links.supply_watts(power) * (together + report))
        air, snr = together / (sizes[unit] - 1) + report, np.full(len(gain), np.inf)
    answer_power = world.devices.power_watts[lead[groups]]
    back = links.transmit_seconds(answer_size, answer_power, weakest)
    answers = Sent(back, links.supply_watts(answer_power) * back)
    alone = np.ones_like(groups)
    sizes_back = answer_size, alone
    answers = gather_messages(world, lead[groups], answer_power, weakest, *sizes_back, answers)
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
        snr=np.r_[snr, answer_power * weakest / links.noise_watts][order],
        watts=links.supply_watts(np.r_[power, answer_power])[order],
        bits=np.r_[size, answer_size][order],
        members=len(flat),
    )
    seconds = _sum_by_unit(air, unit, len(sizes)) + answer
    return GatherCosts(
        seconds, answer, joules, None if world.config.radio.d2d == "free" else medium
    )


def _sum_by_unit(values: Float64, unit: Int64, count: int) -> Float64:
    """The sum over each unit; `unit` ascends, and a unit may have no value."""
    # A zero before the values of each unit: reduceat must find at least one entry everywhere.
    padded = np.insert(values, np.searchsorted(unit, np.arange(count)), 0.0)
    counts = np.bincount(unit, minlength=count) + 1
    return np.asarray(np.add.reduceat(padded, np.cumsum(counts) - counts))
