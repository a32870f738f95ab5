"""Trains the units of one run on the actors of a Ray cluster: `machine.engine = "ray"`.

An actor trains jobs as a local worker does, one by one or those that make up a batched program, and
results are taken in the order of the jobs, so they are bitwise the same. The loop, evaluation and
the oracle stay in this process. An actor that dies is replaced, and its jobs are repeated.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import ray
import torch
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from camu import __version__
from camu.arrays import Int64
from camu.config import Config
from camu.data import is_own
from camu.data.catalog import Scaling
from camu.errors import CamuError, InputError
from camu.learning import native
from camu.learning.engine import Engine, Samples
from camu.learning.job import Job, Trained, training_of
from camu.learning.weights import Weights
from camu.plugins import import_object, is_plugin, own_modules
from camu.simulation.ray_session import connected

log = logging.getLogger(__name__)

ATTEMPTS = 3  # lost actors of a job, or failed starts of an actor, before the run ends
JOBS_AHEAD = 64  # handed out ahead of the one whose result is due, where actors are few
START_SECONDS = 120.0  # for which the run waits while the cluster has no processor for an actor

_SHIPPED = "camu_shipped"  # the module on an actor that holds the user's model and data


@dataclass(frozen=True, eq=False)
class ActorSetup:
    """What an actor needs for its engine; sent once to every machine."""

    config: Config
    train: Samples
    test: Samples
    indices: Int64  # of all devices, one after the other
    ends: Int64  # where each device's indices end
    model: Any  # the user's own class, or None
    instructions: str  # the most that compiled kernels may use, or empty
    directory: str  # the user's

    def unpack(self) -> tuple[Config, list[Int64]]:
        """The configuration, with the user's code as it was sent, and each device's indices."""
        changes: dict[str, Any] = {}
        module = ModuleType(_SHIPPED)
        if self.model is not None:
            vars(module)["model"] = self.model
            changes["training.model"] = f"{_SHIPPED}:model"
        if is_own(self.config.data.dataset):
            vars(module)["data"] = lambda: (self.train, self.test)
            changes["data.dataset"] = f"{_SHIPPED}:data"
        sys.modules[_SHIPPED] = module
        return self.config.replace(changes), np.split(self.indices, self.ends[:-1])


@dataclass(frozen=True)
class Machine:
    """What decides the bits of an actor's results."""

    name: str
    versions: Mapping[str, str]
    kernel: str  # of its engine
    instructions: str  # of the processor, as torch uses them

    @classmethod
    def here(cls, engine: Engine) -> Machine:
        """The machine of this process."""
        versions = {"camu": __version__, "torch": torch.__version__, "numpy": np.__version__}
        capability = torch.backends.cpu.get_cpu_capability()
        return cls(platform.node(), versions, engine.kernel, capability)

    def compare(self, other: Machine) -> None:
        """Refuse a machine with other versions or another kernel; warn about other instructions."""
        for package, version in self.versions.items():
            if other.versions[package] != version:
                raise CamuError(
                    f"Ray machine {other.name} has {package} {other.versions[package]}, this one "
                    f"has {version}; install the same version on all machines"
                )
        if other.kernel != self.kernel:
            raise CamuError(
                f"Ray machine {other.name} would train on the kernel {other.kernel!r}, this one on "
                f"{self.kernel!r}, and results would depend on which of them trains; set "
                f"{native.LIMIT}=avx2 in the environment of this command, or machine.kernel = torch"
            )
        if self.kernel.startswith("torch") and other.instructions != self.instructions:
            log.warning(
                "Ray machine %s computes with %s, this one with %s: rounding may differ, so the "
                "run may not be repeatable bit by bit",
                other.name,
                other.instructions,
                self.instructions,
            )


@dataclass(frozen=True, eq=False)
class Round:
    """What all jobs of a round share; sent once per round."""

    number: int
    start: Weights | Sequence[Weights]  # of all jobs, or of each
    deliver: Callable[[int, Trained], Any]


