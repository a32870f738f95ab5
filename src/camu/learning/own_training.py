"""What a unit trains for itself beside its update: a model of its own, or parts of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from camu.arrays import Mask
from camu.errors import InputError
from camu.learning.job import Job, OwnTraining, Trained
from camu.learning.weights import Weights

# Trains one job from a model.
Train = Callable[[Weights, Job], Trained]


def train_with_own(start: Weights, job: Job, train: Train) -> Trained:
    """Train a job, and before or after it what its unit trains for itself.

    The mini-batches of the second training follow on those of the first one.
    """
    own = job.own
    assert own is not None
    update = replace(job, own=None)
    mine = replace(
        update,
        updates=own.updates,
        all_updates=0,
        states=None,
        rule=replace(job.rule, proximal=own.proximal),
        anchor=start.parameters if own.proximal else None,
    )
    begin = start.with_parameters(own.start)
    if not own.first:
        trained = train(start, update)
        ended = _train_part(begin, replace(mine, first=job.first + job.updates), own.only, train)
        return trained._replace(own=ended.weights.copied().parameters)
    ended = _train_part(begin, mine, own.only, train)
    parameters = ended.weights.copied().parameters
    # The update starts with what was trained, and leaves it alone.
    others = None if own.only is None else ~own.only
    update = replace(update, first=job.first + own.updates)
    trained = _train_part(start.with_parameters(parameters), update, others, train)
    return trained._replace(own=parameters)


def _train_part(start: Weights, job: Job, only: Mask | None, train: Train) -> Trained:
    """Train a job in which only some parameters move: after each step the others are put back."""
    if only is None:
        return train(start, job)
    weights, losses = start, []
    for number in job.numbers:
        trained = train(weights, replace(job, updates=1, first=number))
        moved = np.where(only, trained.weights.parameters, weights.parameters)
        weights = trained.weights.copied().with_parameters(moved)
        losses.append(trained.loss)
    return Trained(weights, float(np.mean(losses)))


def check_own(own: OwnTraining, parameters: int, stateless: bool) -> None:
    """Refuse a training of a unit's own that has no meaning."""
    if own.start.shape != (parameters,):
        raise InputError(
            f"own training: its start has shape {own.start.shape}; the model has {parameters} "
            "parameters."
        )
    if own.updates < 1 or own.proximal < 0:
        raise InputError(
            f"own training: {own.updates} updates and a proximal weight of "
            f"{own.proximal}; give at least 1 update, and a weight from 0."
        )
    if own.only is not None and not stateless:
        raise InputError(
            "own training: a part of the model can be trained by plain steps only; set "
            "training.local_update = step, training.optimiser = sgd and training.momentum = 0"
        )
