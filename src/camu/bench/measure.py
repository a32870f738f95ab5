"""How long a training step takes here, on one core, and what its FLOPs would say."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from camu.arrays import AnyArray
from camu.config import Config
from camu.data import DatasetSpec, dataset_spec
from camu.learning.engine import Engine
from camu.learning.flops import training_flops
from camu.learning.job import Job
from camu.learning.task import Task, task_of
from camu.seeding import derive

_CALL_SECONDS = 0.05  # steps are timed together until they take so long
_MOST_STEPS = 4096
_FASTEST_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")  # kHz


@dataclass(frozen=True)
class Step:
    """A training step that was timed: processor time of one core, a median."""

    model: str
    dataset: str
    samples: int
    flops: float  # per sample, as counted
    seconds: float
    spread: float  # (largest - smallest) / median of the repetitions
    kernel: str

    @property
    def flops_per_second(self) -> float:
        """Counted FLOPs of the step by its seconds."""
        return self.flops * self.samples / self.seconds

    @property
    def sample_seconds(self) -> float:
        """Seconds per sample."""
        return self.seconds / self.samples

    def predicted_seconds(self, flops: float) -> float:
        """What a step of a model with so many FLOPs per sample would take at this speed."""
        return flops * self.samples / self.flops_per_second


def time_step(config: Config, samples: int, repetitions: int = 7) -> Step:
    """Time steps of the configured model on made-up samples, by the engine and its kernel.

    Processor time counts, so that other programs disturb little. Steps of one job follow each
    other without a pause, so that what happens once per job is left out.
    """
    spec, task = dataset_spec(config.data), task_of(config)
    inputs, targets = _made_up(spec, task, samples)
    config = config.replace(
        {
            "machine.workers": 1,
            "training.local_update": "step",
            "training.batch_samples": samples,
            "training.learning_rate": 1e-6,  # made-up labels teach nothing
        }
    )
    indices = [np.arange(samples)]
    with Engine.from_config(config, (inputs, targets), indices) as engine:
        steps = 1
        _timed(engine, 1)  # what happens once
        while _timed(engine, steps) < _CALL_SECONDS and steps < _MOST_STEPS:
            steps *= 2
        found = [_timed(engine, steps) / steps for _ in range(repetitions)]
        kernel = engine.kernel
    middle = statistics.median(found)
    return Step(
        model=config.training.model,
        dataset=config.data.dataset,
        samples=samples,
        flops=training_flops(config),
        seconds=middle,
        spread=(max(found) - min(found)) / middle,
        kernel=kernel,
    )


def _timed(engine: Engine, steps: int) -> float:
    """Processor time of a job with so many steps."""
    before = time.process_time()
    engine.train(engine.initial, [Job((0,), (1.0,), updates=steps)], 1)
    return time.process_time() - before


def _made_up(spec: DatasetSpec, task: Task, samples: int) -> tuple[AnyArray, AnyArray]:
    """Random samples of the data set's shape and type, and targets."""
    draw, shape = derive(0, "measure", samples).numpy(), (samples, *spec.shape)
    inputs: AnyArray
    if spec.inputs == "images":
        inputs = draw.integers(0, 256, shape, dtype=np.uint8)
    elif spec.inputs == "tokens":
        inputs = draw.integers(0, spec.vocabulary, shape)
    else:
        inputs = draw.normal(size=shape).astype(np.float32)
    if task.target == "numbers":
        return inputs, draw.normal(size=(samples, spec.width)).astype(np.float32)
    if task.target == "next-token":
        return inputs, draw.integers(0, spec.vocabulary, shape)
    return inputs, draw.integers(0, spec.classes, samples)


def cpu_hz() -> float | None:
    """The fastest clock of this machine's first core; None if it does not say."""
    try:
        return 1e3 * float(_FASTEST_CLOCK.read_text("ascii"))
    except (OSError, ValueError):
        pass
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        clocks = [1e6 * float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    except (OSError, ValueError, IndexError):
        return None
    return max(clocks, default=None)


def profile_text(step: Step, clock: float, watts: Sequence[float | None]) -> str:
    """The profile of a board as TOML, as `fleet.board` takes it."""
    import tomli_w

    numbers = {"cpu_hz": clock, "flops_per_second": step.flops_per_second}
    source = {
        "cpu_hz": "the machine's own word, or an option",
        "flops_per_second": f"measured: {step.model} on {step.dataset}, steps of {step.samples} "
        f"samples on one core, {step.kernel}",
    }
    for key, value in zip(("idle_watts", "busy_watts"), watts, strict=True):
        if value is not None:
            numbers[key], source[key] = value, "an option"
    measured = {
        "model": step.model,
        "dataset": step.dataset,
        "samples": step.samples,
        "flops_per_sample": step.flops,
        "seconds_per_step": step.seconds,
        "seconds_per_sample": step.sample_seconds,
        "spread": step.spread,
        "kernel": step.kernel,
    }
    title = f"one core, measured with {step.model}"
    document = {"title": title, **numbers, "source": source, "measured": measured}
    return tomli_w.dumps(document)
