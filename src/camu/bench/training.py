"""How fast the engine trains and evaluates: against two loops, and against matrix products.

The engine, the loops and the matrix products take turns in one process, within seconds of each
other and repeatedly, so that whatever else the machine does hits all of them; figures are medians
over the repetitions.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from camu.bench.gauges import PeakMemory, TimedEngine
from camu.bench.loops import PlainLoop, TunedLoop
from camu.bench.roofline import flops_per_sample, sgemm_gflops
from camu.bench.workloads import LEARNING_RATE, SEED, Workload
from camu.learning.job import Job
from camu.learning.weights import weighted_mean

Say = Callable[[str], None]

# A slow or busy machine gets fewer repetitions, so that the bench ends in minutes.
WORKLOAD_SECONDS = 25.0


@dataclass(frozen=True)
class Turn:
    """The seconds that each side took in one repetition, and the speed of matrix products then."""

    engine: float
    plain: float
    tuned: float
    gflops: float


def measure_training(
    name: str, workload: Workload, tuned: TunedLoop, repetitions: int, workers: int, say: Say
) -> dict[str, Any]:
    """The figures of one training workload."""
    tuned.use(workload)
    turns, outside, peak_mb = [], [], 0.0
    with make_engine(workload, workers) as engine:
        jobs = workload.jobs()
        train, test = workload.train_samples(), workload.held_out_samples()
        plain = PlainLoop(workload, engine.initial, train, test)
        some, more = workload.plain_devices, workload.tuned_devices
        for repetition in _repetitions(name, repetitions, say):
            slow = plain.round(workload.some(some, repetition), repetition)
            devices = workload.some(more, repetition)
            tuned_seconds, _ = tuned.round(devices, repetition, engine.initial)
            gflops = sgemm_gflops()
            engine.reset()
            with PeakMemory() as memory:
                fast = engine_round(engine, jobs, repetition)
            peak_mb = max(peak_mb, memory.megabytes)
            if repetition:  # the first round warms up all sides
                whole = workload.devices
                turns.append(Turn(fast, slow * whole / some, tuned_seconds * whole / more, gflops))
                outside.append(engine.outside_fraction(fast))
        kernel = engine.kernel
    seconds = statistics.median(turn.engine for turn in turns)
    return {
        **_figures(turns, workload.trained_samples, flops_per_sample(workload.build_model())),
        "rounds_per_second": round(1 / seconds, 4),
        "overhead_fraction": round(statistics.median(outside), 4),
        "peak_mb": round(peak_mb, 1),
        "kernel": kernel,
    }


def measure_evaluation(
    workload: Workload, tuned: TunedLoop, repetitions: int, workers: int, say: Say
) -> dict[str, Any]:
    """The figures of evaluating a model on the test samples."""
    tuned.use(workload)
    turns, peak_mb = [], 0.0
    with make_engine(workload, workers) as engine:
        train, test = workload.train_samples(), workload.held_out_samples()
        plain = PlainLoop(workload, engine.initial, train, test)
        for repetition in _repetitions("evaluation", repetitions, say):
            slow, _, _ = plain.evaluate()
            tuned_seconds, _, _ = tuned.evaluate(engine.initial)
            gflops = sgemm_gflops()
            engine.reset()
            with PeakMemory() as memory:
                engine.evaluate(engine.initial)
            peak_mb = max(peak_mb, memory.megabytes)
            if repetition:
                turns.append(Turn(engine.evaluation_seconds, slow, tuned_seconds, gflops))
        kernel = engine.kernel
    flops = flops_per_sample(workload.build_model(), backward=False)
    return {
        **_figures(turns, workload.test_samples, flops),
        "peak_mb": round(peak_mb, 1),
        "kernel": kernel,
    }


def _repetitions(name: str, count: int, say: Say) -> Iterator[int]:
    """Number 0, which warms up, and then up to `count` more; at least two, if time runs out."""
    begin = time.perf_counter()
    for number in range(count + 1):
        if number > 2 and time.perf_counter() - begin > WORKLOAD_SECONDS:
            return
        say(f"{name}: repetition {number} of {count}")
        yield number


def _figures(turns: Sequence[Turn], samples: int, flops: float) -> dict[str, float]:
    """Medians over the repetitions; a ratio above 1 says that the engine is faster."""
    seconds = statistics.median(turn.engine for turn in turns)
    roofline = [samples * flops / turn.engine / (turn.gflops * 1e9) for turn in turns]
    return {
        "ratio_to_plain": round(statistics.median(t.plain / t.engine for t in turns), 3),
        "ratio_to_tuned": round(statistics.median(t.tuned / t.engine for t in turns), 3),
        "samples_per_second": round(samples / seconds, 1),
        "roofline_fraction": round(statistics.median(roofline), 4),
        "sgemm_gflops": round(statistics.median(turn.gflops for turn in turns), 1),
        "repetitions": len(turns),
    }


def make_engine(workload: Workload, workers: int) -> TimedEngine:
    """An engine with the workload's data."""
    return TimedEngine(
        workload.build_model(),
        *workload.train_samples(),
        workload.device_indices(),
        *workload.held_out_samples(),
        learning_rate=LEARNING_RATE,
        batch=workload.batch,
        local_update=workload.local_update,
        seed=SEED,
        workers=workers,
    )


def engine_round(engine: TimedEngine, jobs: Sequence[Job], round_number: int) -> float:
    """The seconds of one round: train all units and average them as they come."""
    begin = time.perf_counter()
    units = engine.iterate(engine.initial, jobs, round_number)
    weighted_mean((1.0, trained.weights) for trained in units)
    return time.perf_counter() - begin
