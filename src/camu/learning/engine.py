"""The engine: trains units of devices, evaluates, and gives gradients, on a pool of workers.

A job is computed by one worker with one torch thread and in one order of operations, and sums over
tasks follow the order of the tasks, so results are bitwise the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32
from camu.config import Config
from camu.data.batches import Batches, Schedules, Wanted
from camu.errors import CamuError, InputError
from camu.learning.cnn import SeededCNN
from camu.learning.configured import choose_device, seeded
from camu.learning.data import Data, DeviceBatch, micro_batches
from camu.learning.job import Evaluation, Job, Trained, brief
from camu.learning.kernel import Kernel, Kernels, Training, training_of
from camu.learning.native_draw import compiled_draw
from camu.learning.native_kernel import find_kernels, native_kernels
from camu.learning.pool import Pool, Result, Work, available_cores, bundled
from camu.learning.weights import Weights

if TYPE_CHECKING:
    from torch import nn

LocalUpdate = Literal["step", "epoch"]
Samples = tuple[npt.NDArray[np.uint8], npt.ArrayLike]  # images and labels

# Fixed, because the order of additions must not depend on the number of workers.
EVALUATION_SAMPLES = 1000


class Engine:
    """Gradient work on one model and one division of the data; a context manager.

    ``train_images`` are uint8 ``(n, height, width)`` or ``(n, channels, height, width)``;
    ``device_indices`` lists the training samples that each device holds. ``batch`` up to 1 is a
    fraction of a device's data, above 1 a number of samples. ``l2`` adds ``l2/2 * |w|^2`` to every
    device's loss. ``workers`` 0 takes one per processor core. ``kernel`` is "auto", "native" or
    "torch".
    """

    def __init__(
        self,
        model: nn.Module | SeededCNN,
        train_images: npt.NDArray[np.uint8] | None,
        train_labels: npt.ArrayLike | None,
        device_indices: Sequence[npt.ArrayLike],
        test_images: npt.NDArray[np.uint8] | None,
        test_labels: npt.ArrayLike | None,
        *,
        learning_rate: float,
        batch: float = 0.2,
        local_update: LocalUpdate = "step",
        l2: float = 0.0,
        seed: int = 0,
        workers: int = 0,
        device: str = "auto",
        kernel: str = "auto",
    ) -> None:
        if local_update not in ("step", "epoch"):
            raise InputError(f'local_update: {local_update!r} is unknown; use "step" or "epoch".')
        if workers < 0:
            raise InputError(f"workers: {workers} is negative; use 0 for one per core.")
        where = choose_device(device)
        self._train_data = Data.of("train", train_images, train_labels)
        test_images, test_labels, self._labels = _by_label(test_images, test_labels)
        self._test_data = Data.of("test", test_images, test_labels)
        self.batches = Batches(seed, device_indices, batch)
        self.batches.check(len(self._train_data.images) if self._train_data else 0)
        self.batches.draw = compiled_draw(self.batches) or self.batches.draw
        self.learning_rate, self.local_update, self.l2 = learning_rate, local_update, l2
        self.seed = seed
        # A graphics card is one queue of work already.
        self.workers = 1 if where != "cpu" else workers or available_cores()
        self.initial = model.weights() if isinstance(model, SeededCNN) else Weights.of(model)
        self._kernels = self._choose_kernels(kernel, model, where)
        self._pool = Pool(self.workers, self._kernels.make)

    def _choose_kernels(self, wanted: str, model: nn.Module | SeededCNN, device: str) -> Kernels:
        data = self._train_data, self._test_data
        found = find_kernels(wanted, model, device)
        if found is not None:
            return native_kernels(found, self.initial.layout, *data)
        from camu.learning.torch_kernel import torch_kernels  # torch takes long to load

        return torch_kernels(model, device, *data, self.seed)

    @property
    def kernel(self) -> str:
        """What computes, and decides the last bits: `torch`, `native avx2` or `native avx512`."""
        return self._kernels.name

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
    ) -> Engine:
        """An engine for the configured model, on (images, labels) for training, testing or both."""
        training = config.training
        images, labels = train or (None, None)
        test_images, test_labels = test or (None, None)
        return cls(
            seeded(config),
            images,
            labels,
            device_indices,
            test_images,
            test_labels,
            learning_rate=training.learning_rate,
            batch=training.batch,
            local_update=training.local_update,
            l2=training.l2,
            seed=config.run.seed,
            workers=config.run.workers,
            device=config.run.device,
            kernel=config.run.kernel,
        )

    @property
    def train_data(self) -> Data:
        """The training samples of all devices."""
        return _given(self._train_data, "training")

    @property
    def test_data(self) -> Data:
        """The test samples."""
        return _given(self._test_data, "test")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; jobs that run end at their next step."""
        self._pool.close()

    fault_kinds: tuple[str, ...] = ()  # the engine meets no faults of its own

    def take_faults(self) -> dict[str, int]:
        """Faults since the last call, by kind: none."""
        return {}

    @property
    def oracle(self) -> Engine:
        """Exact losses and gradients on the devices' data."""
        return self

    def train(self, start: Weights, jobs: Sequence[Job], round_number: int) -> list[Weights]:
        """The trained weights of each job, in the order of the jobs."""
        return [trained.weights for trained in self.iterate(start, jobs, round_number)]

    @overload
    def iterate(
        self, start: Weights | Sequence[Weights], jobs: Iterable[Job], round_number: int
    ) -> Iterator[Trained]: ...

    @overload
    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], Result],
    ) -> Iterator[Result]: ...

    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], object] = lambda _, trained: trained,
    ) -> Iterator[object]:
        """Train the jobs and yield their results in order, so that a caller need not hold them all.

        Jobs are taken as they are needed, and small ones are handed to a worker several at once.
        ``start`` may also be one state per job, for units that hold different models.
        ``deliver(number, trained)`` is called on the worker that trained a job, and its answer is
        the result; by default a result is what was trained.
        """
        expected = length_hint(jobs)
        if isinstance(start, Weights):
            pairs: Iterable[tuple[Weights, Job]] = zip(repeat(start), jobs)
        else:
            jobs = list(jobs)
            if len(start) != len(jobs):
                raise InputError(f"start: {len(start)} states were given for {len(jobs)} jobs.")
            pairs = zip(start, jobs, strict=True)

        def task(bundle: Sequence[tuple[int, Weights, Job]], cost: float) -> Work[list[object]]:
            def work(kernel: Kernel) -> list[object]:
                results = self.train_on(kernel, *self._trainings(bundle, round_number))
                return [deliver(n, own) for (n, _, _), own in zip(bundle, results, strict=True)]

            members = [device for _, _, job in bundle for device in job.members]
            return Work(training_of(members, round_number), work, cost)

        numbered = ((n, *pair) for n, pair in enumerate(pairs))
        bundles = bundled(numbered, self._checked_cost, self.workers, expected)
        for outcomes in self._pool.stream(task(*bundle) for bundle in bundles):
            yield from outcomes
            del outcomes  # the pool may then begin another task

    def train_on(
        self, kernel: Kernel, units: Sequence[Training], schedules: Schedules
    ) -> list[Trained]:
        """Train some units on a worker's kernel."""
        return kernel.train(units, schedules, self._pool.go_on)

    def _trainings(
        self, bundle: Sequence[tuple[int, Weights, Job]], round_number: int
    ) -> tuple[list[Training], Schedules]:
        epochs, jobs = self.local_update == "epoch", [job for _, _, job in bundle]
        wanted = [
            Wanted(
                job.members,
                range(job.first, job.first + job.updates),
                job.rule.steps,
                epochs,
                job.rule.batch,
            )
            for job in jobs
        ]
        rate, l2 = self.learning_rate, self.l2
        units = [
            Training(start, job, rate * job.rule.rate, l2, epochs, round_number)
            for _, start, job in bundle
        ]
        return units, self.batches.schedules(round_number, wanted)

    def evaluate(self, weights: Weights) -> Evaluation:
        """Accuracy, mean cross-entropy (without the l2 term), and the accuracy of each label."""
        count = len(self.test_data.images)
        self._check_layout(weights)
        spans = [
            (label, slice(first, min(first + EVALUATION_SAMPLES, end)))
            for label, (start, end) in self._labels.items()
            for first in range(start, end, EVALUATION_SAMPLES)
        ]
        tasks = [
            Work("Evaluating the model", partial(_evaluate, weights=weights, span=span))
            for _, span in spans
        ]
        right, loss = dict.fromkeys(range(max(self._labels) + 1), 0), 0.0
        for (label, _), (part_right, part_loss) in zip(
            spans, self._pool.stream(tasks), strict=True
        ):
            right[label], loss = right[label] + part_right, loss + part_loss
        borders = {label: self._labels.get(label, (0, 0)) for label in right}
        by_label = [
            right[label] / (end - start) if end > start else None
            for label, (start, end) in borders.items()
        ]
        return Evaluation(sum(right.values()) / count, loss / count, tuple(by_label))

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
                partial(_full_pass, weights=weights, group=group, backward=backward),
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
        if job.correction is None and job.anchor is None:
            return sizes
        for what, array in (("correction", job.correction), ("anchor", job.anchor)):
            if array is not None and array.shape != self.initial.parameters.shape:
                raise InputError(
                    f"job: the {what} has shape {array.shape}; the model has "
                    f"{self.initial.parameters.size} parameters."
                )
        return sizes


def _evaluate(kernel: Kernel, weights: Weights, span: slice) -> tuple[int, float]:
    return kernel.evaluate(weights, span)


def _full_pass(
    kernel: Kernel, weights: Weights, group: Sequence[DeviceBatch], backward: bool
) -> tuple[Float32, float]:
    return kernel.full_pass(weights, group, backward)


def _given(data: Data | None, what: str) -> Data:
    if data is None:
        raise CamuError(f"this engine was made without {what} samples")
    return data


def _by_label(
    images: npt.NDArray[np.uint8] | None, labels: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.uint8] | None, npt.ArrayLike | None, dict[int, tuple[int, int]]]:
    """Samples in the order of their labels, and where each label begins and ends."""
    given = None if labels is None else np.asarray(labels)
    if images is None or given is None or given.ndim != 1 or len(given) != len(images):
        return images, labels, {}
    order = np.argsort(given, kind="stable")
    known, first, count = np.unique(given[order], return_index=True, return_counts=True)
    ends = (first + count).tolist()
    borders = dict(zip(known.tolist(), zip(first.tolist(), ends, strict=True), strict=True))
    return images[order], given[order], borders
