"""What is tried next and what is given up: Optuna, asked so that nothing else decides the answer.

Each question is asked of a study that is made for it: from the trials before, with a seed of its
own. So the trials of a search are the same wherever and however often it was interrupted.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from camu.errors import InputError
from camu.experiments.tuning.ranges import inside, spread, tidy
from camu.experiments.tuning.trial import Trial
from camu.learning.metrics import Metric
from camu.schemes.tunable import OneOf, Range
from camu.seeding import derive

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

# Trials that are chosen together, so that processes have work; none of them sees the others'
# scores. The number is fixed, because the trials depend on it.
TOGETHER = 4
START = 8  # trials before the sampler: as configured, and points that are spread evenly
LEAST_TO_PRUNE = 4  # trials with all seeds before one is given up


def require_optuna() -> None:
    """Refuse to go on if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise InputError("camu tune: install the extra with pip install 'camu-fl[tune]'")


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without its notes, and without warnings that parts of it may change."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def distributions(space: Mapping[str, Range]) -> dict[str, BaseDistribution]:
    """The ranges as Optuna knows them."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    found: dict[str, BaseDistribution] = {}
    for key, one in space.items():
        if isinstance(one, OneOf):
            found[key] = CategoricalDistribution(one.values)
        elif one.whole:
            found[key] = IntDistribution(int(one.low), int(one.high), log=one.log)
        else:
            found[key] = FloatDistribution(one.low, one.high, log=one.log)
    return found


def proposals(
    space: Mapping[str, Range],
    before: Sequence[Trial],
    first: int,
    count: int,
    metric: Metric,
    seed: int,
) -> list[dict[str, Any]]:
    """The settings of so many trials from number `first` on, which are tried together.

    `before` are the trials that came before all of them.
    """
    found: list[dict[str, Any]] = []
    while len(found) < count:
        number = first + len(found)
        if number < START:
            settings = _spread(space, number, seed)
        else:
            settings = _next(space, before, found, number, metric, seed)
        found.append(tidy(space, settings))
    return found


def _spread(space: Mapping[str, Range], number: int, seed: int) -> dict[str, Any]:
    """A point of a sequence that fills the ranges evenly."""
    from scipy.stats import qmc

    generator = derive(seed, "tuning").numpy()
    points = qmc.Halton(len(space), scramble=True, rng=generator).random(START)
    return spread(space, points[number].tolist())


def _next(
    space: Mapping[str, Range],
    before: Sequence[Trial],
    beside: Sequence[Mapping[str, Any]],
    number: int,
    metric: Metric,
    seed: int,
) -> dict[str, Any]:
    """What Optuna's sampler tries after these trials, beside some whose score is not known.

    It fits a Gaussian process to the mean scores; of trials that were given up, to those they have.
    """
    import optuna
    import torch
    from optuna.trial import TrialState, create_trial

    ranges, threads = distributions(space), torch.get_num_threads()
    torch.set_num_threads(1)  # sums in another order would give other settings
    try:
        with quiet():
            own = derive(seed, "tuning", number).torch_seed % 2**32
            sampler = optuna.samplers.GPSampler(n_startup_trials=1, seed=own)
            width = len(before[0].scores[0])
            study = optuna.create_study(directions=[direction(metric)] * width, sampler=sampler)
            study.add_trials(
                create_trial(
                    values=[one.mean(budget, metric) for budget in range(width)],
                    params=one.settings,
                    distributions=ranges,
                )
                for one in before
                if inside(space, one.settings)
            )
            study.add_trials(
                create_trial(state=TrialState.RUNNING, params=dict(params), distributions=ranges)
                for params in beside
            )
            return dict(study.ask(ranges).params)
    finally:
        torch.set_num_threads(threads)


def give_up(trial: Trial, before: Sequence[Trial], metric: Metric) -> bool:
    """Whether a trial is worse than the median of those before, with its seeds so far.

    With several budgets, whether it is at every one.
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    pruner = optuna.pruners.MedianPruner(n_startup_trials=LEAST_TO_PRUNE, n_warmup_steps=0)
    seeds, whole = len(trial.scores), [one for one in before if not one.pruned]
    for budget in range(len(trial.scores[0])):
        with quiet():
            study = optuna.create_study(direction=direction(metric))
            study.add_trials(
                create_trial(
                    value=one.mean(budget, metric),
                    intermediate_values={seeds: one.mean(budget, metric, seeds)},
                )
                for one in whole
            )
            own = {seeds: trial.mean(budget, metric)}
            asked = create_trial(state=TrialState.RUNNING, intermediate_values=own)
            if not pruner.prune(study, asked):
                return False
    return True


def direction(metric: Metric) -> Literal["maximize", "minimize"]:
    """Which way is better, as Optuna says it."""
    return "maximize" if metric.higher_is_better else "minimize"


def frozen(trial: Trial, space: Mapping[str, Range], metric: Metric) -> FrozenTrial:
    """A trial as Optuna keeps it.

    With several objectives Optuna knows no pruned trials: theirs is the mean of the seeds they had.
    """
    from optuna.trial import TrialState, create_trial

    width = len(trial.scores[0])
    means = [trial.mean(budget, metric) for budget in range(width)]
    pruned = trial.pruned and width == 1
    state: TrialState = TrialState.PRUNED if pruned else TrialState.COMPLETE
    known = inside(space, trial.settings)
    steps = range(1, len(trial.scores) + 1) if width == 1 else ()
    return create_trial(
        state=state,
        values=None if pruned else means,
        params=trial.settings if known else {},
        distributions=distributions(space) if known else {},
        intermediate_values={step: trial.mean(0, metric, step) for step in steps},
        user_attrs=trial.to_dict(),
    )


def importances(
    trials: Sequence[Trial], space: Mapping[str, Range], metric: Metric
) -> dict[str, float]:
    """How much of the score each key decides, as shares of 1; none where that cannot be said."""
    import optuna

    if len(space) < 2:
        return {}
    known = [
        one
        for one in trials
        if not one.pruned and inside(space, one.settings) and abs(one.value(metric)) < float("inf")
    ]
    if len({one.value(metric) for one in known}) < 2 or len(known) < START:
        return {}
    with quiet():
        study: Study = optuna.create_study(direction="maximize")
        study.add_trials(frozen_value(one, space, metric) for one in known)
        return dict(optuna.importance.get_param_importances(study))


def frozen_value(trial: Trial, space: Mapping[str, Range], metric: Metric) -> FrozenTrial:
    """A finished trial with its mean over budgets."""
    from optuna.trial import create_trial

    return create_trial(
        value=trial.value(metric), params=trial.settings, distributions=distributions(space)
    )
