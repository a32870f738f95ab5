"""How fast the engine is: against a plain PyTorch loop, and against what the machine can do.

Both sides run in one process, in turn and repeatedly, so that whatever else the machine does hits
both; ratios are medians over the repetitions. The plain loop takes one device after another, so
its time for a round follows from some of the units; each repetition takes the next ones.
"""

from __future__ import annotations

import gc
import platform
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn

from camu.errors import InputError
from camu.learning.engine import Engine, LocalUpdate
from camu.learning.job import Job
from camu.learning.kernel import Kernel
from camu.learning.models import build_model
from camu.learning.pool import available_cores
from camu.seeding import derive

Say = Callable[[str], None]

# Multiplications and additions that training the paper's CNN on one sample asks for: the two
# convolutions forward, their weight gradients and the second one's input gradient, and the same
# three for both linear layers.
FLOPS_PER_SAMPLE = 2 * (2 * 24 * 24 * 10 * 25 + 3 * 8 * 8 * 20 * 250 + 3 * (320 * 50 + 50 * 10))


# The jobs of a round that are profiled for the time outside torch's operators.
PROFILED_JOBS = 6


@dataclass(frozen=True)
class Workload:
    """One round of training: devices with equally many samples, divided into units."""

    devices: int
    samples_per_device: int
    batch: int
    units: int
    local_update: LocalUpdate = "step"
    plain_units: int = 10

    @property
    def trained_samples(self) -> int:
        """The samples that one round passes forward and backward."""
        return self.devices * (
            self.batch if self.local_update == "step" else self.samples_per_device
        )

    def jobs(self) -> list[Job]:
        """The units: devices dealt out in turn, all with the same weight."""
        members = [tuple(range(unit, self.devices, self.units)) for unit in range(self.units)]
        return [Job(group, (1.0 / len(group),) * len(group)) for group in members]

    def plain_seconds(self, plain: PlainLoop, repetition: int) -> float:
        """The seconds the plain loop takes for a round, from some of its units."""
        jobs = self.jobs()
        chosen = [
            jobs[(repetition * self.plain_units + n) % len(jobs)] for n in range(self.plain_units)
        ]
        devices = sum(len(job.members) for job in chosen)
        return plain.round(chosen, repetition) * self.devices / devices


WORKLOADS = {
    "W1": Workload(devices=30, samples_per_device=2000, batch=400, units=30, plain_units=30),
    "W2": Workload(devices=30, samples_per_device=2000, batch=400, units=30, local_update="epoch"),
    "W3": Workload(devices=1000, samples_per_device=60, batch=12, units=30, plain_units=5),
}


def run_bench(
    workloads: Sequence[str] = ("W1", "W2", "W3"),
    *,
    repetitions: int = 5,
    workers: int = 0,
    quick: bool = False,
    progress: Say | None = None,
) -> dict[str, Any]:
    """Measure the named workloads; ``quick`` shrinks them to a few seconds for a first look."""
    unknown = [name for name in workloads if name not in WORKLOADS]
    if unknown:
        raise InputError(f"workload: {unknown[0]!r} is unknown; there are {', '.join(WORKLOADS)}.")
    say = progress or (lambda _: None)
    say("measuring the speed of matrix products")
    peak_gflops = sgemm_gflops(repetitions=1 if quick else 7)
    measured = {}
    for name in workloads:
        workload = _shrunk(WORKLOADS[name]) if quick else WORKLOADS[name]
        count = min(repetitions, 2) if quick else repetitions
        measured[name] = _measure(name, workload, count, workers, peak_gflops, say)
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": available_cores(),
        "workers": workers or available_cores(),
        "torch": torch.__version__,
        "plain_threads": torch.get_num_threads(),
        "sgemm_gflops": round(peak_gflops, 1),
        "repetitions": repetitions,
        "quick": quick,
    }
    return {"workloads": measured, "machine": machine}


