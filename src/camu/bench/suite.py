"""All measurements by name, and how fast the engine trains and evaluates.

The engine, two loops and large matrix products take turns in one process, within seconds of each
other and repeatedly, so that whatever else the machine does hits all of them; figures are medians
over the repetitions.
"""

from __future__ import annotations

import copy
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from camu.arrays import Float64
from camu.bench.loops import PlainLoop, TunedLoop
from camu.bench.runs import (
    STUDY_ROUNDS,
    TimedEngine,
    in_own_process,
    peak_megabytes,
    reset_peak_memory,
    time_growth,
    time_run,
)
from camu.bench.workloads import EVALUATION, IMAGE, LEARNING_RATE, SEED, WORKLOADS, Workload
from camu.errors import InputError, suggest
from camu.learning.job import Job
from camu.learning.pool import available_cores
from camu.learning.weights import weighted_mean

MEASUREMENTS = (*WORKLOADS, "evaluation", "run", "growth")
GROWTH_DEVICES = (1_000, 10_000, 100_000)
UNITS_PER_ROUND = 1_000
# A slow or busy machine gets fewer repetitions, so that the bench ends in minutes.
WORKLOAD_SECONDS = 25.0
Say = Callable[[str], None]


def run_bench(
    workloads: Sequence[str] = MEASUREMENTS,
    *,
    repetitions: int = 5,
    workers: int = 0,
    quick: bool = False,
    progress: Say = lambda text: None,
) -> dict[str, Any]:
    """Measure what is named; ``quick`` shrinks everything to a few seconds for a first look.

    Training and evaluation are below the key "workloads", whole runs below "run" and "growth".
    """
    for name in workloads:
        if name not in MEASUREMENTS:
            raise InputError(
                f"workload: {name!r} is unknown{suggest(name, MEASUREMENTS)}; there are "
                f"{', '.join(MEASUREMENTS)}."
            )
    report: dict[str, Any] = {"machine": _machine(workers, quick), "workloads": {}}
    # These first: a process starts more slowly from one that has used much memory.
    if "run" in workloads:
        progress("run: camu run --preset study, from its start to its report")
        sizes = (5, 150) if quick else (STUDY_ROUNDS, 1500)
        report["run"] = in_own_process(time_run, *sizes, workers)
    if "growth" in workloads:
        report["growth"] = []
        for devices in (200,) if quick else GROWTH_DEVICES:
            progress(f"growth: {devices} devices")
            units = 50 if quick else UNITS_PER_ROUND
            report["growth"].append(in_own_process(time_growth, devices, units, workers))
    known = {**WORKLOADS, "evaluation": EVALUATION}
    if chosen := {name: known[name] for name in known if name in workloads}:
        progress("starting the processes of the tuned loop")
        count = min(repetitions, 2) if quick else repetitions
        with TunedLoop(workers) as tuned:
            for name, workload in chosen.items():
                asked = workload.shrunk() if quick else workload
                report["workloads"][name] = measure(name, asked, tuned, count, workers, progress)
    return report


def _machine(workers: int, quick: bool) -> dict[str, Any]:
    """What the figures depend on; the load is that of the minute before the measurement."""
    with make_engine(WORKLOADS["W1"].shrunk(), workers) as engine:
        kernel = engine.kernel
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": available_cores(),
        "workers": workers or available_cores(),
        "kernel": kernel,
        "torch": torch.__version__,
        "plain_threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "quick": quick,
    }


def measure(
    name: str, workload: Workload, tuned: TunedLoop, repetitions: int, workers: int, say: Say
) -> dict[str, Any]:
    """The figures of a training workload, or of `evaluation`: a model on the test samples."""
    evaluates = name == "evaluation"
    tuned.use(workload)
    turns, peak_mb = [], 0.0
    with make_engine(workload, workers) as engine:
        jobs, plain = workload.jobs(), PlainLoop(workload)
        for repetition in _repetitions(name, repetitions, say):
            if evaluates:
                loops = [loop.evaluate(engine.initial)[0] for loop in (plain, tuned)]
            else:
                loops = [
                    loop.round(workload.some(few, repetition), repetition, engine.initial)[0]
                    * (workload.devices / few)
                    for loop, few in (
                        (plain, workload.plain_devices),
                        (tuned, workload.tuned_devices),
                    )
                ]
            gflops = sgemm_gflops()
            engine.reset()
            reset_peak_memory()
            if evaluates:
                engine.evaluate(engine.initial)
                seconds = engine.evaluation_seconds
            else:
                seconds = engine_round(engine, jobs, repetition)
            peak_mb = max(peak_mb, peak_megabytes())
            if repetition:  # the first round warms up all sides
                outside = engine.outside_fraction(seconds)
                turns.append((seconds, *loops, gflops, outside))
        kernel = engine.kernel
    samples = workload.test_samples if evaluates else workload.trained_samples
    flops = samples * flops_per_sample(workload.build_model(), backward=not evaluates)
    fast, slow, middle, gflops_then, outside_then = np.array(turns).T
    figures: dict[str, Any] = {
        "ratio_to_plain": _median(slow / fast, 3),  # above 1: the engine is faster
        "ratio_to_tuned": _median(middle / fast, 3),
        "samples_per_second": round(samples / float(np.median(fast)), 1),
        "roofline_fraction": _median(flops / fast / (gflops_then * 1e9), 4),
        "sgemm_gflops": _median(gflops_then, 1),
        "repetitions": len(turns),
    }
    if not evaluates:
        figures["rounds_per_second"] = round(1 / float(np.median(fast)), 4)
        figures["overhead_fraction"] = _median(outside_then, 4)
    return {**figures, "peak_mb": round(peak_mb, 1), "kernel": kernel}


def _median(values: Float64, digits: int) -> float:
    return round(float(np.median(values)), digits)


def _repetitions(name: str, count: int, say: Say) -> Iterator[int]:
    """Number 0, which warms up, and then up to `count` more; at least two, if time runs out."""
    begin = time.perf_counter()
    for number in range(count + 1):
        if number > 2 and time.perf_counter() - begin > WORKLOAD_SECONDS:
            return
        say(f"{name}: repetition {number} of {count}")
        yield number


def make_engine(workload: Workload, workers: int) -> TimedEngine:
    """An engine with the workload's data."""
    train, test = workload.samples()
    return TimedEngine(
        workload.build_model(),
        *train,
        workload.device_indices(),
        *test,
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


def flops_per_sample(model: nn.Module, backward: bool = True) -> float:
    """Multiplications and additions that a model asks for, per sample, as torch counts them."""
    samples = 2  # batch norm needs more than one
    module = copy.deepcopy(model).train()
    with FlopCounterMode(display=False) as counter:
        logits = module(torch.zeros(samples, 1, *IMAGE))
        if backward:
            F.cross_entropy(logits, torch.zeros(samples, dtype=torch.int64)).backward()  # type: ignore[no-untyped-call]
    return float(counter.get_total_flops()) / samples


def sgemm_gflops(size: int = 1024, repetitions: int = 5) -> float:
    """The speed of a large float32 matrix product with all cores of this machine."""
    left, right = torch.ones(size, size), torch.ones(size, size)
    threads = torch.get_num_threads()
    torch.set_num_threads(available_cores())
    best = float("inf")
    for _ in range(repetitions):
        begin = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - begin)
    torch.set_num_threads(threads)
    return 2 * size**3 / best / 1e9
