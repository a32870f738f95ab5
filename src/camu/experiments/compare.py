"""Run several schemes on the same worlds, in memory or each in a directory of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.comparison import Comparison
from camu.experiments.scheduler import FinishedRun, PlannedRun
from camu.experiments.tabulate import budgets_of, tabulate
from camu.learning.task import task_of
from camu.schemes import Scheme, make_scheme
from camu.schemes.variants import read_variants
from camu.simulation.history import History
from camu.simulation.result import simulate
from camu.world import World, build_world, with_data


def compare(
    where: Config | World,
    schemes: Sequence[Scheme | str],
    seeds: int = 3,
    target: float | None = None,
) -> Comparison:
    """Train each scheme once per seed and compare them; the first scheme is the baseline.

    Parameters:
        where: a configuration, from which every seed builds a world of its own; or a world, whose
            devices, data and links are kept while the seeds change initial weights, batches and
            fading.
        schemes: schemes, or their names as in `camu schemes`, also with parameters
            (`camu@threshold_quantile=0.3`), names of families, or `all`.
        seeds: how many seeds, counted from `run.seed` on.
        target: the score whose cost is compared: 0.9 for 90 % accuracy. By default it is the best
            whole percentage, or number of three digits, that every run reached, if every run was
            worse before training.

    Returns:
        A table with 95 % intervals over the seeds, with differences paired by seed. Nothing is
        written to disk; `camu compare` keeps every run in a directory.
    """
    if seeds < 1:
        raise InputError(f"compare: seeds = {seeds} must be at least 1")
    config = where if isinstance(where, Config) else where.config
    if target is not None:
        task_of(config).score.check_target(target, "compare: target =")
    entrants = _entrants(config, schemes)
    numbers = range(config.run.seed, config.run.seed + seeds)
    histories: dict[str, list[History]] = {label: [] for label in entrants}
    for seed in numbers:
        world = with_data(build_world(where, seed) if isinstance(where, Config) else where)
        for label, (own, scheme) in entrants.items():
            here = replace(world, config=own.replace({"run.seed": seed}))
            histories[label].append(simulate(here, scheme).history)
    families = {label: scheme.family for label, (_, scheme) in entrants.items()}
    return tabulate(histories, numbers, target, families, budgets_of(config))


def _entrants(config: Config, schemes: Sequence[Scheme | str]) -> dict[str, tuple[Config, Scheme]]:
    """Every scheme with its configuration, by label; names and families are made into schemes."""
    if not schemes:
        raise InputError("compare: give at least one scheme")
    words = [scheme for scheme in schemes if isinstance(scheme, str)]
    variants = read_variants(config, words) if words else []
    given: list[tuple[str, Config, Scheme]] = []  # the label is empty where it is not known yet
    for scheme in schemes:
        if isinstance(scheme, Scheme):
            given.append(("", config, scheme))
            continue
        for variant in variants:
            if variant.word == scheme:
                label = "" if variant.label == variant.name else variant.label
                given.append((label, variant.config, make_scheme(variant.config)))
    unnamed = [scheme for label, _, scheme in given if not label]
    found: dict[str, tuple[Config, Scheme]] = {}
    for known, own, scheme in given:
        label = known or _label(scheme, unnamed)
        if label in found:
            raise InputError(f"compare: the scheme {label} is given twice")
        found[label] = (own, scheme)
    return found


def _label(scheme: Scheme, schemes: Sequence[Scheme]) -> str:
    """The name of a scheme, followed by the fields in which it differs from its namesakes."""
    twins = [other for other in schemes if other.name == scheme.name]
    kind: Any = type(scheme)
    differing = [
        f"{field.name}={getattr(scheme, field.name)}"
        for field in (fields(kind) if is_dataclass(kind) else ())
        if len({repr(getattr(twin, field.name, None)) for twin in twins}) > 1
    ]
    return " ".join([scheme.name, *differing])


def compared_runs(
    config: Config, schemes: Sequence[str], seeds: Sequence[int], out: Path
) -> list[PlannedRun]:
    """Every scheme on every seed's world; wrong names are refused before work starts."""
    variants = read_variants(config, schemes)
    return [
        PlannedRun.of(
            variant.config.replace({"run.seed": seed}),
            out / re.sub(r"[^\w.-]+", ".", variant.label).strip(".") / f"seed-{seed}",
            variant.label,
            variant.family,
        )
        for seed in seeds
        for variant in variants
    ]


def tabulate_runs(done: Sequence[FinishedRun], target: float | None = None) -> Comparison:
    """The comparison of finished runs."""
    planned = [one.planned for one in done]
    seeds = list(dict.fromkeys(run.config.run.seed for run in planned))
    families = {run.label: run.family for run in planned}
    budgets = budgets_of(planned[0].config)
    return tabulate(by_scheme(done), seeds, target, families, budgets)


def by_scheme(done: Sequence[FinishedRun]) -> dict[str, list[History]]:
    """The histories of finished runs, by the label of their scheme."""
    histories: dict[str, list[History]] = {}
    for one in done:
        histories.setdefault(one.planned.label, []).append(one.history)
    return histories