def _shrunk(workload: Workload) -> Workload:
    return replace(
        workload,
        devices=max(4, workload.devices // 25),
        units=max(2, workload.units // 15),
        plain_units=2,
        batch=max(4, workload.batch // 10),
        samples_per_device=max(20, workload.samples_per_device // 10),
    )


def _measure(
    name: str, workload: Workload, repetitions: int, workers: int, peak: float, say: Say
) -> dict[str, float]:
    with _engine(workload, workers) as engine:
        jobs = workload.jobs()
        plain = PlainLoop(engine)
        engine_seconds, plain_seconds = [], []
        peak_mb = 0.0
        for repetition in range(repetitions + 1):
            say(f"{name}: repetition {repetition} of {repetitions}")
            slow = workload.plain_seconds(plain, repetition)
            with _PeakMemory() as memory:
                fast = _engine_round(engine, jobs, repetition)
            peak_mb = max(peak_mb, memory.megabytes)
            if repetition:  # the first round warms up both
                engine_seconds.append(fast)
                plain_seconds.append(slow)
        overhead = _overhead_fraction(engine, jobs)
    seconds = statistics.median(engine_seconds)
    rate = workload.trained_samples / seconds
    ratios = [slow / fast for slow, fast in zip(plain_seconds, engine_seconds, strict=True)]
    return {
        "ratio_to_plain": round(statistics.median(ratios), 3),
        "samples_per_second": round(rate, 1),
        "rounds_per_second": round(1 / seconds, 4),
        "roofline_fraction": round(rate * FLOPS_PER_SAMPLE / (peak * 1e9), 4),
        "overhead_fraction": round(overhead, 4),
        "peak_mb": round(peak_mb, 1),
    }


def _engine(workload: Workload, workers: int) -> Engine:
    images, labels, devices = _made_up_data(workload)
    return Engine(
        build_model("cnn", (28, 28), 10, "batch", derive(0, "bench-model")),
        images,
        labels,
        devices,
        images[:500],
        labels[:500],
        learning_rate=0.05,
        batch=workload.batch,
        local_update=workload.local_update,
        workers=workers,
    )


def _engine_round(engine: Engine, jobs: Sequence[Job], round_number: int) -> float:
    """The seconds of one round: train all units and average them as they come."""
    begin = time.perf_counter()
    total = np.zeros(engine.initial.parameters.shape, dtype=np.float64)
    for trained in engine.iterate(engine.initial, jobs, round_number):
        total += trained.weights.parameters
    return time.perf_counter() - begin


class PlainLoop:
    """The obvious way: torch's layers, its default threads, one device after another."""

    def __init__(self, engine: Engine) -> None:
        self.data = engine.train_data
        self.engine = engine
        self.threads = torch.get_num_threads()
        self.model = nn.Sequential(
            nn.Conv2d(1, 10, 5),
            nn.MaxPool2d(2),
            nn.Conv2d(10, 20, 5),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(20),
            nn.Flatten(),
            nn.Linear(320, 50),
            nn.ReLU(),
            nn.Linear(50, 10),
        )
        arrays = list(engine.initial.tensors().values())
        state = {
            key: torch.from_numpy(array.copy())
            for key, array in zip(_state_keys(self.model), arrays, strict=True)
        }
        self.model.load_state_dict(state, strict=False)
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}

    def round(self, jobs: Sequence[Job], round_number: int) -> float:
        """The seconds of one round, all members of all units."""
        # The engine's workers set the threads of matrix products for the whole process.
        torch.set_num_threads(self.threads)
        begin = time.perf_counter()
        total = {key: torch.zeros_like(value) for key, value in self.start.items()}
        for job in jobs:
            for device, weight in zip(job.members, job.weights, strict=True):
                self._train_device(device, round_number)
                for key, value in self.model.state_dict().items():
                    if value.is_floating_point():
                        total[key] += weight / len(jobs) * value
        self.result = total
        return time.perf_counter() - begin

    def _train_device(self, device: int, round_number: int) -> None:
        batches = self.engine.batches
        self.model.load_state_dict(self.start)
        optimiser = torch.optim.SGD(self.model.parameters(), lr=self.engine.learning_rate)
        if self.engine.local_update == "step":
            chosen = [batches.step(round_number, device, 0)]
        else:
            chosen = batches.epoch(round_number, device, 0)
        for indices in chosen:
            images = self.data.images[indices].float() / 255
            optimiser.zero_grad()
            F.cross_entropy(self.model(images), self.data.labels[indices]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _state_keys(model: nn.Module) -> list[str]:
    parameters = [name for name, _ in model.named_parameters()]
    return parameters + [n for n, b in model.named_buffers() if b.is_floating_point()]


def _overhead_fraction(engine: Engine, jobs: Sequence[Job]) -> float:
    """The part of a worker's time in a round that is not spent inside torch's operators.

    Every job runs in turn without and with torch's profiler: the first run gives the time, the
    second the time inside operators, because the profiler itself works mostly between them.
    """
    # The older profiler works on any thread and prints nothing; few need it, so it loads late.
    from torch.autograd.profiler_legacy import profile

    def work(kernel: Kernel) -> tuple[float, float]:
        total, inside = 0.0, 0.0
        for job in list(jobs)[:PROFILED_JOBS]:
            times = []
            for _ in range(3):  # the best of three: the machine may have other work
                begin = time.perf_counter()
                engine.run_job(kernel, engine.initial, job, 0)
                alone = time.perf_counter() - begin
                with profile() as profiler:  # type: ignore[no-untyped-call]
                    engine.run_job(kernel, engine.initial, job, 0)
                # Operators nest; without their children's times they add up without counting twice.
                events = [e for e in profiler.key_averages() if e.key.startswith("aten::")]
                times.append((alone, sum(e.self_cpu_time_total for e in events) * 1e-6))
            total += min(alone for alone, _ in times)
            inside += min(within for _, within in times)
        return total, inside

    total, inside = engine.on_worker("Profiling a round", work)
    return max(0.0, 1 - inside / total)


def sgemm_gflops(size: int = 1024, repetitions: int = 7) -> float:
    """The speed of a large float32 matrix product with all cores: the roof for this machine."""
    left = torch.ones(size, size)
    right = torch.ones(size, size)
    threads = torch.get_num_threads()
    torch.set_num_threads(available_cores())
    best = float("inf")
    for _ in range(repetitions):
        begin = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - begin)
    torch.set_num_threads(threads)
    return 2 * size**3 / best / 1e9


class _PeakMemory:
    """The highest resident memory of the process; on Linux while the block ran."""

    megabytes = 0.0

    def __enter__(self) -> _PeakMemory:
        gc.collect()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        return self

    def __exit__(self, *_: object) -> None:
        status = Path("/proc/self/status")
        if status.exists():
            lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
            if lines:
                self.megabytes = int(lines[0].split()[1]) / 1024
                return
        self.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _made_up_data(
    workload: Workload,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    generator = derive(0, "bench-data", workload.devices, workload.samples_per_device).numpy()
    count = workload.devices * workload.samples_per_device
    images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = generator.integers(0, 10, count)
    devices = np.split(np.arange(count), workload.devices)
    return images, labels, list(devices)
