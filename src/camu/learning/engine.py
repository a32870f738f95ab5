"""The engine: trains units of devices, evaluates, and gives gradients, on a pool of workers.

A job is computed by one worker with one torch thread and in one order of operations, and sums over
tasks follow the order of the tasks, so results are bitwise the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import length_hint, methodcaller
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from camu.arrays import AnyArray, Float32
from camu.config import Config
from camu.data.batches import Batches, Schedule, Schedules, Wanted
from camu.data.catalog import Scaling
from camu.errors import CamuError, InputError
from camu.learning.cnn import SeededCNN
from camu.learning.configured import seeded
from camu.learning.job import Evaluation, Job, Trained, brief, training_of
from camu.learning.kernel import (
    Data,
    DeviceBatch,
    Kernel,
    Kernels,
    Optimiser,
    Provenance,
    micro_batches,
)
from camu.learning.method import PLAIN_METHOD, Method
from camu.learning.native import compiled_draw
from camu.learning.native_kernel import choose_device, find_kernels, native_kernels
from camu.learning.own_training import check_own, train_with_own
from camu.learning.pool import Pool, Result, Work, available_cores, bundled, in_groups
from camu.learning.task import Task, task_of, task_of_arrays
from camu.learning.testing import TestSamples, evaluate, evaluate_devices
from camu.learning.weights import Weights

if TYPE_CHECKING:
    from torch import nn

LocalUpdate = Literal["step", "epoch"]
Samples = tuple[AnyArray, npt.ArrayLike]  # inputs and targets


class Engine:
    """Gradient work on one model and one division of the data; a context manager.

    ``train_inputs`` are images as uint8 ``(n, height, width)`` or ``(n, channels, height, width)``,
    floats, or tokens; ``device_indices`` lists the training samples that each device holds.
    ``batch`` is a number of samples (int) or a fraction of a device's data (float). ``l2`` adds
    ``l2/2 * |w|^2`` to every device's loss, ``method`` is the rest of its steps. ``workers`` 0
    takes one per processor core. ``device`` is "cpu" or "cuda", ``kernel`` a value of
    `machine.kernel`. ``task`` is the usual one for the types of the samples, unless it is given.
    ``test_indices`` lists the test samples of each device, for `evaluate_devices`. Metrics are in
    the units before ``scaling``. Mini-batches and noise follow from ``seed``.
    """

    def __init__(
        self,
        model: nn.Module | SeededCNN,
        train_inputs: AnyArray | None,
        train_targets: npt.ArrayLike | None,
        device_indices: Sequence[npt.ArrayLike],
        test_inputs: AnyArray | None,
        test_targets: npt.ArrayLike | None,
        *,
        learning_rate: float,
        batch: int | float = 0.2,
        local_update: LocalUpdate = "step",
        l2: float = 0.0,
        method: Method = PLAIN_METHOD,
        seed: int = 0,
        workers: int = 0,
        device: str = "cpu",
        kernel: str = "auto",
        task: Task | None = None,
        test_indices: Sequence[npt.ArrayLike] = (),
        scaling: Scaling | None = None,
    ) -> None:
        if local_update not in ("step", "epoch"):
            raise InputError(f'local_update: {local_update!r} is unknown; use "step" or "epoch".')
        if workers < 0:
            raise InputError(f"workers: {workers} is negative; use 0 for one per core.")
        where = choose_device(device)
        self.train_data = Data.of("train", train_inputs, train_targets)
        test_data = Data.of("test", test_inputs, test_targets)
        given = self.train_data or test_data
        if given is None:
            raise CamuError("an engine needs training or test samples")
        self.task = task or task_of_arrays(given.inputs, given.targets)
        for data in (self.train_data, test_data):
            if data is not None and not self.task.fits(data.inputs, data.targets):
                raise InputError(
                    f"samples: {data.inputs.dtype} and targets {data.targets.dtype} are not what "
                    f"the task has, {self.task.inputs} (images are uint8) and {self.task.target}"
                )
        self.tests = TestSamples.of(test_data, test_indices, scaling)
        self.batches = Batches(seed, device_indices, batch)
        self.batches.check(len(self.train_data.inputs) if self.train_data else 0)
        self.batches.draw = compiled_draw(self.batches) or self.batches.draw
        self.learning_rate, self.local_update, self.l2 = learning_rate, local_update, l2
        self.method = method
        self.seed = seed
        # A graphics card is one queue of work already.
        self.workers = 1 if where != "cpu" else workers or available_cores()
        self.initial = model.weights() if isinstance(model, SeededCNN) else Weights.of(model)
        self._kernels = self._choose_kernels(kernel, model, where)
        self._pool = Pool(self.workers, self._kernels.make)

    def _choose_kernels(self, wanted: str, model: nn.Module | SeededCNN, device: str) -> Kernels:
        data = self.train_data, self.tests.held if self.tests else None
        epochs = self.local_update == "epoch"
        optimiser = Optimiser(self.learning_rate, self.l2, epochs, self.method)
        found = find_kernels(wanted, model, device, self.task, self.method)
        if found is not None:
            return native_kernels(found, model, optimiser, *data, self.task)
        from camu.learning.batched_kernel import kernels_of_layers  # torch takes long to load

        return kernels_of_layers(wanted, model, device, optimiser, *data, self.seed, self.task)

    @property
    def kernel(self) -> str:
        """What computes, and decides the last bits: `Provenance.kernel`."""
        return self.provenance.kernel

    @property
    def provenance(self) -> Provenance:
        """What decides the last bits of its results."""
        return self._kernels.provenance

    @property
    def fused(self) -> bool:
        """Whether devices share a pass."""
        return self._kernels.fused

    @classmethod
    def from_config(
        cls,
        config: Config,
        train: Samples | None = None,
        device_indices: Sequence[npt.ArrayLike] = (),
        test: Samples | None = None,
        test_indices: Sequence[npt.ArrayLike] = (),
        scaling: Scaling | None = None,
        seed: int | None = None,
    ) -> Self:
        """An engine for the configured model, to train on (inputs, targets), to test, or both."""
        training = config.training
        inputs, targets = train or (None, None)
        test_inputs, test_targets = test or (None, None)
        return cls(
            seeded(config),
            inputs,
            targets,
            device_indices,
            test_inputs,
            test_targets,
            learning_rate=training.learning_rate,
            batch=training.batch,
            local_update=training.local_update,
            l2=training.l2,
            method=Method.of(training),
            seed=config.run.seed if seed is None else seed,
            workers=config.machine.workers,
            device=config.machine.device,
            kernel=config.machine.kernel,
            task=task_of(config),
            test_indices=test_indices,
            scaling=scaling,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; jobs that run end at their next step."""
        self._pool.close()

    @property
    def oracle(self) -> Engine:
        """Exact losses and gradients on the devices' data."""
        return self

    def train(self, start: Weights, jobs: Sequence[Job], round_number: int) -> list[Weights]:
        """The trained weights of each job, in the order of the jobs."""
        return [trained.weights.copied() for trained in self.iterate(start, jobs, round_number)]

    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], Any] = lambda _, trained: trained,
    ) -> Iterator[Any]:
        """Train the jobs and yield their results in order, so that a caller need not hold them all.

        Jobs are taken as they are needed, and small ones are handed to a worker several at once.
        ``start`` may also be one state per job, for units that hold different models.
        ``deliver(number, trained)`` is called on the worker that trained a job, and its answer is
        the result; by default a result is what was trained. The models that a worker trains at once
        share a block of memory: take ``weights.copied()`` of those that you keep.
        """
        expected = length_hint(jobs)

        def task(bundle: Sequence[tuple[int, Weights, Job]], cost: float) -> Work[list[Any]]:
            def work(kernel: Kernel) -> list[Any]:
                pairs = [own[1:] for own in bundle]
                results = self._train_bundle(kernel, pairs, round_number)
                return [deliver(n, own) for (n, _, _), own in zip(bundle, results, strict=True)]

            members = [device for _, _, job in bundle for device in job.members]
            return Work(training_of(members, round_number), work, cost)

        numbered = _numbered(start, jobs)
        if at_once := self._kernels.at_once:
            bundles = in_groups(numbered, self._checked_cost, at_once, expected)
        else:
            bundles = bundled(numbered, self._checked_cost, self.workers, expected)
        for outcomes in self._pool.stream(task(*bundle) for bundle in bundles):
            yield from outcomes
            del outcomes  # the pool may then begin another task

    def groups(
        self, start: Weights | Sequence[Weights], jobs: Sequence[Job], expected: int
    ) -> list[list[int]]:
        """Which jobs train together, by number, where that decides their last bits."""
        if at_once := self._kernels.at_once:
            found = in_groups(_numbered(start, jobs), self._checked_cost, at_once, expected)
            return [[number for number, _, _ in group] for group, _ in found]
        return [[number] for number in range(len(jobs))]

    def train_group(self, jobs: Sequence[tuple[Weights, Job]], round_number: int) -> list[Trained]:
        """Train the jobs of one group, each from its start."""
        for _, job in jobs:
            self._check_job(job)
        what = training_of([device for _, job in jobs for device in job.members], round_number)
        return self.on_worker(what, lambda kernel: self._train_bundle(kernel, jobs, round_number))

    def train_on(
        self,
        kernel: Kernel,
        jobs: Sequence[tuple[Weights, Job]],
        schedules: Schedules,
        round_number: int,
    ) -> list[Trained]:
        """Train some jobs, each from its start, on a worker's kernel."""
        return kernel.train(jobs, schedules, round_number)

    def _train_bundle(
        self, kernel: Kernel, jobs: Sequence[tuple[Weights, Job]], round_number: int
    ) -> list[Trained]:
        """Train some jobs on their mini-batches, with what their units train for themselves."""
        if all(job.own is None for _, job in jobs):
            schedules = self._schedules(jobs, round_number)
            return self.train_on(kernel, jobs, schedules, round_number)

        def schedule_of(job: Job) -> Schedule:
            return self._schedules([(self.initial, job)], round_number).apart()[0]

        def train(start: Weights, job: Job, schedule: Schedule | None = None) -> Trained:
            given = Schedules.of([schedule or schedule_of(job)])
            return self.train_on(kernel, [(start, job)], given, round_number)[0]

        return [
            train_with_own(start, job, train, schedule_of) if job.own else train(start, job)
            for start, job in jobs
        ]

    def _schedules(self, jobs: Sequence[tuple[Weights, Job]], round_number: int) -> Schedules:
        """The mini-batches of some jobs."""
        epochs = self.local_update == "epoch"
        wanted = [
            Wanted(job.members, job.numbers, job.rule.steps, epochs, job.rule.batch)
            for _, job in jobs
        ]
        return self.batches.schedules(round_number, wanted)

    def evaluate(self, weights: Weights) -> Evaluation:
        """The mean loss (without the l2 term) and the metrics, and the accuracy of each label."""
        self._check_layout(weights)
        return evaluate(self._needed_tests(), self.task, self._pool.stream, weights)

    def evaluate_devices(
        self, weights: Weights, own: Mapping[int, Weights]
    ) -> list[tuple[float, float]]:
        """Accuracy and loss of each device with test samples, on these.

        Devices judge a model of their own if they have one, or else the first.
        """
        stream = self._pool.stream
        return evaluate_devices(self._needed_tests(), self.task, stream, weights, own)

    def _needed_tests(self) -> TestSamples:
        if self.tests is None:
            raise CamuError("this engine was made without test samples")
        return self.tests

    def gradient(
        self,
        weights: Weights,
        members: Sequence[int] | None = None,
        member_weights: Sequence[float] | None = None,
    ) -> Float32:
        """The gradient of a set of devices' loss over all their data, float32 (q,).

        Devices count by ``member_weights``, or by their numbers of samples; all devices if
        ``members`` is not given. The l2 term is included.
        """
        total = np.zeros(weights.parameters.shape, dtype=np.float64)
        for part, _ in self._full_passes(weights, members, member_weights, backward=True):
            total += part
        return (total + self.l2 * weights.parameters.astype(np.float64)).astype(np.float32)

    def loss(
        self,
        weights: Weights,
        members: Sequence[int] | None = None,
        member_weights: Sequence[float] | None = None,
    ) -> float:
        """The loss of a set of devices over all their data, the l2 term included."""
        passes = self._full_passes(weights, members, member_weights, backward=False)
        square = float(np.square(weights.parameters.astype(np.float64)).sum())
        return sum(loss for _, loss in passes) + self.l2 / 2 * square

    def _full_passes(
        self,
        weights: Weights,
        members: Sequence[int] | None,
        member_weights: Sequence[float] | None,
        backward: bool,
    ) -> Iterator[tuple[Float32, float]]:
        self._check_layout(weights)
        chosen = range(len(self.batches.device_indices)) if members is None else members
        counts = [float(self.batches.samples(device)) for device in chosen]
        relative = tuple(counts if member_weights is None else member_weights)
        self._check_job(Job(tuple(chosen), relative))
        parts = [
            DeviceBatch(device, self.batches.device_indices[device], weight / sum(relative))
            for device, weight in zip(chosen, relative, strict=True)
        ]
        tasks = [
            Work(
                f"Computing the loss of devices {brief([part.device for part in group])}",
                methodcaller("full_pass", weights, group, backward),
                cost=float(sum(len(part.indices) for part in group)),
            )
            for group in micro_batches(parts, self.fused, self._kernels.whole_devices)
        ]
        return self._pool.stream(tasks)

    def on_worker(self, what: str, work: Callable[[Kernel], Result]) -> Result:
        """Run a function on one worker, with its kernel; for measurements and experiments."""
        return next(self._pool.stream([Work(what, work)]))

    def _checked_cost(self, numbered: tuple[int, Weights, Job]) -> float:
        """The samples that a job passes; a job that cannot be trained is refused."""
        _, start, job = numbered
        self._check_layout(start)
        sizes, work = self._check_job(job), job.updates * job.rule.steps
        if self.local_update == "epoch":
            return float(work * sum(map(self.batches.samples, job.members)))
        return float(work * sum(sizes))

    def _check_layout(self, weights: Weights) -> None:
        if weights.layout is not self.initial.layout and weights.layout != self.initial.layout:
            raise InputError("weights: they belong to a model with other layers or shapes.")

    def _check_job(self, job: Job) -> list[int]:
        """Refuse a job that cannot be trained; returns the sizes of its members' batches."""
        job.check(len(self.batches.device_indices))
        sizes = self.batches.sizes(job.members, job.rule.batch)
        if 0 in sizes:
            device = job.members[sizes.index(0)]
            raise InputError(f"job: device {device} holds no samples and cannot train.")
        for what, array in (("correction", job.correction), ("anchor", job.anchor)):
            if array is not None and array.shape != self.initial.parameters.shape:
                raise InputError(
                    f"job: the {what} has shape {array.shape}; the model has "
                    f"{self.initial.parameters.size} parameters."
                )
        method = self.method.under(job.rule)
        check_own(job, self.initial.parameters.size, stateless=not method.has_state)
        return sizes


def _numbered(
    start: Weights | Sequence[Weights], jobs: Iterable[Job]
) -> Iterator[tuple[int, Weights, Job]]:
    """Jobs with their numbers, and the models that they start from."""
    if not isinstance(start, Weights):
        jobs = list(jobs)
        if len(start) != len(jobs):
            raise InputError(f"start: {len(start)} states were given for {len(jobs)} jobs.")
    starts = repeat(start) if isinstance(start, Weights) else start
    return ((n, *pair) for n, pair in enumerate(zip(starts, jobs, strict=False)))
