"""Whole runs, each in a process of its own: where their time goes, and how it grows with the fleet.

Training counts as the processor seconds that workers spend inside training kernels, divided by the
number of workers. Everything else is outside: batches, the loop, the channel, the ledger,
checkpoints, the history, evaluation, workers that wait, and before and after the rounds the start
of the process, the world, the plan and the report.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

from camu.bench.gauges import TimedEngine, peak_megabytes
from camu.bench.workloads import MADE_UP_MNIST
from camu.config import Config, load_config
from camu.errors import CamuError
from camu.schemes import FedAvg, make_scheme
from camu.schemes.contract import State, View
from camu.schemes.registry import plan_for
from camu.simulation.directory import RunDirectory, keep_in_directory
from camu.simulation.history import History, Record
from camu.simulation.rounds import run_rounds
from camu.simulation.run import Callback, Run
from camu.work import end_with_parent
from camu.world import World, build_world

STUDY_ROUNDS = 150  # of the preset study, to which a shorter run is extrapolated
DEVICE_SAMPLES = 60  # of which a batch takes a fifth
GROWTH_ROUNDS = 3


def measure_run(rounds: int, samples_per_device: int, workers: int) -> dict[str, Any]:
    """The figures of `camu run --preset study` with fewer rounds, on made-up images."""
    return _in_own_process(_time_run, rounds, samples_per_device, workers)


def measure_growth(devices: int, units_per_round: int, workers: int) -> dict[str, Any]:
    """The figures of rounds in which some devices train, each a unit of its own."""
    return _in_own_process(_time_growth, devices, units_per_round, workers)


class _RoundClock(Callback):
    """Notes when the rounds begin and end, and how long each of them takes."""

    def __init__(self, engine: TimedEngine, stop_after: int | None = None) -> None:
        self.engine, self.stop_after = engine, stop_after
        self.round_seconds: list[float] = []
        self.outside: list[float] = []

    def on_start(self, run: Run) -> None:
        self.engine.reset()
        self.begin = self.last = time.perf_counter()
        self.training_seconds = 0.0

    def on_round(self, run: Run, record: Record) -> None:
        now = time.perf_counter()
        before = self.training_seconds
        self.training_seconds = self.engine.job_seconds / self.engine.workers
        wall = now - self.last
        self.round_seconds.append(wall)
        self.outside.append(max(0.0, 1 - (self.training_seconds - before) / wall))
        self.last = now
        if len(self.round_seconds) == self.stop_after:
            run.stop("measured")

    def on_end(self, run: Run, history: History) -> None:
        self.seconds = time.perf_counter() - self.begin  # with the last checkpoint


def _time_run(launched: float, rounds: int, samples_per_device: int, workers: int) -> Any:
    watch = _Stopwatch(time.time() - launched)
    config = load_config(
        preset="study",
        overrides={
            "data.dataset": MADE_UP_MNIST,
            "data.samples_per_device": samples_per_device,
            "run.rounds": rounds,
            "run.workers": workers,
        },
    )
    world = build_world(config)
    watch.lap("world")
    scheme = make_scheme(config)
    plan = plan_for(scheme, world)
    watch.lap("plan")
    with tempfile.TemporaryDirectory(prefix="camu-bench-") as name, _engine(world) as engine:
        watch.lap("engine")
        directory = RunDirectory(Path(name) / "run")
        clock = _RoundClock(engine)
        keep_in_directory(world, plan, scheme, engine, directory, [clock])
        watch.lap("first evaluation and last files", without=clock.seconds)
        from camu.report.writing import write_report  # as late as `camu run` imports it

        write_report([directory.path])
        watch.lap("report")
    fixed, scale = sum(watch.parts.values()), STUDY_ROUNDS / rounds
    whole = fixed + scale * clock.seconds
    return {
        "rounds": rounds,
        "round_seconds": round(clock.seconds / rounds, 5),
        "outside_training_fraction": round(1 - clock.training_seconds / clock.seconds, 4),
        "outside_training_fraction_150_rounds": round(
            1 - scale * clock.training_seconds / whole, 4
        ),
        "seconds_150_rounds": round(whole, 2),
        "evaluation_seconds": round(engine.evaluation_seconds, 3),
        "fixed_seconds": {part: round(seconds, 3) for part, seconds in watch.parts.items()},
        "peak_mb": round(peak_megabytes(), 1),
        "kernel": engine.kernel,
    }


class _Stopwatch:
    """The seconds between laps, by name."""

    def __init__(self, start_seconds: float) -> None:
        self.parts = {"start": start_seconds}
        self.last = time.perf_counter()

    def lap(self, name: str, without: float = 0.0) -> None:
        now = time.perf_counter()
        self.parts[name] = now - self.last - without
        self.last = now


@dataclass(frozen=True)
class _SomeDevices(FedAvg):
    """FedAvg in which a fixed number of devices takes part in each round."""

    name: ClassVar[str] = "some-devices"
    count: int = 1

    def select(self, view: View, state: State) -> list[int]:
        chosen = view.random().numpy().choice(len(view.plan.units), self.count, replace=False)
        return [int(unit) for unit in chosen]


def _time_growth(launched: float, devices: int, units_per_round: int, workers: int) -> Any:
    config = _growth_config(devices, workers)
    watch = _Stopwatch(time.time() - launched)
    world = build_world(config)
    watch.lap("world")
    scheme = _SomeDevices(count=min(devices, units_per_round))
    plan = plan_for(scheme, world)
    watch.lap("plan")
    with _engine(world) as engine:
        clock = _RoundClock(engine, stop_after=GROWTH_ROUNDS)
        run_rounds(Run.new(world, plan, engine.initial), scheme, engine, [clock])
    return {
        "devices": devices,
        "units_per_round": scheme.count,
        "world_seconds": round(watch.parts["world"], 3),
        "plan_seconds": round(watch.parts["plan"], 3),
        "round_seconds": round(statistics.median(clock.round_seconds[1:]), 4),
        "outside_training_fraction": round(statistics.median(clock.outside[1:]), 4),
        "peak_mb": round(peak_megabytes(), 1),
        "kernel": engine.kernel,
    }


def _growth_config(devices: int, workers: int) -> Config:
    """A fleet in one square, with as much room per device as in the paper."""
    side = 10.0 * (devices / 15) ** 0.5
    region = {"name": "square", "devices": devices, "x": [0.0, side], "y": [0.0, side]}
    return load_config(
        preset="study",
        overrides={
            "data.dataset": MADE_UP_MNIST,
            "data.samples_per_device": DEVICE_SAMPLES,
            "data.noniid_devices": None,
            "data.with_replacement": True,
            "fleet.regions": [region],
            "run.eval_every": STUDY_ROUNDS,  # evaluation is measured apart
            "run.workers": workers,
        },
    )


def _engine(world: World) -> TimedEngine:
    assert world.federation is not None
    data = world.federation.dataset
    train, test = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    engine = TimedEngine.from_config(world.config, train, world.federation.indices, test)
    assert isinstance(engine, TimedEngine)
    return engine


def _in_own_process(work: Callable[..., Any], *arguments: int) -> dict[str, Any]:
    """Call a function in a new process, which starts with the time at which it was launched."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_answer, args=(theirs, os.getpid(), work, time.time(), *arguments), daemon=True
    )
    process.start()
    theirs.close()
    try:
        answer: dict[str, Any] = mine.recv()
    except EOFError:
        raise CamuError("the process of a measurement ended early; see its message above") from None
    finally:
        process.join()
    return answer


def _answer(connection: Connection, parent: int, work: Callable[..., Any], *arguments: Any) -> None:
    end_with_parent(parent)
    connection.send(work(*arguments))
