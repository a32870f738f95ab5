"""Run several schemes on the same worlds, in memory or each in a directory of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.comparison import Comparison, tabulate
from camu.schemes import Scheme, make_scheme
from camu.schemes.registry import configs_for
from camu.simulation.directory import Manifest, RunDirectory, run_in_directory
from camu.simulation.history import History
from camu.simulation.result import simulate
from camu.simulation.run import Callback
from camu.world import World, build_world, with_data


def compare(
    where: Config | World,
    schemes: Sequence[Scheme | str],
    seeds: int = 3,
    target_accuracy: float | None = None,
) -> Comparison:
    """Train each scheme once per seed and compare them; the first scheme is the baseline.

    Parameters:
        where: a configuration, from which every seed builds a world of its own; or a world, whose
            devices, data and links are kept while the seeds change initial weights, batches and
            fading.
        schemes: schemes, or their names as in `camu schemes`.
        seeds: how many seeds, counted from `run.seed` on.
        target_accuracy: the accuracy (0 to 1) whose cost is compared. By default it is the highest
            whole percentage that every run reached, if every run had less before training.

    Returns:
        A table with 95 % intervals over the seeds, with differences paired by seed. Nothing is
        written to disk; `camu compare` keeps every run in a directory.
    """
    if seeds < 1:
        raise InputError(f"compare: seeds = {seeds} must be at least 1")
    config = where if isinstance(where, Config) else where.config
    labelled = _label(_made(config, schemes))
    numbers = range(config.run.seed, config.run.seed + seeds)
    histories: dict[str, list[History]] = {label: [] for label in labelled}
    for seed in numbers:
        world = _world(where, seed)
        for label, scheme in labelled.items():
            histories[label].append(simulate(world, scheme).history)
    return tabulate(histories, numbers, target_accuracy)


def _world(where: Config | World, seed: int) -> World:
    if isinstance(where, Config):
        return with_data(build_world(where, seed))
    return replace(with_data(where), config=where.config.replace({"run.seed": seed}))


def _made(config: Config, schemes: Sequence[Scheme | str]) -> list[Scheme]:
    names = [scheme for scheme in schemes if isinstance(scheme, str)]
    configs = configs_for(config, names) if names else {}
    return [make_scheme(configs[s]) if isinstance(s, str) else s for s in schemes]


def _label(schemes: Sequence[Scheme]) -> dict[str, Scheme]:
    """Schemes by name; a name that appears twice is followed by the fields that differ."""
    if not schemes:
        raise InputError("compare: give at least one scheme")
    found: dict[str, Scheme] = {}
    for scheme in schemes:
        twins = [other for other in schemes if other.name == scheme.name]
        label = scheme.name
        kind: Any = type(scheme)
        if len(twins) > 1 and is_dataclass(kind):
            differing = [
                f"{field.name}={getattr(scheme, field.name)}"
                for field in fields(kind)
                if len({repr(getattr(twin, field.name, None)) for twin in twins}) > 1
            ]
            label = f"{scheme.name} ({', '.join(differing)})" if differing else label
        if label in found:
            raise InputError(f"compare: the scheme {label} is given twice")
        found[label] = scheme
    return found


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
        if run.directory.finished():
            yield run, run.directory.read_history()
            continue
        if reason := run.superseded():
            say(reason)
        if world is None or world.seed != run.config.run.seed:
            world = with_data(build_world(run.config))
        shared = replace(world, config=run.config)
        history = run_in_directory(run.config, run.directory, True, callbacks(run), shared)
        if history.stopped == "interrupted":
            raise KeyboardInterrupt
        yield run, history
