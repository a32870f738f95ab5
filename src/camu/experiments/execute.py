"""Run many configurations on local processes or a Ray cluster; what is done is not done again.

A result is kept under the hash of what decides it, so that experiments share runs, a second call
does no work, and a call after a kill finishes what is missing.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from camu.config import Config, load_config
from camu.errors import CamuError, InputError
from camu.files import write_text
from camu.simulation.checkpoint import FREE_KEYS
from camu.simulation.directory import RunDirectory, run_in_directory

FILES = ("config.toml", "plan.json", "rounds.jsonl", "summary.json")
Told = Callable[[int, int], None]  # runs done, runs in all


def study_config(changes: dict[str, Any]) -> Config:
    """Preset `study` with these keys changed."""
    return load_config(preset="study", overrides=changes)


def result_key(config: Config) -> str:
    """The hash of everything that decides a result: what differs from the defaults."""
    keys = {
        f"{section}.{key}": value
        for section, values in config.model_dump(exclude_defaults=True).items()
        for key, value in values.items()
        if f"{section}.{key}" not in FREE_KEYS - {"run.rounds", "run.max_joules"}
    }
    text = json.dumps(keys, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def result_directory(root: Path, config: Config) -> RunDirectory:
    """Where the result of a configuration is kept."""
    return RunDirectory(root / result_key(config))


def execute(
    configs: Iterable[Config],
    root: Path,
    told: Told,
    engine: str = "local",
    address: str | None = None,
    processes: int | None = None,
) -> int:
    """Run what is missing; returns how many runs that was."""
    unique = {result_key(config): config for config in configs}
    missing = {
        key: config
        for key, config in unique.items()
        if not RunDirectory(root / key).summary.exists()
    }
    done = len(unique) - len(missing)
    told(done, len(unique))
    if not missing:
        return 0
    if engine == "ray":
        _run_on_ray(missing, root, address, lambda count: told(done + count, len(unique)))
    else:
        _run_locally(missing, root, processes, lambda count: told(done + count, len(unique)))
    return len(missing)


def _run_locally(
    missing: dict[str, Config], root: Path, processes: int | None, told: Callable[[int], None]
) -> None:
    """One run per process and core; a run that was cut off goes on from its checkpoint."""
    workers = processes or len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, context, initializer=_die_with_parent, initargs=(os.getpid(),)
    )
    try:
        pending: set[Future[str]] = {
            pool.submit(_run_here, config.to_toml(), str(root / key))
            for key, config in missing.items()
        }
        count = 0
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                if future.result() == "interrupted":
                    raise KeyboardInterrupt
                count += 1
            told(count)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _die_with_parent(parent: int) -> None:
    """End this worker when the study is killed, so that a second call finds no one at work."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_here(config_toml: str, directory: str) -> str:
    """Run one configuration in its directory; returns why it stopped."""
    config = Config.from_toml(config_toml)
    return run_in_directory(config, RunDirectory(Path(directory)), resume=True).stopped


def run_elsewhere(config_toml: str) -> dict[str, str]:
    """Run one configuration on whatever machine this is; returns its files."""
    with tempfile.TemporaryDirectory(prefix="camu-") as name:
        directory = Path(name) / "run"
        run_in_directory(Config.from_toml(config_toml), RunDirectory(directory))
        return {file: (directory / file).read_text(encoding="utf-8") for file in FILES}


def _run_on_ray(
    missing: dict[str, Config], root: Path, address: str | None, told: Callable[[int], None]
) -> None:
    """One task per run; results come back as files, so machines need share no disk."""
    try:
        import ray
    except ImportError:
        raise InputError(
            "--engine ray: install the extra with pip install 'camu-fl[ray]'"
        ) from None
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise CamuError(f"--address {address}: no Ray cluster answers there ({error})") from None
    try:
        task = ray.remote(num_cpus=1)(run_elsewhere)
        keys = {task.remote(config.to_toml()): key for key, config in missing.items()}
        pending, count = list(keys), 0
        while pending:
            finished, pending = ray.wait(pending)
            for reference in finished:
                for file, text in ray.get(reference).items():
                    write_text(root / keys[reference] / file, text)
                count += 1
            told(count)
    finally:
        ray.shutdown()
