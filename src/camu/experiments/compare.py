"""Compare schemes in memory: the same worlds for all of them, and a table with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.comparison import Comparison, tabulate
from camu.schemes import Scheme, make_scheme
from camu.schemes.registry import configs_for
from camu.simulation.history import History
from camu.simulation.result import simulate
from camu.world import World, build_world


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
            whole percentage that every run reached.

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
        return build_world(where, seed)
    return replace(where, config=where.config.replace({"run.seed": seed}))


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
