"""Several schemes on the same worlds: what each reaches, and what it costs to get there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.statistics import Estimate, estimate, paired
from camu.schemes import make_scheme
from camu.simulation.callbacks import ProgressBar
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History
from camu.world import build_world


@dataclass(frozen=True)
class Row:
    """One scheme over all seeds; None where a run never got there."""

    scheme: str
    final_accuracy: Estimate
    difference: Estimate | None  # to the first scheme, paired by seed
    at_equal_joules: Estimate | None
    at_equal_seconds: Estimate | None
    rounds_to_target: Estimate | None
    joules_to_target: Estimate | None
    seconds_to_target: Estimate | None
    reached_target: int


@dataclass(frozen=True)
class Comparison:
    """The table, with the budgets and the target it speaks of."""

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    equal_joules: float
    equal_seconds: float
    target_accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)


Histories = dict[str, list[History]]


def run_all(
    config: Config,
    schemes: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    progress: bool = True,
    told: Callable[[str], None] = lambda text: None,
) -> Histories:
    """Run every scheme on every seed's world, each in its own directory below `out`.

    What is finished there is not run again, and what was cut off goes on from its checkpoint.
    """
    if len(set(schemes)) < len(schemes) or not schemes:
        raise InputError("--schemes: name at least one scheme, each once")
    configs = {name: config.replace({"scheme.name": name}) for name in schemes}
    for each in configs.values():
        make_scheme(each)  # wrong names are refused before work starts
    histories: Histories = {name: [] for name in schemes}
    for seed in seeds:
        world = None
        for name in schemes:
            own = configs[name].replace({"run.seed": seed})
            directory = RunDirectory(out / name.replace(":", ".") / f"seed-{seed}")
            if world is None:
                world = build_world(own)
            bars = [ProgressBar(f"{name}, seed {seed}")] if progress else []
            shared = type(world)(**{**vars(world), "config": own})
            history = run_in_directory(own, directory, True, bars, shared)
            if history.stopped == "interrupted":
                raise KeyboardInterrupt
            histories[name].append(history)
            told(f"{name}, seed {seed}: {history.final_accuracy:.2%}")
    return histories


def compare(
    histories: Histories, seeds: Sequence[int], target_accuracy: float | None = None
) -> Comparison:
    """The table of a set of histories.

    Equal joules and equal seconds are the least that any run spent in all, so that every run has
    got that far. Without a target given, it is the accuracy that the weakest run still reached.
    """
    everyone = [history for own in histories.values() for history in own]
    joules = min(history.final.total_joules for history in everyone)
    seconds = min(history.final.virtual_seconds for history in everyone)
    if target_accuracy is None:
        target_accuracy = int(100 * min(history.best_accuracy for history in everyone)) / 100
    first = [history.final_accuracy for history in next(iter(histories.values()))]
    rows = []
    for index, (name, own) in enumerate(histories.items()):
        finals = [history.final_accuracy for history in own]
        needed = {
            key: [history.needed_for(key, target_accuracy) for history in own]
            for key in ("rounds", "joules", "seconds")
        }
        rows.append(
            Row(
                scheme=name,
                final_accuracy=estimate(finals),
                difference=paired(finals, first) if index else None,
                at_equal_joules=_all([h.accuracy_within("joules", joules) for h in own]),
                at_equal_seconds=_all([h.accuracy_within("seconds", seconds) for h in own]),
                rounds_to_target=_all(needed["rounds"]),
                joules_to_target=_all(needed["joules"]),
                seconds_to_target=_all(needed["seconds"]),
                reached_target=sum(value is not None for value in needed["rounds"]),
            )
        )
    return Comparison(tuple(rows), tuple(seeds), joules, seconds, target_accuracy)


def _all(values: Sequence[float | None]) -> Estimate | None:
    """The estimate if every run has a value: leaving runs out would flatter the scheme."""
    known = [value for value in values if value is not None]
    return estimate(known) if len(known) == len(values) else None
