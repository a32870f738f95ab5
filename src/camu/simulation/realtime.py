"""Rounds on real arrivals: updates arrive when nodes reply, in the order of the wall clock.

A scheme that does not wait for all units decides by the arrivals that it sees. On nodes these are
real ones, and seconds are those of the wall clock since the run began; joules are charged as in a
simulation. Each round's record holds its arrivals in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from camu.learning.job import Job, Trained
from camu.learning.weights import Weights
from camu.planning.costs import Costs
from camu.schemes.contract import Scheme, waits_for_all
from camu.schemes.view import View
from camu.simulation.attendance import Attendance
from camu.simulation.clock import WallClock
from camu.simulation.history import Record
from camu.simulation.loop import Loop
from camu.simulation.run import OnNodes, Run, Trainer, Update


@runtime_checkable
class RealtimeTrainer(OnNodes, Protocol):
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
    return isinstance(trainer, RealtimeTrainer) and not waits_for_all(scheme)


class RealtimeLoop(Loop):
    """The loop of a scheme that does not wait for all units, on nodes."""

    def __init__(self, run: Run, scheme: Scheme, trainer: Trainer) -> None:
        super().__init__(run, scheme, trainer)
        assert isinstance(trainer, RealtimeTrainer)
        self.sender: RealtimeTrainer = trainer
        self.clock = WallClock(now_seconds=run.clock.now_seconds, read=trainer.wall_seconds)
        run.clock = self.clock
        # By unit: the run at its start, and the function that receives its result.
        self.receivers: dict[int, tuple[View, Callable[[Trained], Update]]] = {}
        self.launch_seconds = run.clock.now_seconds
        # What was on its way when the server stopped does not come back; its units start again.
        self.arrivals = [self.event(update, "silent") for update in run.in_flight.values()]
        run.in_flight.clear()

    def train(self, view: View, attendance: Attendance, costs: Costs) -> None:
        """Send the units of a round to their nodes."""
        run, numbers = self.run, list(attendance.units)
        delivery = self.prepare(view, attendance, costs)
        starts = [delivery.start_of(index) for index in range(len(numbers))]
        jobs = [self.job(view, number, unit) for number, unit in attendance.units.items()]
        sent = self.sender.send(numbers, starts, jobs, run.round)
        self.launch_seconds = self.clock.update()
        for index, update in enumerate(delivery.updates):
            if sent[index]:
                update.start, update.started_seconds = starts[index], self.launch_seconds
                self.receivers[update.unit] = view, partial(delivery, index)
                run.in_flight[update.unit] = update
        self.charges.book(attendance.units, costs, np.array(sent, dtype=bool))

    def next_update(self, deadline: float | None) -> Update | None:
        """The update of the node that replies next, as the server receives it."""
        limit = None if deadline is None else max(0.0, deadline - self.clock.update())
        reply = self.sender.next_reply(limit)
        now = self.clock.update()
        if reply is None:
            return None
        number, trained = reply
        update = self.run.in_flight.pop(number)
        update.busy_seconds = now - update.started_seconds
        view, receive = self.receivers.pop(number)
        if trained is None:
            update.lost = outcome = "silent"
        else:
            self.receive(view, receive(trained))
            outcome = "lost" if update.lost else "refused" if update.fault else "used"
        self.arrivals.append(self.event(update, outcome))
        return update

    def record(self, used: int, waiting: tuple[float, ...]) -> Record:
        """The record of a round, with its arrivals."""
        plain = super().record(used, waiting)
        found = replace(plain, launch_seconds=self.launch_seconds, arrivals=tuple(self.arrivals))
        self.run.records[-1] = found
        self.arrivals = []
        return found

    def event(self, update: Update, outcome: str) -> dict[str, Any]:
        """An arrival as the record keeps it."""
        run = self.run
        return {
            "unit": update.unit,
            "seconds": run.clock.now_seconds,
            "staleness": run.round - update.round,
            "weight": run.plan.units[update.unit].weight,
            "outcome": outcome,
        }
