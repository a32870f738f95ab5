"""The virtual clock of a run, and the wall clock of a run on nodes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Clock:
    """Events of units on one time axis, and the uplink band that TDMA units of a cell share."""

    in_turn: bool  # TDMA: one uplink at a time; otherwise all at once
    now_seconds: float = 0.0
    free_seconds: dict[int, float] = field(default_factory=dict)  # when a cell's band is free
    _events: list[tuple[float, int, int, float, int]] = field(default_factory=list)

    _READY = 0
    _ARRIVES = 1

    def start(self, unit: int, ready_seconds: float, uplink_seconds: float, cell: int = 0) -> None:
        """A unit starts now, is ready to send after some time, and then sends for some time."""
        event = (self.now_seconds + ready_seconds, self._READY, unit, uplink_seconds, cell)
        heapq.heappush(self._events, event)

    def next_arrival(self, deadline_seconds: float | None = None) -> int | None:
        """Advance to the next arrival and return its unit; None if the deadline comes first.

        At equal times, the unit with the lower number queues first, so that the order depends on
        nothing but the plan. An arrival at the deadline is in time.
        """
        while self._events:
            if deadline_seconds is not None and self._events[0][0] > deadline_seconds:
                break
            time, kind, unit, uplink_seconds, cell = heapq.heappop(self._events)
            self.now_seconds = time
            if kind == self._ARRIVES:
                return unit
            begin = max(time, self.free_seconds.get(cell, 0.0)) if self.in_turn else time
            end = begin + uplink_seconds
            if self.in_turn:
                self.free_seconds[cell] = end
            heapq.heappush(self._events, (end, self._ARRIVES, unit, 0.0, cell))
        if deadline_seconds is not None:
            self.wait_until(deadline_seconds)
        return None

    def wait_until(self, seconds: float) -> None:
        """Advance to a time at which nothing arrives; a time that has passed changes nothing."""
        self.now_seconds = max(self.now_seconds, seconds)

    def skip(self, seconds: float) -> None:
        """Let so much time pass at once, with all that is on its way."""
        self.now_seconds += seconds
        self.free_seconds = {cell: end + seconds for cell, end in self.free_seconds.items()}
        self._events = [(time + seconds, *rest) for time, *rest in self._events]  # type: ignore[misc]

    def clear(self) -> None:
        """Give up all that is on its way."""
        self._events, self.free_seconds = [], {}

    def state(self) -> dict[str, object]:
        """Everything that a checkpoint needs."""
        return {
            "now_seconds": self.now_seconds,
            "free_seconds": sorted(self.free_seconds.items()),
            "events": [list(event) for event in sorted(self._events)],
        }

    @classmethod
    def restore(cls, in_turn: bool, state: Mapping[str, Any]) -> Clock:
        """The clock as it was."""
        free = {int(cell): float(end) for cell, end in state["free_seconds"]}
        events = [
            (float(time), int(kind), int(unit), float(air), int(cell))
            for time, kind, unit, air, cell in state["events"]
        ]
        return cls(in_turn, float(state["now_seconds"]), free, events)


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
