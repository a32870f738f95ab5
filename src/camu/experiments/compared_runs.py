"""The runs of a comparison, each in a directory that is named by all that decides it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from camu.config import Config
from camu.errors import InputError
from camu.schemes import make_scheme
from camu.schemes.registry import configs_for
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History
from camu.simulation.manifest import Manifest
from camu.simulation.run import Callback
from camu.world import build_world


@dataclass(frozen=True)
class ComparedRun:
    """One scheme on one seed's world, with the directory of its result."""

    scheme: str
    config: Config
    manifest: Manifest
    directory: RunDirectory

    def superseded(self) -> str | None:
        """Why an earlier result in the same place is not used; None if there is none."""
        earlier = [
            (path.stat().st_mtime, path, found)
            for path in self.directory.path.parent.glob(f"seed-{self.config.run.seed}-*")
            if path != self.directory.path and (found := Manifest.read(path)) is not None
        ]
        if not earlier:
            return None
        _, path, found = max(earlier, key=lambda one: one[0])
        changes = ", ".join(self.manifest.changes_since(found))
        return f"{self.scheme}, seed {self.config.run.seed}: {path} is not used; changed: {changes}"


def compared_runs(
    config: Config, schemes: Sequence[str], seeds: Sequence[int], out: Path
) -> list[ComparedRun]:
    """Every scheme on every seed's world; wrong names are refused before work starts."""
    if len(set(schemes)) < len(schemes) or not schemes:
        raise InputError("--schemes: name at least one scheme, each once")
    configs = configs_for(config, schemes)
    for own in configs.values():
        make_scheme(own)
    found = []
    for seed in seeds:
        for name in schemes:
            own = configs[name].replace({"run.seed": seed})
            manifest = Manifest.of(own)
            folder = out / re.sub(r"[^\w.-]+", ".", name).strip(".")
            directory = RunDirectory(folder / f"seed-{seed}-{manifest.key}")
            found.append(ComparedRun(name, own, manifest, directory))
    return found


def run_all(
    todo: Sequence[ComparedRun],
    callbacks: Callable[[ComparedRun], Sequence[Callback]] = lambda run: (),
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, list[History]]:
    """Run what has no result yet; returns the histories by scheme, in the order of the runs.

    Finished runs are read, and runs that were cut off continue from their checkpoint. `say` gets a
    sentence for every earlier result that differs in a key, in the user's code or in the version.
    """
    histories: dict[str, list[History]] = {}
    for run, history in _histories(todo, callbacks, say):
        histories.setdefault(run.scheme, []).append(history)
    return histories


def _histories(
    todo: Sequence[ComparedRun],
    callbacks: Callable[[ComparedRun], Sequence[Callback]],
    say: Callable[[str], None],
) -> Iterator[tuple[ComparedRun, History]]:
    world = None
    for run in todo:
        if run.directory.summary.exists():
            yield run, run.directory.read_history()
            continue
        if reason := run.superseded():
            say(reason)
        if world is None or world.seed != run.config.run.seed:
            world = build_world(run.config)
        shared = replace(world, config=run.config)
        history = run_in_directory(run.config, run.directory, True, callbacks(run), shared)
        if history.stopped == "interrupted":
            raise KeyboardInterrupt
        yield run, history
