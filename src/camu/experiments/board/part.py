"""A part of a board, a scheme in a world: its settings are searched, and reported on other seeds.

The scheme has two searches: its learning rate alone (the table `published`), and all that it names
as worth tuning (the table `tuned`). Each budget has the best trial at that budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config
from camu.errors import InputError
from camu.experiments.board.figures import figures
from camu.experiments.board.protocol import AXES, TABLES, Protocol, Table, World
from camu.experiments.budgets import with_end
from camu.experiments.scheduler import PlannedRun, Runner, run_all
from camu.experiments.tuning.ranges import LEAST, Budget, spaces_of
from camu.experiments.tuning.sampler import require_optuna
from camu.experiments.tuning.search import Plan
from camu.experiments.tuning.trial import Trial, trial_of
from camu.experiments.tuning.tune import search
from camu.experiments.tuning.tuned import largest
from camu.schemes.catalogue import SCHEMES
from camu.schemes.variants import Variant, keys_of, read_variants
from camu.sealed import read_sealed_json, write_sealed_json
from camu.simulation.directory import RunDirectory
from camu.simulation.history import History
from camu.work import Progress, silent

RATE = "training.learning_rate"
PARTS = "parts"
REMEDY = "remove it and call `camu board run` again: finished runs are used again"


@dataclass(frozen=True)
class Part:
    """A scheme, as users write it, in a world of a protocol."""

    protocol: Protocol
    world: World
    word: str

    @cached_property
    def variant(self) -> Variant:
        """The scheme with the configuration that all its runs begin with."""
        found = read_variants(self.world.config(self.protocol.rules.aids), [self.word])
        if len(found) > 1:
            raise InputError(f"{self.word}: this is a family of {len(found)} schemes; name one")
        return found[0]

    @property
    def is_own(self) -> bool:
        """Whether the user brings the scheme: neither the protocol nor camu has it."""
        return self.word not in self.protocol.rules.schemes

    @property
    def plan(self) -> Plan:
        """The search of the tuned table."""
        rules, [space] = self.protocol.rules, spaces_of([self.variant], [])
        budgets, seeds = tuple(self.world.flat_budgets()), tuple(rules.tuning_seeds)
        return Plan(self.variant, space, budgets, rules.trials, seeds)

    def check(self) -> None:
        """Refuse wrong schemes, parameters and ranges before work starts."""
        require_optuna()
        self.plan.base()

    def path(self, out: Path) -> Path:
        """Where its results are."""
        scheme = re.sub(r"[^\w.=-]+", ".", self.variant.label).strip(".")
        return out / PARTS / f"{self.world.name}-{scheme}.json"

    def folder(self, out: Path) -> Path:
        """Where its runs are."""
        return out / "work" / self.world.name

    def reported(self, settings: Mapping[str, Any], at: Mapping[str, float], seed: int) -> Config:
        """The configuration of a reported run, which goes on until these budgets are spent."""
        keys = {
            **keys_of(self.variant.name, settings),
            **{key: at.get(axis) for axis, key in LEAST.items()},
            **self.protocol.reported(self.world, seed),
        }
        return with_end(self.variant.config.replace(keys), at)


def run_part(part: Part, out: Path, runner: Runner, progress: Progress = silent) -> dict[str, Any]:
    """The results of a part, with what is missing run first; they are kept in `out`."""
    path = part.path(out)
    if not part.is_own and path.exists():
        known = read_part(path)
        if known["protocol"] == part.protocol.sha256 and known["version"] == __version__:
            return known
    trials = {"published": _rates(part, out, runner, progress)}
    found = search([part.plan], part.folder(out), runner, progress)
    trials["tuned"] = [*trials["published"], *found[0].trials]
    entries = _report(part, _chosen(part, trials), out, runner, progress)
    result = {
        "protocol": part.protocol.sha256,
        "name": part.protocol.rules.name,
        "version": __version__,
        "world": part.world.name,
        "scheme": part.variant.label,
        "word": part.word,
        "family": part.variant.family,
        "own": part.is_own,
        "wall_seconds": round(_wall_seconds(part, out), 1),
        "entries": entries,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed_json(path, result)
    return result


def read_part(path: Path) -> dict[str, Any]:
    """The results of a part as they were written."""
    return read_sealed_json(path, "results of the board", REMEDY)


def _rates(part: Part, out: Path, runner: Runner, progress: Progress) -> list[Trial]:
    """The scheme as published at each learning rate, on the tuning seeds."""
    plan, folder = part.plan, part.folder(out) / "runs" / f"{part.plan.name}-rates"
    at = largest(plan.budgets)
    todo = [
        PlannedRun.of(
            with_end(plan.base().replace({RATE: rate, "run.seed": seed}), at),
            folder / f"rate-{rate:g}-seed-{seed}",
            part.variant.label,
        )
        for rate in part.protocol.rates.values
        for seed in plan.seeds
    ]
    done = [one.history for one in run_all(todo, runner, progress, "learning rates")]
    budgets, seeds = [(one.axis, one.amount) for one in plan.budgets], len(plan.seeds)
    return [
        trial_of(number, {RATE: rate}, done[number * seeds : (number + 1) * seeds], budgets)
        for number, rate in enumerate(part.protocol.rates.values)
    ]


@dataclass(frozen=True)
class _Choice:
    """The best trial of a table at one budget."""

    table: Table
    budget: str
    axis: str
    amount: float
    trial: Trial
    validation: float
    trials: int


def _chosen(part: Part, trials: Mapping[str, Sequence[Trial]]) -> list[_Choice]:
    """The best trial of each table and budget, by its mean over the tuning seeds."""
    metric, found = part.plan.metric, []
    places = [(name, axis) for name in part.world.budgets for axis in AXES]
    for table in TABLES:
        whole = [one for one in trials[table] if not one.pruned]
        for number, ((name, axis), budget) in enumerate(
            zip(places, part.world.flat_budgets(), strict=True)
        ):
            best = max(whole, key=lambda one, number=number: one.mean(number, metric))  # type: ignore[misc]
            score = best.mean(number, metric)
            tried = len(trials[table])
            found.append(_Choice(table, name, axis, budget.amount, best, score, tried))
    return found


def _report(
    part: Part, chosen: Sequence[_Choice], out: Path, runner: Runner, progress: Progress
) -> list[dict[str, Any]]:
    """The chosen settings on the reporting seeds; equal settings are run once for all budgets."""
    at: dict[str, dict[str, float]] = {}
    for one in chosen:
        budgets = at.setdefault(repr(one.trial.settings), {})
        budgets[one.axis] = max(one.amount, budgets.get(one.axis, 0.0))
    folder = part.folder(out) / "runs" / f"{part.plan.name}-reported"
    planned: dict[tuple[str, int], PlannedRun] = {}
    for one in chosen:
        for seed in part.protocol.rules.reporting_seeds:
            key = repr(one.trial.settings)
            config = part.reported(one.trial.settings, at[key], seed)
            planned[key, seed] = PlannedRun.of(config, folder / f"seed-{seed}", part.variant.label)
    finished = run_all(list(planned.values()), runner, progress, "reported runs")
    histories = {key: run.history for key, run in zip(planned, finished, strict=True)}
    return [
        {
            "table": one.table,
            "budget": one.budget,
            "axis": one.axis,
            "amount": one.amount,
            "trials": one.trials,
            "settings": one.trial.settings,
            "until": at[repr(one.trial.settings)],
            "validation": one.validation,
            "runs": [
                _run(part, histories[repr(one.trial.settings), seed], one, seed)
                for seed in part.protocol.rules.reporting_seeds
            ],
        }
        for one in chosen
    ]


def _run(part: Part, history: History, choice: _Choice, seed: int) -> dict[str, Any]:
    read = figures(history, Budget(choice.axis, choice.amount), part.world.target)
    return {"seed": seed, **read, "weights_sha256": history.weights_sha256}


def _wall_seconds(part: Part, out: Path) -> float:
    """How long all runs of a part took, one after another."""
    runs = part.folder(out) / "runs"
    names = (f"{part.plan.name}{more}" for more in ("", "-rates", "-reported"))
    found = [path for name in names for path in (runs / name).glob("*/summary.json")]
    return sum(float(RunDirectory(path.parent).read_summary()["wall_seconds"]) for path in found)


def parts_of(
    protocol: Protocol, worlds: Sequence[str], schemes: Sequence[str], own: Sequence[str] = ()
) -> list[Part]:
    """The parts of these worlds and schemes, all if none is named, and of the user's schemes."""
    for what, asked, known in (
        ("--world", worlds, list(protocol.worlds)),
        ("--only", schemes, protocol.rules.schemes),
    ):
        for name in asked:
            if name not in known:
                raise InputError(f"{what} {name}: the protocol has {', '.join(known)}")
    names = [*(schemes or ([] if own else protocol.rules.schemes)), *own]
    unknown = [name for name in protocol.rules.schemes if name not in SCHEMES]
    if unknown:
        raise InputError(f"protocol {protocol.rules.name}: no such scheme: {', '.join(unknown)}")
    return [
        Part(protocol, protocol.worlds[world], name)
        for world in (worlds or protocol.worlds)
        for name in names
    ]
