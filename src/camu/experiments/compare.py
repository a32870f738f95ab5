"""Run several schemes on the same worlds, in memory or each in a directory of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.comparison import Budgets, Comparison, tabulate
from camu.schemes import Scheme, make_scheme
from camu.schemes.variants import read_variants
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
        schemes: schemes, or their names as in `camu schemes`, also with parameters
            (`camu@threshold_quantile=0.3`), names of families, or `all`.
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
    entrants = _entrants(config, schemes)
    numbers = range(config.run.seed, config.run.seed + seeds)
    histories: dict[str, list[History]] = {label: [] for label in entrants}
    for seed in numbers:
        world = _world(where, seed)
        for label, (own, scheme) in entrants.items():
            config_here = own.replace({"run.seed": seed})
            history = simulate(replace(world, config=config_here), scheme).history
            histories[label].append(history)
    families = {label: scheme.family for label, (_, scheme) in entrants.items()}
    return tabulate(histories, numbers, target_accuracy, families, Budgets.of(config))


def _world(where: Config | World, seed: int) -> World:
    if isinstance(where, Config):
        return with_data(build_world(where, seed))
    return replace(with_data(where), config=where.config.replace({"run.seed": seed}))


def _entrants(config: Config, schemes: Sequence[Scheme | str]) -> dict[str, tuple[Config, Scheme]]:
    """Every scheme with its configuration, by label; names and families are made into schemes."""
    if not schemes:
        raise InputError("compare: give at least one scheme")
    words = [scheme for scheme in schemes if isinstance(scheme, str)]
    variants = read_variants(config, words) if words else []
    given: list[tuple[str | None, Config, Scheme]] = []  # a label where it is known already
    for scheme in schemes:
        if isinstance(scheme, Scheme):
            given.append((None, config, scheme))
            continue
        given += [
            (v.label if v.label != v.name else None, v.config, make_scheme(v.config))
            for v in variants
            if v.word == scheme
        ]
    labels = iter(_labels([scheme for label, _, scheme in given if label is None]))
    found: dict[str, tuple[Config, Scheme]] = {}
    for known, own, scheme in given:
        label = known or next(labels)
        if label in found:
            raise InputError(f"compare: the scheme {label} is given twice")
        found[label] = (own, scheme)
    return found


def _labels(schemes: Sequence[Scheme]) -> list[str]:
    """The names of schemes; a name that appears twice is followed by the fields that differ."""
    found = []
    for scheme in schemes:
        twins = [other for other in schemes if other.name == scheme.name]
        differing: list[str] = []
        kind: Any = type(scheme)
        if len(twins) > 1 and is_dataclass(kind):
            differing = [
                f"{field.name}={getattr(scheme, field.name)}"
                for field in fields(kind)
                if len({repr(getattr(twin, field.name, None)) for twin in twins}) > 1
            ]
        found.append(" ".join([scheme.name, *differing]))
    return found


@dataclass(frozen=True)
class ComparedRun:
    """One scheme on one seed's world, with the directory of its result."""

    scheme: str  # its label
    family: str
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
    variants = read_variants(config, schemes)
    found = []
    for seed in seeds:
        for variant in variants:
            own = variant.config.replace({"run.seed": seed})
            manifest = Manifest.of(own)
            folder = out / re.sub(r"[^\w.-]+", ".", variant.label).strip(".")
            directory = RunDirectory(folder / f"seed-{seed}-{manifest.key}")
            found.append(ComparedRun(variant.label, variant.family, own, manifest, directory))
    return found


def tabulate_runs(
    runs: Sequence[ComparedRun],
    histories: dict[str, list[History]],
    target_accuracy: float | None = None,
) -> Comparison:
    """The comparison of runs that are done."""
    seeds = list(dict.fromkeys(run.config.run.seed for run in runs))
    families = {run.scheme: run.family for run in runs}
    return tabulate(histories, seeds, target_accuracy, families, Budgets.of(runs[0].config))


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
