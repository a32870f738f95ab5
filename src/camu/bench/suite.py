"""All measurements, by name."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

import torch

from camu.bench.loops import TunedLoop
from camu.bench.runs import STUDY_ROUNDS, measure_growth, measure_run
from camu.bench.training import Say, make_engine, measure_evaluation, measure_training
from camu.bench.workloads import EVALUATION, WORKLOADS
from camu.errors import InputError, suggest
from camu.learning.pool import available_cores

MEASUREMENTS = (*WORKLOADS, "evaluation", "run", "growth")
GROWTH_DEVICES = (1_000, 10_000, 100_000)
UNITS_PER_ROUND = 1_000


def run_bench(
    workloads: Sequence[str] = MEASUREMENTS,
    *,
    repetitions: int = 5,
    workers: int = 0,
    quick: bool = False,
    progress: Say | None = None,
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
    say = progress or (lambda _: None)
    count = min(repetitions, 2) if quick else repetitions
    report: dict[str, Any] = {"machine": _machine(workers, quick)}
    # These first: a process starts more slowly from one that has used much memory.
    if "run" in workloads:
        say("run: camu run --preset study, from its start to its report")
        report["run"] = measure_run(5 if quick else STUDY_ROUNDS, 150 if quick else 1500, workers)
    if "growth" in workloads:
        report["growth"] = []
        for devices in (200,) if quick else GROWTH_DEVICES:
            say(f"growth: {devices} devices")
            units = 50 if quick else UNITS_PER_ROUND
            report["growth"].append(measure_growth(devices, units, workers))
    report["workloads"] = _against_loops(workloads, count, workers, quick, say)
    return report


def _against_loops(
    names: Sequence[str], count: int, workers: int, quick: bool, say: Say
) -> dict[str, Any]:
    """The measurements in which the engine and the loops take turns."""
    chosen = [name for name in MEASUREMENTS if name in names and name not in ("run", "growth")]
    measured: dict[str, Any] = {}
    if not chosen:
        return measured
    say("starting the processes of the tuned loop")
    with TunedLoop(workers) as tuned:
        for name in chosen:
            workload = EVALUATION if name == "evaluation" else WORKLOADS[name]
            workload = workload.shrunk() if quick else workload
            if name == "evaluation":
                measured[name] = measure_evaluation(workload, tuned, count, workers, say)
            else:
                measured[name] = measure_training(name, workload, tuned, count, workers, say)
    return measured


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
