"""What is measured with, without torch: time inside jobs, and memory."""

from __future__ import annotations

import gc
import resource
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from camu.data.batches import Schedules
from camu.learning.engine import Engine
from camu.learning.job import Evaluation, Trained
from camu.learning.kernel import Kernel, Training
from camu.learning.weights import Weights


class TimedEngine(Engine):
    """An engine that adds up the processor seconds of its training kernels, and its evaluations."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._lock = threading.Lock()
        self.reset()
        super().__init__(*arguments, **settings)

    def __enter__(self) -> TimedEngine:
        return self

    def reset(self) -> None:
        """Start to count from zero."""
        self.job_count, self.job_seconds, self.evaluation_seconds = 0, 0.0, 0.0

    def train_on(
        self, kernel: Kernel, units: Sequence[Training], schedules: Schedules
    ) -> list[Trained]:
        """Train some units on a worker, and note how long its processor core works on them."""
        begin = time.thread_time()
        trained = super().train_on(kernel, units, schedules)
        seconds = time.thread_time() - begin
        with self._lock:
            self.job_count += len(units)
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


class PeakMemory:
    """The highest resident memory of the process; on Linux while the block ran."""

    megabytes = 0.0

    def __enter__(self) -> PeakMemory:
        gc.collect()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        return self

    def __exit__(self, *_: object) -> None:
        self.megabytes = peak_megabytes()


def peak_megabytes() -> float:
    """The highest resident memory of this process since it began, or since it was reset."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if lines:
            return int(lines[0].split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
