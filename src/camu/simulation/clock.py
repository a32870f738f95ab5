"""The virtual clock of a run, and the wall clock of a run on nodes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from camu.planning.queues import Channels, Queue
from camu.world.link_types import SHANNON

_Event = tuple[float, int, int, float, Queue | None]  # time, kind, unit, air time, queue


@dataclass
class Clock:
    """Events of units on one time axis, and the one uplink band that TDMA units share.

    Units of other link types than `shannon`, and of other cells than 0, queue for theirs.
    """

    in_turn: bool  # TDMA: one uplink at a time; otherwise all at once
    now_seconds: float = 0.0
    free_seconds: float = 0.0  # when the shared band is free
    _events: list[_Event] = field(default_factory=list)
    _channels: Channels = field(default_factory=Channels)

    _READY = 0
    _ARRIVES = 1

    def start(
        self, unit: int, ready_seconds: float, uplink_seconds: float, queue: Queue | None = None
    ) -> None:
        """A unit starts now, is ready to send after some time, and then sends for some time."""
        own = None if queue is None or queue.band == SHANNON else queue
        if own is not None and own.link == SHANNON:
            own = own._replace(channels=int(self.in_turn))
        event = (self.now_seconds + ready_seconds, self._READY, unit, uplink_seconds, own)
        heapq.heappush(self._events, event)

    def next_arrival(self, deadline_seconds: float | None = None) -> int | None:
        """Advance to the next arrival and return its unit; None if the deadline comes first.

        At equal times, the unit with the lower number queues first, so that the order depends on
        nothing but the plan. An arrival at the deadline is in time.
        """
        while self._events:
            if deadline_seconds is not None and self._events[0][0] > deadline_seconds:
                break
            time, kind, unit, uplink_seconds, queue = heapq.heappop(self._events)
            # What arrived while nobody waited for it is there.
            self.now_seconds = max(self.now_seconds, time)
            if kind == self._ARRIVES:
                return unit
            end = self._sent(time, uplink_seconds, queue)
            heapq.heappush(self._events, (end, self._ARRIVES, unit, 0.0, None))
        if deadline_seconds is not None:
            self.wait_until(deadline_seconds)
        return None

    def _sent(self, ready_seconds: float, uplink_seconds: float, queue: Queue | None) -> float:
        """When an uplink that is ready now will have ended."""
        if queue is not None:
            return self._channels.send(ready_seconds, uplink_seconds, queue)[0]
        begin = max(ready_seconds, self.free_seconds) if self.in_turn else ready_seconds
        end = begin + uplink_seconds
        if self.in_turn:
            self.free_seconds = end
        return end

    def wait_until(self, seconds: float) -> None:
        """Advance to a time at which nothing arrives; a time that has passed changes nothing."""
        self.now_seconds = max(self.now_seconds, seconds)

    def skip(self, seconds: float) -> None:
        """Let so much time pass at once, with all that is on its way."""
        self.now_seconds += seconds
        self.free_seconds += seconds
        self._channels.skip(seconds)
        self._events = [(time + seconds, *rest) for time, *rest in self._events]  # type: ignore[misc]

    def clear(self) -> None:
        """Give up all that is on its way."""
        self._events, self.free_seconds, self._channels = [], self.now_seconds, Channels()

    def state(self) -> dict[str, object]:
        """Everything that a checkpoint needs."""
        return {
            "now_seconds": self.now_seconds,
            "free_seconds": self.free_seconds,
            "events": [[*event[:4], *(event[4] or ())] for event in sorted(self._events)],
            **({"channels": self._channels.free} if self._channels.free else {}),
        }

    @classmethod
    def restore(cls, in_turn: bool, state: Mapping[str, Any]) -> Clock:
        """The clock as it was."""
        events: list[_Event] = [
            (float(t), int(kind), int(u), float(air), Queue(*queue) if queue else None)
            for t, kind, u, air, *queue in state["events"]
        ]
        free = {
            str(link): [(float(t), int(number)) for t, number in busy]
            for link, busy in state.get("channels", {}).items()
        }
        now, band = float(state["now_seconds"]), float(state["free_seconds"])
        return cls(in_turn, now, band, events, Channels(free))


@dataclass
class WallClock(Clock):
    """Seconds of the wall clock since the run began; it goes on where a checkpoint left off."""

    in_turn: bool = False
    read: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        self._zero = self.read() - self.now_seconds

    def update(self) -> float:
        """Advance to the present."""
        self.wait_until(self.read() - self._zero)
        return self.now_seconds

    def wait_until(self, seconds: float) -> None:
        """Advance to a time; if it is yet to come, later times follow from it."""
        super().wait_until(seconds)
        self._zero = min(self._zero, self.read() - self.now_seconds)
