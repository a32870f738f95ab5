"""What a unit trains for itself beside its update: a model of its own, or parts of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from camu.arrays import Mask
from camu.data.batches import Schedule
from camu.errors import InputError
from camu.learning.job import Job, Trained
from camu.learning.weights import Weights

# Trains one job from a model, on its mini-batches or on these.
Train = Callable[[Weights, Job, Schedule | None], Trained]
ScheduleOf = Callable[[Job], Schedule]


def train_with_own(start: Weights, job: Job, train: Train, schedule_of: ScheduleOf) -> Trained:
    """Train a job, and before or after it what its unit trains for itself.

    The mini-batches of the second training follow on those of the first one.
    """
    own = job.own
    assert own is not None

    def part(begin: Weights, job: Job, only: Mask | None) -> Trained:
        if only is None:
            return train(begin, job, None)
        return _train_part(begin, job, only, schedule_of(job), train)

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
        trained = train(start, update, None)
        ended = part(begin, replace(mine, first=job.first + job.updates), own.only)
        return trained._replace(own=ended.weights.copied().parameters)
    ended = part(begin, mine, own.only)
    parameters = ended.weights.copied().parameters
    # The update starts with what was trained, and leaves it alone.
    others = None if own.only is None else ~own.only
    trained = part(
        start.with_parameters(parameters), replace(update, first=job.first + own.updates), others
    )
    return trained._replace(own=parameters)


def _train_part(start: Weights, job: Job, only: Mask, schedule: Schedule, train: Train) -> Trained:
    """Train a job in which only some parameters move: after each step the others are put back."""
    weights, losses = start, []
    rule = replace(job.rule, steps=1)
    end = job.first + len(schedule.batches)
    for number, batch in enumerate(schedule.batches):
        one = replace(job, updates=1, first=job.first + number, all_updates=end, rule=rule)
        sizes, steps = np.array([len(batch)], np.int32), np.ones(1, np.int32)
        trained = train(weights, one, Schedule(batch, sizes, steps))
        moved = np.where(only, trained.weights.parameters, weights.parameters)
        weights = trained.weights.copied().with_parameters(moved)
        losses.append(trained.loss)
    return Trained(weights, float(np.mean(losses)))


def check_own(job: Job, parameters: int, stateless: bool) -> None:
    """Refuse a training of a unit's own that has no meaning."""
    own = job.own
    if own is None:
        return
    if own.start.shape != (parameters,):
        raise InputError(
            f"own training: its start has shape {own.start.shape}; the model has {parameters} "
            "parameters."
        )
    if own.updates < 1 or own.proximal < 0:
        raise InputError(
            f"own training: {own.updates} updates and a proximal weight of {own.proximal}; give at "
            "least 1 update, and a weight from 0."
        )
    if own.only is None:
        return
    if len(job.members) > 1:
        raise InputError("own training: only units of one device can train a part of the model")
    if not stateless:
        raise InputError(
            "own training: a part of the model is trained by plain steps; set training.optimiser = "
            "sgd and training.momentum = 0"
        )
