"""Rounds on real arrivals, with an engine in place of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from camu.learning.engine import Engine
from camu.learning.job import Job, Trained
from camu.learning.weights import Weights
from camu.planning.codecs import Sparse
from camu.schemes import FedAvg, State, View, plans
from camu.simulation import Run
from camu.simulation.realtime import RealtimeLoop, on_real_arrivals
from camu.simulation.result import build_engine
from camu.world import build_world
from helpers.configs import small


class Nodes:
    """Nodes that reply in order, a second apart; unit 3 is silent from the second round on."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.seconds = engine, 0.0
        self.oracle, self.fault_kinds, self.initial = None, (), engine.initial
        self.evaluate, self.provenance, self.iterate = (
            engine.evaluate,
            engine.provenance,
            engine.iterate,
        )
        self.replies: list[tuple[int, Trained | None]] = []

    def take_faults(self) -> dict[str, int]:
        return {}

    def wall_seconds(self) -> float:
        return self.seconds

    def take_nodes(self) -> dict[str, object]:
        return {}

    def send(
        self,
        units: Sequence[int],
        starts: Sequence[Weights],
        jobs: Sequence[Job],
        round_number: int,
    ) -> list[bool]:
        results = self.engine.iterate(starts, jobs, round_number)
        for unit, trained in zip(units, results, strict=True):
            silent = unit == 3 and round_number > 0
            kept = Trained(trained.weights.copied(), trained.loss)
            self.replies.append((unit, None if silent else kept))
        return [True] * len(units)

    def next_reply(self, seconds: float | None) -> tuple[int, Trained | None] | None:
        self.seconds += 1.0
        return self.replies.pop(0) if self.replies else None


class Keeping(FedAvg):
    """Aggregates when all replies are there; every unit keeps its last change."""

    def ready(self, view: View, state: State) -> bool:
        return not view.in_flight

    def keep(
        self, view: View, state: State, unit: int, change: np.ndarray, kept: np.ndarray | None
    ) -> np.ndarray:
        return change


def test_a_silent_unit_keeps_what_it_had() -> None:
    world = build_world(small())
    scheme = Keeping()
    plan = plans.plan(scheme, world)
    plan = replace(plan, units=tuple(replace(unit, codec=Sparse(0.2)) for unit in plan.units))
    with build_engine(world) as engine:
        nodes = Nodes(engine)
        assert on_real_arrivals(scheme, nodes)
        run = Run.new(world, plan, engine.initial)
        loop = RealtimeLoop(run, scheme, nodes)
        loop.begin()
        rounds = [loop.round() for _ in range(4)]
    outcomes = [event["outcome"] for one in rounds for event in one.arrivals if event["unit"] == 3]
    assert outcomes == ["used", "silent", "silent", "silent"]
    assert set(run.kept) == set(run.memory) == set(range(20))
    assert rounds[-1].virtual_seconds == nodes.seconds
    assert all(one.units == sum(e["outcome"] == "used" for e in one.arrivals) for one in rounds)