class Actor:
    """One worker of the cluster. Errors of camu and of the user's code are returned as values."""

    def prepare(self, setup: ActorSetup) -> Machine | CamuError:
        """Make the engine."""
        if Path(setup.directory).is_dir():  # errors name files relative to it
            os.chdir(setup.directory)
        os.environ[native.LIMIT] = setup.instructions
        try:
            config, indices = setup.unpack()
            self._engine = Engine.from_config(config, setup.train, indices)
        except CamuError as error:
            return error
        return Machine.here(self._engine)

    def train(self, round_: Round, group: Mapping[int, Job]) -> list[Any] | CamuError:
        """What is delivered of some jobs by number, which train together, or an error."""
        try:
            start = round_.start
            pairs = [
                (start if isinstance(start, Weights) else start[number], job)
                for number, job in group.items()
            ]
            trained = self._engine.train_group(pairs, round_.number)
            return [round_.deliver(*own) for own in zip(group, trained, strict=True)]
        except CamuError as error:
            return error


@dataclass(eq=False)
class _Slot:
    """An actor and the answer that it owes."""

    actor: Any
    answer: Any  # Ray's reference to it; None: the actor is idle
    group: int | None = None  # None: the actor prepares itself
    failures: int = 0  # at starting, one after another


@dataclass(eq=False)
class _Progress:
    """The groups of jobs of a round that are waiting, lost or done, by number."""

    groups: Sequence[Mapping[int, Job]]
    costs: Sequence[int]
    waiting: list[tuple[int, int]] = field(default_factory=list)  # a heap, longest first
    done: dict[int, Any] = field(default_factory=dict)
    lost: Counter[int] = field(default_factory=Counter)

    def add(self, number: int) -> None:
        heapq.heappush(self.waiting, (-self.costs[number], number))


class ActorPool:
    """The actors of a run. Close it to end them."""

    def __init__(self, count: int, setup: ActorSetup, here: Machine) -> None:
        self._here = here
        self._setup = ray.put(setup)
        self._samples = np.diff(setup.ends, prepend=0)
        self._kind = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Actor)
        self._slots: list[_Slot] = []
        for _ in range(count):
            slot = _Slot(None, None)
            self._slots.append(slot)
            self._start(slot)

    def close(self) -> None:
        """End all actors, also those that are at work."""
        for slot in self._slots:
            self._end(slot)

    def train(self, round_: Round, groups: Sequence[Mapping[int, Job]]) -> Iterator[Any]:
        """What is delivered, in the order of the jobs, of which only so many are held at a time."""
        for job in (job for group in groups for job in group.values()):
            job.check(len(self._samples))
        costs = [
            sum(
                job.updates * job.rule.steps * int(self._samples[list(job.members)].sum())
                for job in group.values()
            )
            for group in groups
        ]
        progress, shared, added = _Progress(groups, costs), ray.put(round_), 0
        ahead = max(JOBS_AHEAD, 2 * len(self._slots))
        try:
            for due in range(len(groups)):
                for number in range(added, min(len(groups), due + ahead)):
                    progress.add(number)
                    added = number + 1
                self._hand_out(progress, shared)
                while due not in progress.done:
                    self._collect(progress, round_.number, wait=True)
                    self._hand_out(progress, shared)
                # The caller works on this result while the actors train the next.
                self._collect(progress, round_.number, wait=False)
                self._hand_out(progress, shared)
                outcome = progress.done.pop(due)
                if isinstance(outcome, CamuError):
                    raise outcome
                yield from outcome
        finally:
            for slot in self._slots:  # of a round that was given up
                if slot.group is not None:
                    slot.group, slot.answer = None, None

    def _start(self, slot: _Slot) -> None:
        slot.actor, slot.group = self._kind.remote(), None
        slot.answer = slot.actor.prepare.remote(self._setup)

    def _end(self, slot: _Slot) -> None:
        with contextlib.suppress(RayError, ValueError):  # it may be dead already
            ray.kill(slot.actor)

    def _hand_out(self, progress: _Progress, shared: Any) -> None:
        for slot in self._slots:
            if slot.answer is None and progress.waiting:
                _, slot.group = heapq.heappop(progress.waiting)
                slot.answer = slot.actor.train.remote(shared, progress.groups[slot.group])

    def _collect(self, progress: _Progress, round_number: int, wait: bool) -> None:
        """Take the answers that have come; wait for at least one if asked to."""
        owing = {slot.answer: slot for slot in self._slots if slot.answer is not None}
        if wait:
            at_work = any(slot.group is not None for slot in owing.values())
            limit = None if at_work else START_SECONDS
            if not ray.wait(list(owing), timeout=limit)[0]:
                raise CamuError(
                    f"the Ray cluster had no free processor for {START_SECONDS:.0f} seconds; end "
                    "other work on it, or add machines"
                )
        elif not owing:
            return
        for answer in ray.wait(list(owing), num_returns=len(owing), timeout=0)[0]:
            self._take(owing[answer], progress, round_number)

    def _take(self, slot: _Slot, progress: _Progress, round_number: int) -> None:
        try:
            answer = ray.get(slot.answer)
        except RayTaskError as error:
            cause = f"{type(error.cause).__name__}: {error.cause}"
            raise CamuError(f"A worker on Ray failed: {cause}") from error
        except RayError as error:
            self._replace(slot, error, progress, round_number)
            return
        if slot.group is not None:
            progress.done[slot.group] = answer
        elif isinstance(answer, CamuError):
            raise answer
        else:
            self._here.compare(answer)
        slot.group, slot.answer, slot.failures = None, None, 0

    def _replace(
        self, slot: _Slot, error: RayError, progress: _Progress, round_number: int
    ) -> None:
        """Start another actor in place of one that died, and let its job be done again."""
        last_line = str(error).strip().rpartition("\n")[2]
        reason = last_line.rpartition("Worker exit detail: ")[2]
        self._end(slot)
        if slot.group is None:
            slot.failures += 1
            if slot.failures == ATTEMPTS:
                raise CamuError(
                    f"a worker on Ray died {ATTEMPTS} times at its start; camu must be installed "
                    f"on every machine of the cluster ({reason})"
                )
        else:
            what = _training_of(progress.groups[slot.group], round_number)
            progress.lost[slot.group] += 1
            if progress.lost[slot.group] == ATTEMPTS:
                raise CamuError(f"{what} ended its worker on Ray {ATTEMPTS} times ({reason})")
            log.warning("%s lost its worker on Ray and is repeated", what)
            progress.add(slot.group)
        self._start(slot)


