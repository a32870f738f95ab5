"""One round of the gathers on the medium that they share, from event to event."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.medium import NEGLIGIBLE, Medium, kept_few, short


@dataclass(frozen=True, eq=False)
class Gathers:
    """The gathers of a round, one array entry per unit, and of members one per member."""

    ready_seconds: Float64  # when the last one has ended
    shortest_wait: Float64  # of a unit before a gather; 0 without gathers
    extra_joules: Float64  # of each member: sending takes longer under interference
    extra_seconds: Float64  # in which each member listens longer, because others send longer


def gathers_of_round(
    medium: Medium, compute_seconds: Float64, updates: Float64, start_seconds: Float64 | float
) -> Gathers:
    """The gathers of a round in which units start at this time and update so many times."""
    asked = short(compute_seconds, updates, np.array(start_seconds)) + medium.identity
    round_ = partial(_Round, medium, compute_seconds, updates, start_seconds)
    return kept_few(medium.world, asked, lambda: round_().run())


class _Sending:
    """The gathers in progress, a column each, and how much of its bits the present sender has left.

    When a sender ends counts from the last change of the rates: what the sender of that time had
    left, and all who came after it.
    """

    NUMBERS = ("end", "since", "rest", "begin", "left", "duration", "level", "high", "low")
    PLACES = ("unit", "sender", "last", "first")

    def __init__(self) -> None:
        self.count = 0
        self.numbers, self.places = np.zeros((len(self.NUMBERS), 8)), np.zeros((4, 8), np.int64)
        self.loud = np.zeros((8, 8))  # of each gather at the leader of each other, in noise powers
        self._name_rows()

    def _name_rows(self) -> None:
        self.end, self.since, self.rest, self.begin, self.left = self.numbers[:5]
        self.duration, self.level, self.high, self.low = self.numbers[5:]
        self.unit, self.sender, self.last, self.first = self.places

    def append(self, heard: Float64, told: Float64) -> int:
        """A new column; how loud the others are to it, and it to them."""
        new = self.count
        if new == self.loud.shape[0]:
            self.numbers = np.pad(self.numbers, ((0, 0), (0, new)))
            self.places = np.pad(self.places, ((0, 0), (0, new)))
            self.loud = np.pad(self.loud, (0, new))
            self._name_rows()
        self.loud[:new, new], self.loud[new, :new] = heard, told
        self._add_level(told)
        levels = heard.tolist()
        self.high[new] = high = math.fsum(levels)
        self.low[new] = math.fsum([*levels, -high])
        self.count += 1
        return new

    def remove(self, column: int) -> None:
        """Forget a gather; the last column takes its place."""
        self._add_level(-self.loud[column, : self.count])
        self.count -= 1
        last = self.count
        self.numbers[:, column] = self.numbers[:, last]
        self.places[:, column] = self.places[:, last]
        self.loud[:last, column] = self.loud[:last, last]
        self.loud[column, :last] = self.loud[last, :last]

    def next_end(self, until: float) -> int | None:
        """The column whose sender ends first, if that is not after this time."""
        if not self.count:
            return None
        column = int(self.end[: self.count].argmin())
        return column if self.end[column] <= until else None

    def _add_level(self, change: Float64) -> None:
        """Add to the interference of each, with what rounding loses: nothing drifts."""
        own = slice(0, self.count)
        before = self.high[own]
        after = before + change
        part = after - before
        self.low[own] += (before - (after - part)) + (change - part)
        self.high[own] = after

    def new_levels(self) -> Float64:
        """The interference of each gather as it is now, in noise powers."""
        level: Float64 = self.high[: self.count] + self.low[: self.count]
        level[level < 0.5 * NEGLIGIBLE] = 0.0  # nobody is as silent: what rounding left of none
        return level


class _Round:
    def __init__(
        self,
        medium: Medium,
        compute_seconds: Float64,
        updates: Float64,
        start_seconds: Float64 | float,
    ) -> None:
        self.medium = medium
        self.compute, self.left = compute_seconds.tolist(), updates.astype(int).tolist()
        self.ready = start_seconds + updates * compute_seconds
        self.waits = np.zeros(len(self.left))
        self.longer = np.zeros(len(medium.places))  # in which each sender sends
        self.waiting = np.full(len(self.left), math.inf)  # since when
        self.busy = np.zeros(len(self.left), dtype=np.int64)  # neighbours that gather now
        self.sending = _Sending()
        units = np.flatnonzero(medium.counts).tolist()
        self.waits[units] = math.inf
        starts = np.broadcast_to(start_seconds, updates.shape).tolist()
        self.coming = [(starts[unit] + self.compute[unit], unit) for unit in units]
        heapq.heapify(self.coming)

    def run(self) -> Gathers:
        sending, coming = self.sending, self.coming
        while coming or sending.count:
            now = coming[0][0] if coming else math.inf
            free, changed = [], False
            while (column := sending.next_end(now)) is not None:
                now = float(sending.end[column])
                near = self.end_message(column, now)
                if near is not None:
                    free.append(near)
            changed = bool(free)
            while coming and coming[0][0] <= now:
                since, unit = heapq.heappop(coming)
                self.waiting[unit] = since
                if not self.busy[unit]:
                    free.append(np.array([unit]))
            if free and (self.start(now, np.concatenate(free)) or changed):
                self.retune(now)
        for shared in (found := (self.ready, self.waits, *self.extra())):
            shared.setflags(write=False)
        return Gathers(*found)

    def extra(self) -> tuple[Float64, Float64]:
        """What longer sending costs each member, and how much longer it listens.

        A leader listens to its members, and they to its answer.
        """
        medium, longer = self.medium, self.longer
        joules, listening = np.zeros((2, medium.members))
        joules[medium.places] = longer * medium.watts
        counts = medium.counts[medium.counts > 0]
        if longer.any():
            ends = np.cumsum(counts)
            answers = longer[ends - 1]
            heard = np.repeat(answers, counts)
            heard[ends - 1] = np.add.reduceat(longer, ends - counts) - answers
            listening[medium.places] = heard
        return joules, listening

    def end_message(self, column: int, now: float) -> Int64 | None:
        """Let the next one send, or end the gather: then return the neighbours of the unit."""
        sending, medium = self.sending, self.medium
        sender, level = int(sending.sender[column]), float(sending.level[column])
        if level:
            longer = now - sending.begin[column] - sending.left[column] * medium.seconds[sender]
            self.longer[sender] += longer
        if sender == sending.last[column]:
            return self.finish(column, now)
        after = slice(int(sending.first[column]) + 1, sender + 2)
        seconds = medium.sending_seconds(after, level) if level else medium.seconds[after]
        sending.sender[column], sending.begin[column], sending.left[column] = sender + 1, now, 1.0
        sending.duration[column] = seconds[-1]
        start = sending.since[column] + sending.rest[column]
        sending.end[column] = start + math.fsum(seconds.tolist())
        return None

    def finish(self, column: int, now: float) -> Int64:
        """End a gather; its unit computes again, or is ready. Returns its neighbours."""
        unit = int(self.sending.unit[column])
        self.sending.remove(column)
        near = self.medium.neighbours(unit)
        self.busy[near] -= 1
        self.left[unit] -= 1
        if self.left[unit]:
            heapq.heappush(self.coming, (now + self.compute[unit], unit))
        else:
            self.ready[unit] = now
        return near

    def start(self, now: float, units: Int64) -> bool:
        """Start the gathers of those units that wait, in order, where no neighbour gathers."""
        units = units[(self.busy[units] == 0) & (self.waiting[units] <= now)]
        for since, unit in sorted(zip(self.waiting[units].tolist(), units.tolist(), strict=True)):
            if self.busy[unit] or self.waiting[unit] > now:  # it may be named twice
                continue
            self.begin(unit, now)
            self.waits[unit] = min(self.waits[unit], now - since)
            self.waiting[unit] = math.inf
            self.busy[self.medium.neighbours(unit)] += 1
        return bool(len(units))

    def begin(self, unit: int, now: float) -> None:
        """The first sender of a unit, as if nobody disturbed it: the rates follow."""
        sending, senders = self.sending, self.medium.senders(unit)
        new = sending.append(*self.medium.loudness(unit, sending.unit[: sending.count]))
        seconds = self.medium.seconds[senders.start]
        sending.places[:, new] = unit, senders.start, senders.stop - 1, senders.start
        sending.numbers[:7, new] = now + seconds, now, seconds, now, 1.0, seconds, 0.0

    def retune(self, now: float) -> None:
        """The rates of gathers whose interference is another one since some began or ended."""
        sending = self.sending
        level = sending.new_levels()
        own = np.flatnonzero(level != sending.level[: sending.count])
        if not len(own):
            return
        senders, elapsed = sending.sender[own], now - sending.begin[own]
        share, alone = elapsed / sending.duration[own], self.medium.seconds[senders]
        longer = np.where(sending.level[own] > 0, elapsed - share * alone, 0.0)
        self.longer[senders] += longer
        left, level = np.maximum(sending.left[own] - share, 0.0), level[own]
        seconds = np.where(level > 0, self.medium.sending_seconds(senders, level), alone)
        sending.begin[own] = sending.since[own] = now
        sending.left[own], sending.duration[own], sending.level[own] = left, seconds, level
        sending.rest[own], sending.first[own] = left * seconds, senders
        sending.end[own] = now + sending.rest[own]
