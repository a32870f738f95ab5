"""A simulation in which updates arrive as they did on nodes."""

from __future__ import annotations

from collections.abc import Sequence

from camu.config import Config
from camu.schemes import make_scheme, plans
from camu.simulation import Callback, History, Record, Run
from camu.simulation.clock import Clock
from camu.simulation.result import build_engine, run_rounds
from camu.world import build_world


class ReplayClock(Clock, Callback):
    """Gives the arrivals that the records of a deployed run hold, at their times."""

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__(in_turn=False)
        self.rounds = list(records[1:])
        self.left = list(self.rounds[0].arrivals)

    def start(
        self, unit: int, ready_seconds: float, uplink_seconds: float, queue: object = None
    ) -> None:
        launched = self.rounds[0].launch_seconds
        assert launched is not None
        self.now_seconds = launched

    def next_arrival(self, deadline_seconds: float | None = None) -> int | None:
        if not self.left:
            self.now_seconds = self.rounds[0].virtual_seconds
            return None
        arrival = self.left.pop(0)
        self.now_seconds = arrival["seconds"]
        return int(arrival["unit"])

    def on_round(self, run: Run, record: Record) -> None:
        assert not self.left  # the scheme was ready at the same arrival
        self.rounds.pop(0)
        self.left = list(self.rounds[0].arrivals) if self.rounds else []


def replay(config: Config, records: Sequence[Record]) -> History:
    """The history of a simulation with these arrivals."""
    world, scheme = build_world(config), make_scheme(config)
    with build_engine(world) as engine:
        run = Run.new(world, plans.plan(scheme, world), engine.initial)
        run.clock = clock = ReplayClock(records)
        run_rounds(run, scheme, engine, [clock])
    return run.history()
