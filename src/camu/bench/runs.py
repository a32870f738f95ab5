"""Whole runs, each in a process of its own: where their time goes, and how it grows with the fleet.

Training counts as the processor seconds that workers spend inside training kernels, divided by the
number of workers. Everything else is outside: batches, the loop, the channel, the ledger,
checkpoints, the history, evaluation, workers that wait, and before and after the rounds the start
of the process, the world, the plan and the report.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu.bench.workloads import MADE_UP_MNIST
from camu.config import Config, load_config
from camu.errors import CamuError
from camu.learning.engine import Engine
from camu.learning.job import Evaluation, Trained
from camu.learning.weights import Weights
from camu.schemes import FedSgd, make_scheme, plans
from camu.schemes.view import State, View
from camu.simulation.directory import RunDirectory, keep_in_directory
from camu.simulation.history import History, Record
from camu.simulation.result import run_rounds, samples_of
from camu.simulation.run import Callback, Run
from camu.work import end_with_parent
from camu.world import build_world

STUDY_ROUNDS = 150  # of the preset study, to which a shorter run is extrapolated
DEVICE_SAMPLES = 60  # of which a batch takes a fifth
GROWTH_ROUNDS = 3
Figures = dict[str, Any]


class TimedEngine(Engine):
    """An engine that adds up the processor seconds of its training kernels, and its evaluations."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._lock = threading.Lock()
        self.reset()
        super().__init__(*arguments, **settings)

    def reset(self) -> None:
        """Start to count from zero."""
        self.job_seconds = self.evaluation_seconds = 0.0

    def train_on(self, *arguments: Any) -> list[Trained]:
        """Train some jobs on a worker, and note how long its processor core works on them."""
        begin = time.thread_time()
        trained = super().train_on(*arguments)
        seconds = time.thread_time() - begin
        with self._lock:
            self.job_seconds += seconds
        return trained

    def evaluate(self, weights: Weights) -> Evaluation:
        """Accuracy and loss, and note how long it takes."""
        begin = time.perf_counter()
        result = super().evaluate(weights)
        self.evaluation_seconds += time.perf_counter() - begin
        return result

    def outside_fraction(self, wall_seconds: float) -> float:
        """The part of the workers' time that they did not compute inside training kernels."""
        return max(0.0, 1 - self.job_seconds / (self.workers * wall_seconds))


def reset_peak_memory() -> None:
    """Let the highest resident memory count from now on; only Linux can."""
    gc.collect()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float:
    """The highest resident memory of this process since it began, or since it was reset."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text()):
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
        now, before = time.perf_counter(), self.training_seconds
        self.training_seconds = self.engine.job_seconds / self.engine.workers
        self.round_seconds.append(now - self.last)
        inside = (self.training_seconds - before) / (now - self.last)
        self.outside.append(max(0.0, 1 - inside))
        self.last = now
        if len(self.round_seconds) == self.stop_after:
            run.stop("measured")

    def on_end(self, run: Run, history: History) -> None:
        self.seconds = time.perf_counter() - self.begin  # with the last checkpoint


def time_run(launched: float, rounds: int, samples_per_device: int, workers: int) -> Figures:
    """The figures of `camu run --preset study` with fewer rounds, on made-up images."""
    watch = _Stopwatch(launched)
    config = load_config(
        preset="study",
        overrides={
            "data.dataset": MADE_UP_MNIST,
            "data.samples_per_device": samples_per_device,
            "run.rounds": rounds,
            "machine.workers": workers,
        },
    )
    world = build_world(config)
    watch.lap("world")
    scheme = make_scheme(config)
    plan = plans.plan(scheme, world)
    watch.lap("plan")
    timed = TimedEngine.from_config(config, *samples_of(world))
    with tempfile.TemporaryDirectory(prefix="camu-bench-") as name, timed as engine:
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
    """The seconds between laps, by name; the first is the start of the process."""

    def __init__(self, launched: float) -> None:
        self.parts = {"start": time.time() - launched}
        self.last = time.perf_counter()

    def lap(self, name: str, without: float = 0.0) -> None:
        now = time.perf_counter()
        self.parts[name] = now - self.last - without
        self.last = now


@dataclass(frozen=True)
class _SomeDevices(FedSgd):
    """FedSGD in which a fixed number of devices takes part in each round."""

    name = "some-devices"
    count: int = 1

    def select(self, view: View, state: State) -> list[int]:
        chosen = view.random().numpy().choice(len(view.plan.units), self.count, replace=False)
        return [int(unit) for unit in chosen]


def time_growth(launched: float, devices: int, units_per_round: int, workers: int) -> Figures:
    """The figures of rounds in which some devices train, each a unit of its own."""
    config = _growth_config(devices, workers)
    watch = _Stopwatch(launched)
    world = build_world(config)
    watch.lap("world")
    scheme = _SomeDevices(count=min(devices, units_per_round))
    plan = plans.plan(scheme, world)
    watch.lap("plan")
    with TimedEngine.from_config(config, *samples_of(world)) as engine:
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
            "machine.workers": workers,
        },
    )


def in_own_process(work: Callable[..., Figures], *arguments: int) -> Figures:
    """Call a function in a new process, with the time at which it was launched first."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, end_with_parent, (os.getpid(),)) as pool:
        try:
            return pool.submit(work, time.time(), *arguments).result()
        except BrokenProcessPool:
            raise CamuError("the process of a measurement was killed") from None
