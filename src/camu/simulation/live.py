"""Rounds on real arrivals: units land when their nodes reply, in the order of the wall clock.

A scheme that does not wait for all units decides by the arrivals that it sees. On nodes these are
real ones, and seconds are those of the wall clock since the run began; joules are charged as in a
simulation. Each round's record holds its arrivals in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from camu.learning.job import Job, Trained
from camu.learning.weights import Weights
from camu.planning.costs import Costs
from camu.schemes.contract import Arrival, Scheme, View, waits_for_all
from camu.schemes.mean import MeanUpdate
from camu.simulation.channel import Clock
from camu.simulation.delivery import Received
from camu.simulation.faults import Attendance
from camu.simulation.history import Record
from camu.simulation.loop import Loop
from camu.simulation.run import Flight, OnNodes, Run, Trainer


@runtime_checkable
class Live(OnNodes, Protocol):
    """A trainer that can send units away and hand over their results as they come."""

    def send(
        self,
        units: Sequence[int],
        starts: Sequence[Weights],
        jobs: Sequence[Job],
        round_number: int,
    ) -> Sequence[bool]:
        """Send each unit its job; whether each of them was sent."""
        ...

    def next_reply(self, seconds: float | None) -> tuple[int, Trained | None] | None:
        """The unit that comes next with its result, or None in its place if there is none.

        None if no unit comes within these seconds. With None as seconds, it waits for a unit.
        """
        ...


def on_real_arrivals(scheme: Scheme, trainer: Trainer) -> bool:
    """Whether a run waits for real arrivals: the scheme does not wait for all, on nodes."""
    return isinstance(trainer, Live) and not waits_for_all(scheme)


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


class LiveLoop(Loop):
    """The loop of a scheme that does not wait for all units, on nodes."""

    def __init__(self, run: Run, scheme: Scheme, trainer: Trainer) -> None:
        super().__init__(run, scheme, trainer)
        assert isinstance(trainer, Live)
        self.live: Live = trainer
        self.clock = WallClock(now_seconds=run.clock.now_seconds, read=trainer.wall_seconds)
        run.clock = self.clock
        self.deliver: dict[int, Callable[[Trained], Received]] = {}
        self.launch_seconds = run.clock.now_seconds
        # What was on its way when the server stopped does not come back; its units start again.
        self.arrivals = [self.event(flight, "silent") for flight in run.flights.values()]
        run.flights.clear()

    def train(
        self,
        view: View,
        attendance: Attendance,
        costs: Costs,
        counts: dict[str, int],
        mean: MeanUpdate | None,
    ) -> None:
        """Send the units of a round to their nodes."""
        run, numbers = self.run, list(attendance.units)
        go = self.prepare(view, attendance, costs)
        jobs = [self.job(view, number, attendance.units[number]) for number in numbers]
        sent = self.live.send(numbers, go.starts, jobs, run.round)
        self.launch_seconds = self.clock.update()
        for index, number in enumerate(numbers):
            if not sent[index]:
                continue
            self.deliver[number] = partial(go.delivery, index)
            run.flights[number] = Flight(
                unit=number,
                round=run.round,
                started_seconds=self.launch_seconds,
                busy_seconds=0.0,
                loss=math.nan,
                lost=False,
                fault=None,
                update=None,
                buffers=None,
                start=go.starts[index],
            )
        self.charge(attendance.units, costs, np.array(sent, dtype=bool))

    def next_flight(self, deadline: float | None, counts: dict[str, int]) -> Flight | None:
        """The flight whose node replies next, with its update as the server receives it."""
        limit = None if deadline is None else max(0.0, deadline - self.clock.update())
        reply = self.live.next_reply(limit)
        now = self.clock.update()
        if reply is None:
            return None
        number, trained = reply
        flight = self.run.flights.pop(number)
        deliver = self.deliver.pop(number)
        busy = now - flight.started_seconds
        if trained is None:
            self.arrivals.append(self.event(flight, "silent"))
            return replace(flight, busy_seconds=busy)
        received = deliver(trained)
        if received.lost:
            counts[received.lost] += 1
        self.keep_memory(self.run.plan.units[number].leader, received)
        landed = replace(
            flight,
            busy_seconds=busy,
            loss=received.loss,
            lost=bool(received.lost),
            fault=received.fault,
            update=received.update,
            buffers=received.buffers,
            trained=received.trained,
        )
        outcome = "lost" if received.lost else "refused" if received.fault else "used"
        self.arrivals.append(self.event(landed, outcome))
        return landed

    def wait(self, counts: dict[str, int]) -> tuple[list[Arrival], tuple[float, ...]]:
        """Collect real arrivals; faults of nodes that are seen meanwhile belong to this round."""
        result = super().wait(counts)
        for kind, number in self.trainer.take_faults().items():
            counts[kind] += number
        return result

    def record(self, used: int, counts: dict[str, int], waiting: tuple[float, ...]) -> Record:
        """The record of a round, with its arrivals."""
        plain = super().record(used, counts, waiting)
        found = replace(plain, launch_seconds=self.launch_seconds, arrivals=tuple(self.arrivals))
        self.run.records[-1] = found
        self.arrivals = []
        return found

    def event(self, flight: Flight, outcome: str) -> dict[str, Any]:
        """An arrival as the record keeps it."""
        run = self.run
        return {
            "unit": flight.unit,
            "seconds": run.clock.now_seconds,
            "staleness": run.round - flight.round,
            "weight": run.plan.units[flight.unit].weight,
            "outcome": outcome,
        }
