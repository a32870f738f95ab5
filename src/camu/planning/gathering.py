"""One round of the gathers on the medium that they share, from event to event."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.medium import NEGLIGIBLE, Medium


@dataclass(frozen=True, eq=False)
class Gathers:
    """The gathers of a round, one array entry per unit, and of members one per member."""

    ready_seconds: Float64  # when the last one has ended
    shortest_wait: Float64  # of a unit before a gather; 0 without gathers
    extra_joules: Float64  # of each member: sending takes longer under interference


def gathers_of_round(
    medium: Medium, compute_seconds: Float64, updates: Float64, start_seconds: float
) -> Gathers:
    """The gathers of a round in which units start at this time and update so many times."""
    return _Round(medium, compute_seconds, updates, start_seconds).run()


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
        self, medium: Medium, compute_seconds: Float64, updates: Float64, start_seconds: float
    ) -> None:
        self.medium = medium
        self.compute, self.left = compute_seconds.tolist(), updates.astype(int).tolist()
        self.ready = start_seconds + updates * compute_seconds
        self.waits = np.zeros(len(self.left))
        self.extra = np.zeros(medium.members)
        self.waiting = np.full(len(self.left), math.inf)  # since when
        self.busy = np.zeros(len(self.left), dtype=np.int64)  # neighbours that gather now
        self.sending = _Sending()
        units = np.flatnonzero(medium.counts).tolist()
        self.waits[units] = math.inf
        self.coming = [(start_seconds + self.compute[unit], unit) for unit in units]
        heapq.heapify(self.coming)

    def run(self) -> Gathers:
        sending, coming = self.sending, self.coming
        while coming or sending.count:
            now = float(sending.end[: sending.count].min(initial=math.inf))
            if coming:
                now = min(now, coming[0][0])
            free = self.end_messages(now)
            changed = bool(free)
            while coming and coming[0][0] <= now:
                since, unit = heapq.heappop(coming)
                self.waiting[unit] = since
                free.append(np.array([unit]))
            if (free and self.start(now, np.concatenate(free))) or changed:
                self.retune(now)
        return Gathers(self.ready, self.waits, self.extra)

    def end_messages(self, now: float) -> list[Int64]:
        """Let the next send where one has ended; the neighbours of units whose gather is over."""
        sending, over = self.sending, []
        while sending.count:
            column = int(sending.end[: sending.count].argmin())
            if sending.end[column] > now:
                break
            sender = int(sending.sender[column])
            if sending.level[column]:
                self.pay(np.array([column]), now, sending.left[column : column + 1])
            if sender == sending.last[column]:
                over.append(self.finish(column, now))
            else:
                self.next_message(column, sender + 1, now)
        return over

    def next_message(self, column: int, sender: int, now: float) -> None:
        sending = self.sending
        after = slice(int(sending.first[column]) + 1, sender + 1)
        durations = self.medium.sending_seconds(after, sending.level[column]).tolist()
        sending.sender[column], sending.begin[column], sending.left[column] = sender, now, 1.0
        sending.duration[column] = durations[-1]
        start = sending.since[column] + sending.rest[column]
        sending.end[column] = start + math.fsum(durations)

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
        for unit in units[np.lexsort((units, self.waiting[units]))].tolist():
            since = float(self.waiting[unit])
            if self.busy[unit] or since > now:  # it may be named twice
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
        share = (now - sending.begin[own]) / sending.duration[own]
        self.pay(own[disturbed := sending.level[own] > 0], now, share[disturbed])
        left, senders = np.maximum(sending.left[own] - share, 0.0), sending.sender[own]
        seconds = self.medium.sending_seconds(senders, level[own])
        sending.begin[own] = sending.since[own] = now
        sending.left[own], sending.duration[own], sending.level[own] = left, seconds, level[own]
        sending.rest[own], sending.first[own] = left * seconds, senders
        sending.end[own] = now + sending.rest[own]

    def pay(self, columns: Int64, now: float, share: Float64) -> None:
        """What interference cost the present senders, who sent this share of their bits."""
        medium, senders = self.medium, self.sending.sender[columns]
        longer = (now - self.sending.begin[columns]) - share * medium.seconds[senders]
        self.extra[medium.places[senders]] += longer * medium.watts[senders]
