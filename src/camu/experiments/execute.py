"""Run many configurations on local processes or a Ray cluster; finished runs are skipped.

A result is kept under its name and the hash of its manifest, so that experiments share runs, a
second call does no work, and a call after a kill finishes what is missing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from camu.config import Config, load_config
from camu.errors import CamuError
from camu.files import write_bytes
from camu.learning.pool import available_cores
from camu.simulation.directory import Manifest, RunDirectory, run_in_directory
from camu.simulation.ray_session import connected
from camu.work import Progress, end_with_parent

# The summary comes last: it marks a finished run.
FILES = (
    "config.toml",
    "plan.json",
    "manifest.json",
    "rounds.jsonl",
    "model.safetensors",
    "devices.csv",
    "summary.json",
)


def study_config(changes: Mapping[str, Any]) -> Config:
    """Preset `study` with these keys changed."""
    return load_config(preset="study", overrides=changes)


def result_directory(root: Path, name: str, config: Config) -> RunDirectory:
    """The directory of a configuration's result: its name and the hash of its manifest."""
    return RunDirectory(root / f"{name}-{Manifest.of(config).key}")


def execute(
    configs: Mapping[str, Config],
    root: Path,
    progress: Progress,
    what: str = "runs",
    engine: str = "local",
    address: str | None = None,
    processes: int | None = None,
) -> int:
    """Run the named configurations that have no result below `root`; returns how many."""
    places = {name: result_directory(root, name, config) for name, config in configs.items()}
    missing = {places[n].path: c for n, c in configs.items() if not places[n].finished()}
    done = len(configs) - len(missing)

    def advance(count: int) -> None:
        progress(what, done + count, len(configs))

    advance(0)
    if not missing:
        return 0
    if engine == "ray":
        _run_on_ray(missing, address, advance)
    else:
        _run_locally(missing, processes, advance)
    return len(missing)


def _run_locally(
    missing: dict[Path, Config], processes: int | None, advance: Callable[[int], None]
) -> None:
    """One run per process and core; a run that was cut off continues from its checkpoint."""
    workers = processes or available_cores()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(os.getpid(),))
    try:
        pending: set[Future[str]] = {
            pool.submit(_run_here, config, path) for path, config in missing.items()
        }
        count = 0
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                if future.result() == "interrupted":
                    raise KeyboardInterrupt
                count += 1
            advance(count)
    except BrokenProcessPool:
        raise CamuError(
            "a process that trains was killed, perhaps because memory ran out; finished runs are "
            "kept, and the same command goes on from here"
        ) from None
    except KeyboardInterrupt:
        for worker in multiprocessing.active_children():  # SIGTERM reached this process alone
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGINT)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(parent: int) -> None:
    """Prepare a worker process: it ends with its parent, and can be stopped by it.

    A command in the background (`command &`) ignores Ctrl-C, and its workers would inherit that.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run_here(config: Config, directory: Path) -> str:
    """Run one configuration in its directory; returns why it stopped."""
    return run_in_directory(config, RunDirectory(directory), resume=True).stopped


def run_elsewhere(config: Config) -> dict[str, bytes]:
    """Run one configuration on whatever machine this is; returns its files."""
    with tempfile.TemporaryDirectory(prefix="camu-") as name:
        directory = Path(name) / "run"
        run_in_directory(config, RunDirectory(directory))
        return {file: (directory / file).read_bytes() for file in FILES}


def _run_on_ray(
    missing: dict[Path, Config], address: str | None, advance: Callable[[int], None]
) -> None:
    """One task per run; results come back as files, so machines need share no disk."""
    with connected(address):
        import ray

        task = ray.remote(num_cpus=1)(run_elsewhere)
        paths = {task.remote(config): path for path, config in missing.items()}
        pending, count = list(paths), 0
        while pending:
            finished, pending = ray.wait(pending)
            for reference in finished:
                for file, data in ray.get(reference).items():
                    write_bytes(paths[reference] / file, data)
                count += 1
            advance(count)
