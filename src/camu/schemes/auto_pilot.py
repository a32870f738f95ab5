"""The pilot of camu-auto: a near-IID cohort of devices takes two steps, and says how they went.

At both models the devices see the same mini-batches, so that the change of their mean gradient is
that of one loss: over the change of the model it is the curvature. The model keeps both steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.clustering.near_iid import dealt_groups
from camu.learning.job import LocalRule
from camu.planning.groups import assess, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Pilot, Scheme, World
from camu.schemes.levers import Training
from camu.schemes.reporter import Reporter

LEAST = 4  # devices of a pilot
_RULE = LocalRule(optimiser="sgd", momentum=0.0, nesterov=False, clip_norm=0.0)


@dataclass(frozen=True)
class Found:
    """What the pilot says of the training, and what it cost."""

    training: Training | None  # None: nothing is known, as in a dry run
    joules: float
    seconds: float


def pilot_plan(scheme: Scheme, world: World) -> Plan:
    """Devices whose labels together look like everyone's, one step each, uncoded."""
    counts, devices = world.devices.label_counts, world.devices
    part = dealt_groups(counts, counts.sum(axis=0), max(1, devices.count // LEAST))
    pooled = np.zeros((int(part.max()) + 1, counts.shape[1]), dtype=np.int64)
    np.add.at(pooled, part, counts)
    share = counts.sum(axis=0) / counts.sum()
    apart = np.abs(pooled / pooled.sum(axis=1, keepdims=True) - share).sum(axis=1)
    chosen = np.flatnonzero(part == int(apart.argmin()))
    groups = assess(world, [(int(device),) for device in chosen])
    return make_plan(scheme, groups, groups.sample_weights, rule=_RULE)


def look_around(pilot: Pilot, scheme: Scheme) -> Found:
    """Two steps of the pilot's devices from the run's first model, which then begins after them."""
    plan = pilot_plan(scheme, pilot.world)
    weight = np.asarray(plan.column("weight"), dtype=np.float64)
    at, joules, seconds, looks, models = pilot.weights, 0.0, 0.0, [], []
    for _ in range(2):
        reporter = Reporter()
        models.append(at.parameters.astype(np.float64))
        run = pilot.train(plan, 1, at, reporter)
        at, joules, seconds = run.weights, joules + run.joules, seconds + run.seconds
        looks.append(reporter)
    pilot.go_on_from(at)
    rate = pilot.world.config.training.learning_rate
    return Found(_training(looks, models, weight, rate), joules, seconds)


def _training(
    looks: list[Reporter], models: list[Float64], weight: Float64, rate: float
) -> Training | None:
    """What two looks say; devices that did not report at both are left out."""
    units = sorted(looks[0].changes.keys() & looks[1].changes.keys())
    if not units:
        return None
    first, second = (np.stack([look.changes[unit] for unit in units]) for look in looks)
    shares = weight[units] / weight[units].sum()
    mean, after = shares @ first, shares @ second
    square, moved = float(mean @ mean), float(np.linalg.norm(models[1] - models[0]))
    # A change is minus the learning rate times a gradient.
    step = float(np.linalg.norm(mean - after)) / moved if moved > 0 else 0.0
    if not (square > 0 and step > 0 and math.isfinite(step) and math.isfinite(square)):
        return None
    # The mean is that of few devices: a share of sum G^2 of their spread is in it.
    scatter = float(shares @ np.square(first - mean).sum(axis=1))
    alone = float(np.square(shares).sum())
    scatter /= max(1 - alone, 1e-9)
    true_square = max(square - alone * scatter, 0.1 * square)
    norms = np.linalg.norm(first, axis=1)
    shape = float(np.mean(np.abs(first).sum(axis=1)[norms > 0] / norms[norms > 0]))
    losses = [looks[1].losses.get(unit, math.nan) for unit in units]
    loss = float(shares @ np.array(losses))
    return Training(
        step=step,
        spread=scatter / true_square if len(units) > 1 else 8.0,
        shape=shape,
        square=true_square / rate**2,
        loss=loss if math.isfinite(loss) and loss > 0 else 1.0,
    )