class RayEngine(Engine):
    """Trains on actors; it evaluates and has losses and gradients in this process."""

    actors: ActorPool

    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], Any] = lambda _, trained: trained,
    ) -> Iterator[Any]:
        expected, own = length_hint(jobs), list(jobs)
        groups = [
            {number: own[number] for number in group} for group in self.groups(start, own, expected)
        ]
        return self.actors.train(Round(round_number, start, deliver), groups)


def _training_of(group: Mapping[int, Job], round_number: int) -> str:
    return training_of([own for job in group.values() for own in job.members], round_number)


@contextlib.contextmanager
def ray_trainer(
    config: Config,
    train: Samples,
    device_indices: Sequence[Int64],
    test: Samples,
    test_indices: Sequence[Int64] = (),
    scaling: Scaling | None = None,
) -> Iterator[RayEngine]:
    """A trainer on the connected cluster, or on this machine; its actors end with the block."""
    if config.machine.device == "cuda":
        raise InputError('machine.device = "cuda": Ray actors train on processors; use "cpu"')
    here = config.replace({"machine.device": "cpu", "machine.workers": 0})
    with (
        RayEngine.from_config(here, train, device_indices, test, test_indices, scaling) as engine,
        connected(processors=config.machine.workers),
        _sent_by_value(config),
    ):
        own = is_plugin(config.training.model)
        setup = ActorSetup(
            config.replace({"machine.device": "cpu", "machine.workers": 1}),
            train,
            test,
            np.concatenate([np.asarray(held, np.int64) for held in device_indices]),
            np.cumsum([len(held) for held in device_indices]),
            import_object(config.training.model, "training.model") if own else None,
            os.environ.get(native.LIMIT, ""),
            str(Path.cwd()),
        )
        engine.actors = ActorPool(_actors(config), setup, Machine.here(engine))
        try:
            yield engine
        finally:
            engine.actors.close()


def _actors(config: Config) -> int:
    processors = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
    if processors < max(1, config.machine.workers):
        raise InputError(
            f"machine.workers = {config.machine.workers}: the Ray cluster has {processors} "
            "processors; use fewer workers, or add machines"
        )
    return config.machine.workers or processors


@contextlib.contextmanager
def _sent_by_value(config: Config) -> Iterator[None]:
    """Send the user's own modules with what refers to them; other machines lack these files."""
    modules = {
        module.__name__: module
        for key, value in config.flat().items()
        if isinstance(value, str) and is_plugin(value) and not Path(value).exists()
        for module in own_modules(value, key)
    }
    for module in modules.values():
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules.values():
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
