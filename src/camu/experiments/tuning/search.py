"""The search of one scheme: which runs it needs next, and what it makes of their results."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.budgets import with_end
from camu.experiments.scheduler import PlannedRun
from camu.experiments.tuning.ranges import LEAST, Budget, configured
from camu.experiments.tuning.sampler import TOGETHER, give_up, proposals
from camu.experiments.tuning.trial import Trial, trial_of
from camu.experiments.tuning.tuned import Tuned, largest
from camu.learning.metrics import Metric
from camu.learning.task import task_of
from camu.schemes.tunable import Range
from camu.schemes.variants import Variant, keys_of
from camu.simulation.history import History
from camu.simulation.manifest import Manifest, differences

FIRST_SEED = 1000  # tuning has the seeds from here on, reports have those below
VALIDATION_SHARE = 0.2  # of the devices' samples, where data.validation_share is 0
RARELY = 1_000_000  # rounds between evaluations: those near the budgets are enough
# These would end runs at other places than the budgets.
_ENDS = ("run.target", "run.patience", "run.max_joules", "run.max_virtual_seconds")


@dataclass(frozen=True)
class Plan:
    """What is searched of a scheme, at which budgets, with how many trials and which seeds."""

    variant: Variant
    space: dict[str, Range]
    budgets: tuple[Budget, ...]
    trials: int
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """The label of the scheme as the name of a file."""
        return re.sub(r"[^\w.=-]+", ".", self.variant.label).strip(".")

    @property
    def metric(self) -> Metric:
        """What models are judged by."""
        return task_of(self.variant.config).score

    def base(self) -> Config:
        """The configuration of all runs, without settings and seed."""
        config, at = self.variant.config, largest(self.budgets)
        return config.replace(
            {
                **{key: at.get(axis) for axis, key in LEAST.items()},
                "run.rounds": 1,
                "run.eval_every": RARELY,
                "data.validation_share": config.data.validation_share or VALIDATION_SHARE,
                "machine.engine": "local",
                "machine.checkpoint_every": 50,
            }
        )

    def asked(self) -> dict[str, Any]:
        """Everything that decides the trials, as plain data: what the search is of."""
        return {
            "scheme": self.variant.label,
            "ranges": {key: repr(one) for key, one in self.space.items()},
            "budgets": [str(one) for one in self.budgets],
            "seeds": list(self.seeds),
            "manifest": asdict(Manifest.of(self.base().replace({"run.seed": self.seeds[0]}))),
        }


def check_config(config: Config) -> None:
    """Refuse ends of a run that are not its budget, and seeds that are for tuning."""
    values = config.flat()
    for key in _ENDS:
        if values[key] is not None:
            raise InputError(
                f"{key} = {values[key]}: it would end runs elsewhere than at the budget; unset it "
                f"with --set {key}=none"
            )
    if config.run.seed >= FIRST_SEED:
        raise InputError(
            f"run.seed = {config.run.seed}: the seeds from {FIRST_SEED} on are for tuning, so that "
            "no result is reported on a seed it was tuned on; take a smaller one"
        )


def read_seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    """The tuning seeds: so many, or these."""
    if isinstance(given, int):
        if given < 1:
            raise InputError(f"tune: seeds = {given} must be at least 1")
        return tuple(range(FIRST_SEED, FIRST_SEED + given))
    seeds = tuple(given)
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < FIRST_SEED:
        raise InputError(
            f"tune: seeds = {list(seeds)}: give different seeds from {FIRST_SEED} on; those below "
            "are for reports, and nothing is reported on a seed it was tuned on"
        )
    return seeds


@dataclass
class _Open:
    """A trial of the group that is tried now."""

    settings: dict[str, Any]
    histories: list[History] = field(default_factory=list)
    trial: Trial | None = None  # once it is done


class Search:
    """The trials of one scheme; those of earlier calls are read from its journal."""

    def __init__(self, plan: Plan, out: Path, workers: int | None = None) -> None:
        from camu.experiments.tuning.journal import Journal

        self.plan, self.out, self.metric = plan, out, plan.metric
        self._base = plan.base()
        if workers is not None:
            self._base = self._base.replace({"machine.workers": workers})
        asked = plan.asked()
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
        self.path = out / "searches" / f"{plan.name}-{key}.jsonl"
        self.earlier = [] if self.path.exists() else self._others(asked)
        self._journal = Journal(self.path, asked, self.metric, len(plan.budgets))
        self._kept = self._journal.read()
        self.trials = self._kept[: plan.trials]
        self._open: dict[int, _Open] = {}

    def _others(self, asked: Mapping[str, Any]) -> list[str]:
        """A sentence for each earlier search of this scheme that was another one."""
        from camu.experiments.tuning.journal import read_asked_of

        found = []
        for path in sorted(self.path.parent.glob(f"{self.plan.name}-{'[0-9a-f]' * 16}.jsonl")):
            before = read_asked_of(path)
            if not before:
                continue
            own = [{name: one[name] for name in ("budgets", "seeds")} for one in (before, asked)]
            parts = [
                *differences(before["ranges"], asked["ranges"]),
                *differences(own[0], own[1]),
                *Manifest(**asked["manifest"]).changes_since(Manifest(**before["manifest"])),
            ]
            changes = ", ".join(parts)
            found.append(f"{self.plan.variant.label}: {path} is not used; changed: {changes}")
        return found

    @property
    def steps(self) -> int:
        """How many runs are done, with those that pruned trials did not need."""
        seeds = len(self.plan.seeds)
        own = (len(one.histories) if one.trial is None else seeds for one in self._open.values())
        return seeds * len(self.trials) + sum(own)

    @property
    def done(self) -> bool:
        """Whether all trials are done."""
        return len(self.trials) >= self.plan.trials

    def wanted(self) -> dict[int, PlannedRun]:
        """The next run of every trial that is open, by its number; none if all is done."""
        if not self._open and not self.done:
            self._open = dict(self._generation())
        return {
            number: self._run(number, one.settings, len(one.histories))
            for number, one in self._open.items()
            if one.trial is None
        }

    def _generation(self) -> Mapping[int, _Open]:
        """The trials that come next; each group of `TOGETHER` sees those before the group."""
        first = self._first
        numbers = range(first, min(first + TOGETHER, self.plan.trials))
        before = self.trials[:first]
        seed = self.plan.variant.config.run.seed
        space = self.plan.space
        found = proposals(space, before, first, len(numbers), self.metric, seed)
        if first == 0:
            found[0] = configured(self.plan.variant, space)
        return {
            number: _Open(settings)
            for number, settings in zip(numbers, found, strict=True)
            if number >= len(self.trials)
        }

    def _run(self, number: int, settings: Mapping[str, Any], seed: int) -> PlannedRun:
        name, chosen = self.plan.variant.name, self.plan.seeds[seed]
        try:
            config = self._base.replace({**keys_of(name, settings), "run.seed": chosen})
        except InputError as error:
            said = str(error).removeprefix("replace: ")
            raise InputError(f"{self.plan.variant.label}, trial {number}: {said}") from None
        config = with_end(config, largest(self.plan.budgets))
        stem = self.out / "runs" / self.plan.name / f"trial-{number}-seed-{chosen}"
        return PlannedRun.of(config, stem, self.plan.variant.label, self.plan.variant.family)

    def take(self, results: Mapping[int, History]) -> None:
        """Take the results of the runs that were wanted; a group that is done is kept on disk."""
        before = self.trials[: self._first]
        budgets = [(one.axis, one.amount) for one in self.plan.budgets]
        for number, history in results.items():
            own = self._open[number]
            own.histories.append(history)
            trial = trial_of(number, own.settings, own.histories, budgets)
            if len(own.histories) == len(self.plan.seeds):
                own.trial = trial
            elif give_up(trial, before, self.metric):
                own.trial = replace(trial, pruned=True)
        done = [one.trial for one in self._open.values() if one.trial is not None]
        if len(done) == len(self._open):
            for trial in done:
                self._journal.add(trial, self.plan.space, self.metric)
            self.trials += done
            self._open = {}

    @property
    def _first(self) -> int:
        """The first trial of the group that is next: its trials see those before it alone."""
        return len(self.trials) // TOGETHER * TOGETHER

    def outcome(self) -> Tuned:
        """The outcome, once all trials are done."""
        plan = self.plan
        return Tuned(
            plan.variant, plan.budgets, plan.space, plan.seeds, self.metric, tuple(self.trials)
        )
