"""`tune`: the best settings of schemes at a budget, found on seeds and samples kept apart."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.scheduler import PlannedRun, Runner, in_turn, run_all
from camu.experiments.tuning.ranges import (
    Asked,
    asked_of,
    read_budgets,
    spaces_of,
)
from camu.experiments.tuning.sampler import require_optuna
from camu.experiments.tuning.search import Plan, Search, check_config, read_seeds
from camu.experiments.tuning.tuned import Tuned
from camu.files import locked
from camu.schemes.variants import read_variants
from camu.work import Progress, silent

TRIALS, SEEDS = 32, 3


def tune(
    config: Config,
    scheme: str | None = None,
    ranges: Mapping[str, Any] | None = None,
    budget: Mapping[str, float] | None = None,
    trials: int = TRIALS,
    seeds: int | Sequence[int] = SEEDS,
    out: str | Path | None = None,
) -> Tuned:
    """Search the best settings of a scheme at a budget, with Optuna (extra `tune`).

    Settings are tried on tuning seeds, with models judged by samples that the devices hold back:
    neither the seeds nor the test samples of a report are used.

    Parameters:
        config: the configuration; its devices hold back `data.validation_share` of their samples,
            20 % if that is 0.
        scheme: a scheme by name, also with parameters (`fedprox@proximal=0.1`), or your own as
            `module:Class`; by default that of the configuration.
        ranges: ranges over those that the scheme names as worth tuning, by parameter or key:
            `{"local_updates": (1, 16), "training.learning_rate": (0.01, 1.0, "log")}`, a list of
            values, or None for what is not to be searched.
        budget: at which joules, seconds or megabytes models are judged: `{"joules": 500}`. With
            several, `front` of the result has the trials that none beats at all of them. By default
            `run.min_joules` and the like.
        trials: how many settings are tried, the configured ones among them.
        seeds: how many tuning seeds, from 1000 on, or these.
        out: a directory for runs and trials, from which a later call continues; by default nothing
            is kept.

    Returns:
        The best settings with their configuration, what they gain, and all trials.
    """
    with contextlib.ExitStack() as stack:
        if out is None:
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix="camu-tune-"))
        words = [config.scheme.name if scheme is None else scheme]
        plans = plans_of(config, words, asked_of(ranges or {}), budget, trials, seeds)
        if len(plans) > 1:
            raise InputError(f"tune: {words[0]} is a family of {len(plans)} schemes; name one")
        [found] = search(plans, Path(out))
        return found


def plans_of(
    config: Config,
    schemes: Sequence[str],
    asked: Sequence[Asked] = (),
    budgets: Mapping[str, float] | Iterable[str] | None = None,
    trials: int = TRIALS,
    seeds: int | Sequence[int] = SEEDS,
) -> list[Plan]:
    """What is searched of these schemes; whatever is wrong is refused before work starts."""
    require_optuna()
    if trials < 1:
        raise InputError(f"tune: trials = {trials} must be at least 1")
    check_config(config)
    read, chosen = tuple(read_budgets(budgets, config)), read_seeds(seeds)
    variants = read_variants(config, schemes)
    return [
        Plan(variant, space, read, trials, chosen)
        for variant, space in zip(variants, spaces_of(variants, asked), strict=True)
    ]


def search(
    plans: Sequence[Plan],
    out: Path,
    runner: Runner | None = None,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda text: None,
) -> list[Tuned]:
    """Try what is missing of these searches, and return their outcomes in the same order.

    The searches go on together, so that processes always have work. `runner` does the runs, one
    worker each; by default they follow one another in this process. `say` gets a sentence for
    every earlier search in the directory that cannot be continued.
    """
    with locked(out / "searches"), few_warnings():
        searches = [Search(plan, out, None if runner is None else 1) for plan in plans]
        for one in searches:
            for reason in one.earlier:
                say(reason)
        total = sum(one.plan.trials * len(one.plan.seeds) for one in searches)
        while wanted := {
            (place, number): run
            for place, one in enumerate(searches)
            for number, run in one.wanted().items()
        }:
            _advance(searches, wanted, runner or in_turn(), progress, total)
        progress("tuning", total, total)
        return [one.outcome() for one in searches]


@contextlib.contextmanager
def few_warnings() -> Iterator[None]:
    """Errors alone: models that blow up are part of a search, with a line for each update."""
    log = logging.getLogger("camu")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _advance(
    searches: Sequence[Search],
    wanted: Mapping[tuple[int, int], PlannedRun],
    runner: Runner,
    progress: Progress,
    total: int,
) -> None:
    """Do these runs, and give each search its results."""
    places = sorted(wanted, key=lambda place: wanted[place].config.run.seed)  # worlds are shared
    before = sum(one.steps for one in searches)
    done = run_all(
        [wanted[place] for place in places],
        runner,
        lambda what, number, of: progress("tuning", before + number, total),
    )
    found = {place: one.history for place, one in zip(places, done, strict=True)}
    for place, one in enumerate(searches):
        own = {number: h for (where, number), h in found.items() if where == place}
        if own:
            one.take(own)
