"""Runs many configurations: one after another, on local processes or on a Ray cluster.

A result is kept under its name and the hash of its manifest, so that experiments share runs, a
second call does no work, and a call after a kill finishes what is missing.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from camu.config import Config, load_config
from camu.errors import CamuError
from camu.files import write_bytes
from camu.learning.pool import available_cores
from camu.outputs import RUN_FILES
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History
from camu.simulation.manifest import Manifest
from camu.simulation.ray_session import connected
from camu.simulation.run import Callback
from camu.work import Progress, end_with_parent, silent
from camu.world import build_world, with_data


def study_config(changes: Mapping[str, Any]) -> Config:
    """Preset `study` with these keys changed."""
    return load_config(preset="study", overrides=changes)


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A configuration with the directory of its result."""

    config: Config
    manifest: Manifest
    directory: RunDirectory
    label: str = ""  # of its scheme, in a comparison
    family: str = ""

    @classmethod
    def of(cls, config: Config, stem: Path, label: str = "", family: str = "") -> PlannedRun:
        """A run whose directory is `stem` followed by the hash of its manifest."""
        manifest = Manifest.of(config)
        directory = RunDirectory(stem.with_name(f"{stem.name}-{manifest.key}"))
        return cls(config, manifest, directory, label, family)

    def superseded(self) -> str | None:
        """Why an earlier result in the same place is not used; None if there is none."""
        own, stem = self.directory.path, self.directory.path.name.removesuffix(self.manifest.key)
        earlier = [
            (path.stat().st_mtime, path, found)
            for path in own.parent.glob(f"{stem}*")
            if path != own and (found := Manifest.read(path)) is not None
        ]
        if not earlier:
            return None
        _, path, found = max(earlier, key=lambda one: one[0])
        changes = ", ".join(self.manifest.changes_since(found))
        return f"{self.label}, seed {self.config.run.seed}: {path} is not used; changed: {changes}"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A result, read or made; `trained` says that this call made it."""

    planned: PlannedRun
    history: History
    trained: bool


Done = Generator[tuple[PlannedRun, History], None, None]  # each run as soon as it is done
Runner = Callable[[Sequence[PlannedRun]], Done]


def run_all(
    todo: Sequence[PlannedRun], runner: Runner, progress: Progress = silent, what: str = "runs"
) -> list[FinishedRun]:
    """Run what has no result yet; the results are in the order of the runs.

    Finished runs are read once, and runs that were cut off continue from their checkpoint.
    """
    found = {
        run: FinishedRun(run, run.directory.read_history(), False)
        for run in todo
        if run.directory.summary.exists()
    }
    progress(what, len(found), len(todo))
    if missing := [run for run in todo if run not in found]:
        with contextlib.closing(runner(missing)) as done:
            for run, history in done:
                found[run] = FinishedRun(run, history, True)
                progress(what, len(found), len(todo))
    return [found[run] for run in todo]


Key = TypeVar("Key", bound=Hashable)


@dataclass
class Executor:
    """Runs configurations below a directory, many at once, and remembers the results."""

    out: Path
    progress: Progress = silent
    engine: str = "local"  # or ray
    address: str | None = None  # of a Ray cluster
    done: list[FinishedRun] = field(default_factory=list)

    def run(
        self,
        configs: Mapping[Key, Config],
        name: Callable[[Key], str] = str,
        folder: str = "runs",
        what: str = "runs",
    ) -> dict[Key, FinishedRun]:
        """The results of these configurations, kept in `folder` below the name of their key."""
        root = self.out / folder
        todo = [PlannedRun.of(config, root / name(key)) for key, config in configs.items()]
        runner = on_ray(self.address) if self.engine == "ray" else on_processes
        found = run_all(todo, runner, self.progress, what)
        self.done += found
        return dict(zip(configs, found, strict=True))

    @property
    def trained(self) -> int:
        """How many results this executor made."""
        return sum(one.trained for one in self.done)

    @property
    def reused(self) -> int:
        """How many results were there before."""
        return len(self.done) - self.trained


def in_turn(
    callbacks: Callable[[PlannedRun], Sequence[Callback]] = lambda run: (),
    say: Callable[[str], None] = lambda text: None,
) -> Runner:
    """One run after another in this process, for runs that differ in their scheme and seed alone.

    Those with the same seed share their world. `say` gets a sentence for every earlier result that
    differs in a key, in the user's code or in the version.
    """

    def run_here(missing: Sequence[PlannedRun]) -> Done:
        world = None
        for run in missing:
            if reason := run.superseded():
                say(reason)
            if world is None or world.seed != run.config.run.seed:
                world = with_data(build_world(run.config))
            shared = replace(world, config=run.config)
            watchers = callbacks(run)
            history = run_in_directory(
                run.config, run.directory, True, watchers, shared, manifest=run.manifest
            )
            if history.stopped == "interrupted":
                raise KeyboardInterrupt
            yield run, history

    return run_here


def on_processes(missing: Sequence[PlannedRun]) -> Done:
    """One run per process and core."""
    with processes() as runner:
        yield from runner(missing)


@contextlib.contextmanager
def processes(level: int = logging.WARNING) -> Iterator[Runner]:
    """A runner with one process per core, which are kept from call to call inside the block.

    They log what is of this level or above.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(available_cores(), context, _begin_worker, (os.getpid(), level))

    def run_there(missing: Sequence[PlannedRun]) -> Done:
        try:
            pending = {pool.submit(_run_in_worker, run): run for run in missing}
            for future in as_completed(pending):
                if future.result() == "interrupted":
                    raise KeyboardInterrupt
                yield pending[future], pending[future].directory.read_history()
        except BrokenProcessPool:
            raise CamuError(
                "a process that trains was killed, perhaps because memory ran out; finished runs "
                "are kept, and the same command goes on from here"
            ) from None

    try:
        yield run_there
    except (KeyboardInterrupt, GeneratorExit):
        for worker in multiprocessing.active_children():  # SIGTERM reached this process alone
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGINT)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(parent: int, level: int) -> None:
    """Prepare a worker process: it ends with its parent, and can be stopped by it.

    A command in the background (`command &`) ignores Ctrl-C, and its workers would inherit that.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger("camu").setLevel(level)


def _run_in_worker(run: PlannedRun) -> str:
    """Do a run in its directory; returns why it stopped."""
    history = run_in_directory(run.config, run.directory, resume=True, manifest=run.manifest)
    return history.stopped


def on_ray(address: str | None = None) -> Runner:
    """One task per run; results come back as files, so that machines need share no disk."""

    def run_on_ray(missing: Sequence[PlannedRun]) -> Done:
        with connected(address):
            import ray

            task = ray.remote(num_cpus=1)(_run_elsewhere)
            runs = {task.remote(run.config): run for run in missing}
            pending = list(runs)
            while pending:
                finished, pending = ray.wait(pending)
                for reference in finished:
                    run = runs[reference]
                    for file, data in ray.get(reference).items():
                        write_bytes(run.directory.path / file, data)
                    yield run, run.directory.read_history()

    return run_on_ray


def _run_elsewhere(config: Config) -> dict[str, bytes]:
    """Run one configuration on whatever machine this is; returns its files."""
    with tempfile.TemporaryDirectory(prefix="camu-") as name:
        directory = Path(name) / "run"
        run_in_directory(config, RunDirectory(directory))
        return {file: (directory / file).read_bytes() for file in RUN_FILES}
