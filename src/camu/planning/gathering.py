"""One round of the gathers on the medium that they share, from event to event."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.medium import Medium, kept_few, short
from camu.planning.nearby import NEGLIGIBLE

_AHEAD = 8  # messages of a gather that are foreseen
_PLACES = np.arange(_AHEAD)


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
    """The gathers in progress, a column each, with the messages that follow as rates are now.

    Only so many messages of a gather are foreseen, from its present sender on: rates change often.
    """

    NUMBERS = ("end", "left", "level", "high", "low")
    PLACES = ("unit", "sender", "stop")

    def __init__(self, units: int) -> None:
        self.count = 0
        self.column = np.full(units, -1)  # of each unit; -1: it does not gather now
        self.numbers, self.places = np.zeros((len(self.NUMBERS), 8)), np.zeros((3, 8), np.int64)
        self.touched = np.zeros(8, dtype=bool)  # whose interference is another one
        self.times = np.zeros((8, _AHEAD + 1))  # when the first one begins, and when each ends
        self.seconds = np.zeros((8, _AHEAD))  # that each still takes
        self.longer = np.zeros((8, _AHEAD))  # the share of these that is due to interference
        self._name_rows()

    def _name_rows(self) -> None:
        self.end, self.left, self.level, self.high, self.low = self.numbers
        self.unit, self.sender, self.stop = self.places

    def append(self, unit: int, columns: Int64, heard: Float64, told: Float64) -> int:
        """A new column; how loud those in these columns are to it, and it to them."""
        new = self.count
        if new == len(self.times):
            self.numbers = np.pad(self.numbers, ((0, 0), (0, new)))
            self.places = np.pad(self.places, ((0, 0), (0, new)))
            self.touched = np.pad(self.touched, (0, new))
            for name in ("times", "seconds", "longer"):
                setattr(self, name, np.pad(getattr(self, name), ((0, new), (0, 0))))
            self._name_rows()
        self._add_level(columns, told)
        levels = heard.tolist()
        self.high[new] = high = math.fsum(levels)
        self.low[new] = math.fsum([*levels, -high])
        self.unit[new], self.touched[new], self.column[unit] = unit, True, new
        self.count += 1
        return new

    def remove(self, column: int, columns: Int64, told: Float64) -> None:
        """Forget a gather that was so loud to others; the last column takes its place."""
        self._add_level(columns, -told)
        self.column[self.unit[column]] = -1
        self.count -= 1
        last = self.count
        if column == last:
            return
        self.numbers[:, column] = self.numbers[:, last]
        self.places[:, column] = self.places[:, last]
        for rows in (self.touched, self.times, self.seconds, self.longer):
            rows[column] = rows[last]
        self.column[self.unit[column]] = column

    def next_end(self, until: float) -> int | None:
        """The column whose foreseen messages end first, if that is not after this time."""
        if not self.count:
            return None
        column = int(self.end[: self.count].argmin())
        return column if self.end[column] <= until else None

    def _add_level(self, columns: Int64, change: Float64) -> None:
        """Add to the interference of some, with what rounding loses: nothing drifts."""
        before = self.high[columns]
        after = before + change
        part = after - before
        self.low[columns] += (before - (after - part)) + (change - part)
        self.high[columns] = after
        self.touched[columns] = True

    def disturbed_otherwise(self) -> tuple[Int64, Float64]:
        """The columns whose interference has changed, and what it is now, in noise powers."""
        own = self.touched[: self.count].nonzero()[0]
        self.touched[own] = False
        level = self.high[own] + self.low[own]
        level[level < 0.5 * NEGLIGIBLE] = 0.0  # nobody is as silent: what rounding left of none
        changed = level != self.level[own]
        changed |= self.end[own] == math.inf  # it begins
        return own[changed], level[changed]


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
        self.sending = _Sending(len(self.left))
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
                near = self.end_messages(column, now)
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

    def end_messages(self, column: int, now: float) -> Int64 | None:
        """Foresee the next ones, or end the gather: then return the neighbours of the unit."""
        sending, own = self.sending, np.array([column])
        first, stop = sending.sender[column], sending.stop[column]
        if stop - first > _AHEAD:
            self.progress(own, now)
            self.foresee(own, now)
            return None
        if sending.level[column]:
            extra = sending.seconds[column] * sending.longer[column]
            self.longer[first:stop] += extra[: stop - first]
        return self.finish(column, now)

    def finish(self, column: int, now: float) -> Int64:
        """End a gather; its unit computes again, or is ready. Returns its neighbours."""
        unit = int(self.sending.unit[column])
        columns, _, told = self.disturbance(unit)
        self.sending.remove(column, columns, told)
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
        units = np.sort(units[(self.busy[units] == 0) & (self.waiting[units] <= now)])
        left = units[np.argsort(self.waiting[units], kind="stable")]
        while len(left):
            unit = int(left[0])
            self.begin(unit, now)
            self.waits[unit] = min(self.waits[unit], now - self.waiting[unit])
            self.waiting[unit] = math.inf
            self.busy[self.medium.neighbours(unit)] += 1
            left = left[(self.busy[left] == 0) & (self.waiting[left] <= now)]
        return bool(len(units))

    def disturbance(self, unit: int) -> tuple[Int64, Float64, Float64]:
        """The columns of gathers near a unit, how loud they are to it, and it to them."""
        others, gain = self.medium.disturbed(unit)
        columns = self.sending.column[others]
        now = columns >= 0
        return columns[now], *self.medium.loudness(unit, others[now], gain[now])

    def begin(self, unit: int, now: float) -> None:
        """A gather begins; `retune` foresees its messages."""
        sending, senders = self.sending, self.medium.senders(unit)
        new = sending.append(unit, *self.disturbance(unit))
        sending.sender[new], sending.stop[new] = senders.start, senders.stop
        sending.end[new], sending.left[new], sending.level[new] = math.inf, 1.0, 0.0
        sending.times[new], sending.seconds[new], sending.longer[new] = math.inf, 0.0, 0.0

    def retune(self, now: float) -> None:
        """The rates of gathers whose interference is another one since some began or ended."""
        own, level = self.sending.disturbed_otherwise()
        if len(own):
            self.progress(own, now)
            self.sending.level[own] = level
            self.foresee(own, now)

    def progress(self, own: Int64, now: float) -> None:
        """Who sends now in these columns, how much it has left, and how long the others took."""
        sending, times, seconds = self.sending, self.sending.times[own], self.sending.seconds[own]
        first, stop = sending.sender[own], sending.stop[own]
        spent = np.minimum(np.maximum(now - times[:, :-1], 0.0), seconds)
        if sending.level[own].any():
            senders = np.minimum(first[:, None] + _PLACES, stop[:, None] - 1)
            np.add.at(self.longer, senders.ravel(), (spent * sending.longer[own]).ravel())
        passed = np.minimum(np.add.reduce(times[:, 1:] <= now, axis=1), stop - first)
        present = np.arange(len(own)), np.minimum(passed, _AHEAD - 1)
        sent, whole = spent[present], seconds[present]
        rest = 1.0 - np.divide(sent, whole, out=np.zeros_like(sent), where=whole > 0)
        rest *= np.where(passed > 0, 1.0, sending.left[own])
        sending.left[own] = np.where(passed < _AHEAD, rest, 1.0)
        sending.sender[own] = first + passed

    def foresee(self, own: Int64, now: float) -> None:
        """When the next messages in these columns end if rates stay as they are now."""
        sending, medium = self.sending, self.medium
        places = sending.sender[own][:, None] + _PLACES
        stop, level = sending.stop[own][:, None], sending.level[own][:, None]
        senders = np.minimum(places, stop - 1)
        seconds = alone = medium.seconds[senders]
        if level.any():
            seconds = np.where(level > 0, medium.sending_seconds(senders, level), alone)
            part = np.divide(alone, seconds, out=np.ones_like(alone), where=seconds > 0)
            sending.longer[own] = 1.0 - part
        else:
            sending.longer[own] = 0.0
        seconds[places >= stop] = 0.0
        following = np.add.accumulate(seconds, axis=1) - seconds[:, :1]
        seconds[:, 0] *= sending.left[own]
        ends = (now + seconds[:, :1]) + following
        sending.times[own, 0], sending.times[own, 1:] = now, ends
        sending.seconds[own], sending.end[own] = seconds, ends[:, -1]
