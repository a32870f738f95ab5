"""P2 of a plan with constants that a pilot measures, at the expense of both budgets.

The pilot follows the mean gradient. At every model the clusters report the gradient and the loss of
all their data, and how much the gradients of mini-batches scatter. Ratios of gradients give eps_c
and delta_c, changes of gradients from model to model give L and mu. All of it describes the loss
where the pilot looked; on a quadratic with no more dimensions than steps it is exact.

In every round of the pilot each device passes once over all its data, mini-batch by mini-batch, at
the same model. The mean over its mini-batches is its gradient, their scatter the variance. Members
send to their leaders and leaders to the base station as in any round, without error. The run
continues from the last model that the pilot looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from camu.allocation.p2 import P2Problem
from camu.arrays import Float32, Float64
from camu.config import Config
from camu.data.batches import batch_samples
from camu.errors import CamuError, InputError
from camu.learning.engine import Engine
from camu.learning.job import LocalRule
from camu.learning.kernel import DeviceBatch, Kernel
from camu.learning.weights import Weights
from camu.planning.cells import refuse_cells
from camu.planning.plan import Plan
from camu.schemes import Clustered, make_scheme
from camu.schemes.device_problems import refuse_link_types
from camu.schemes.plans import groups_of_plan, joint_of
from camu.simulation.dry_run import round_cost
from camu.simulation.result import build_engine
from camu.world import World
from camu.world.rates import useful_snr

# Gradients have single precision: directions in which the pilot hardly moved say nothing.
SMALLEST_MOVE = 1e-3


@dataclass(frozen=True, eq=False)
class Look:
    """What the clusters report at one model."""

    weights: Float64  # (q,)
    losses: Float64  # (C,)
    gradients: Float64  # (C, q), on all data
    variance: Float64  # (C,), of the gradient of one mini-batch of every member


@dataclass(frozen=True, eq=False)
class Constants:
    """What P2 needs to know about the losses; see `P2Problem`."""

    convexity: float
    convexity_from: str
    smoothness: float
    divergence: Float64
    dissimilarity: Float64
    variance: Float64
    initial_gap: float  # at the last model


def of_batches(sizes: Sequence[int], gradients: Float64) -> tuple[Float64, float]:
    """The gradient on all data, and the variance of a mini-batch's, from one pass at one model.

    ``gradients`` has a row per mini-batch. The last one may have fewer samples than the others,
    which are what a device trains on; then it has no part in the variance.
    """
    samples = np.asarray(sizes, dtype=np.float64)
    mean = np.asarray(samples / samples.sum() @ gradients)
    away = np.square(gradients - mean).sum(axis=1)
    return mean, float(away[samples == samples[0]].mean())


def follow(
    look: Callable[[Float64], Look], weight: Float64, start: Float64, rate: float, models: int
) -> list[Look]:
    """Look at so many models, each one step of the mean gradient after the one before."""
    looks, at = [], start
    for _ in range(models):
        looks.append(look(at))
        at = at - rate * (weight @ looks[-1].gradients)
    return looks


def measured(
    looks: Sequence[Look],
    weight: Float64,
    least_loss: float = 0.0,
    smallest_move: float = SMALLEST_MOVE,
) -> Constants:
    """The constants from what was seen at two or more models.

    eps_c, delta_c and the variance are the largest that were met. L is the largest curvature of any
    cluster in the directions in which the pilot moved. mu is the smallest ratio ||g||^2 / 2 gap,
    which is all that the bound uses of convexity, or the smallest curvature where that is smaller.
    ``least_loss`` is F*, or a number below it.
    """
    steps = np.diff([look.weights for look in looks], axis=0)
    gradients = np.stack([look.gradients for look in looks])  # (models, C, q)
    means = np.einsum("c,mcq->mq", weight, gradients)
    lengths = np.linalg.norm(means, axis=1)
    gaps = np.array([float(weight @ look.losses) for look in looks]) - least_loss
    if not (np.isfinite(lengths) & (lengths > 0) & np.isfinite(gaps) & (gaps > 0)).all():
        raise CamuError("the pilot diverged or met the optimum; give a smaller learning rate")
    curvature = curvatures(steps, np.diff(means, axis=0), smallest_move)
    of_clusters = [
        curvatures(steps, change, smallest_move)
        for change in np.diff(gradients, axis=0).transpose(1, 0, 2)
    ]
    least, ratio = float(curvature.min()), float((lengths**2 / (2 * gaps)).min())
    by_curvature = 0 < least < ratio
    aside = np.linalg.norm(gradients - means[:, None], axis=2) / lengths[:, None]
    whole = np.linalg.norm(gradients, axis=2) / lengths[:, None]
    return Constants(
        convexity=least if by_curvature else ratio,
        convexity_from="smallest curvature" if by_curvature else "smallest ||g||^2 / 2 gap",
        smoothness=float(max(np.abs(values).max() for values in (curvature, *of_clusters))),
        divergence=aside.max(axis=0),
        dissimilarity=whole.max(axis=0),
        variance=np.max([look.variance for look in looks], axis=0),
        initial_gap=float(gaps[-1]),
    )


def curvatures(steps: Float64, changes: Float64, smallest_move: float) -> Float64:
    """Eigenvalues of a Hessian in the space of these steps (k, q), from the gradients' changes."""
    left, sizes, right = np.linalg.svd(steps.T, full_matrices=False)
    kept = sizes > smallest_move * sizes[0]
    if not kept.any():
        raise CamuError("the pilot did not move; give a larger learning rate")
    inside = left[:, kept].T @ changes.T @ right[kept].T / sizes[kept]
    return np.asarray(np.linalg.eigvalsh((inside + inside.T) / 2))


def measured_problem(path: Path, models: int) -> P2Problem:
    """P2 of a saved plan; the pilot looks at this many models."""
    plan, groups = groups_of_plan(path, with_samples=True)
    world = groups.world
    _check(world, str(path))
    with build_engine(world) as engine:
        looks = look_around(engine, plan, world.config.training.learning_rate, models)
    weight = np.array([unit.weight for unit in plan.units])
    return p2_of(plan, world, measured(looks, weight), pilot_plan(plan, world), models)


def look_around(engine: Engine, plan: Plan, learning_rate: float, models: int) -> list[Look]:
    """What the units of a plan report at the models of a pilot."""
    rounds = iter(range(models))

    def look(parameters: Float64) -> Look:
        at, round_number = engine.initial.with_parameters(parameters), next(rounds)
        rows = []
        for unit in plan.units:
            seen = [_pass(engine, at, device, round_number) for device in unit.members]
            losses, gradients, variance = zip(*seen, strict=True)
            shares = np.array(unit.member_weights)
            rows.append((shares @ losses, shares @ np.stack(gradients), shares**2 @ variance))
        losses, gradients, variance = zip(*rows, strict=True)
        return Look(parameters, np.array(losses), np.stack(gradients), np.array(variance))

    weight = np.array([unit.weight for unit in plan.units])
    start = engine.initial.parameters.astype(np.float64)
    return follow(look, weight, start, learning_rate, models)


def _pass(
    engine: Engine, at: Weights, device: int, round_number: int
) -> tuple[float, Float64, float]:
    """Loss, gradient and variance of a device, from one pass over its data at one model."""
    batches = engine.batches.epoch(round_number, device, 0)

    def work(kernel: Kernel) -> list[tuple[Float32, float]]:
        return [kernel.full_pass(at, [DeviceBatch(device, own, 1.0)], True) for own in batches]

    gradients, losses = zip(
        *engine.on_worker(f"Computing gradients of device {device}", work), strict=True
    )
    sizes = [len(own) for own in batches]
    gradient, variance = of_batches(sizes, np.stack(gradients).astype(np.float64))
    w = at.parameters.astype(np.float64)
    loss = float(np.average(losses, weights=sizes)) + engine.l2 / 2 * float(w @ w)
    return loss, gradient + engine.l2 * w, variance


def pilot_plan(plan: Plan, world: World) -> Plan:
    """A round of the pilot as a plan: every device passes once over all its data."""
    units = [replace(unit, local_updates=1, rule=LocalRule(batch=1.0)) for unit in plan.units]
    return replace(plan, units=tuple(units)).repriced(world)


def p2_of(plan: Plan, world: World, found: Constants, pilot: Plan, models: int) -> P2Problem:
    """P2 of the units of a plan, with these constants and what the pilot left of the budgets.

    The budgets are run.max_joules and run.max_virtual_seconds, or what run.rounds rounds of the
    plan cost in a dry run.
    """
    config, devices = world.config, world.devices
    leaders = np.array([unit.leader for unit in plan.units])
    members = np.concatenate([unit.members for unit in plan.units])
    weight = np.array([unit.weight for unit in plan.units])
    refuse_cells(world, "P2 has one band")
    share, run = world.links.share(len(leaders)), config.run
    cost = round_cost(world, make_scheme(config), plan)
    joules = run.max_joules or run.rounds * cost.joules
    seconds = run.max_virtual_seconds or run.rounds * cost.seconds
    pilot_cost = round_cost(world, Clustered(), pilot)  # it takes all units, as the pilot does
    spent = (models * pilot_cost.joules, models * pilot_cost.seconds)
    if spent[0] >= joules or spent[1] >= seconds:
        raise CamuError(
            f"the pilot takes {spent[0]:.4g} of {joules:.4g} J and {spent[1]:.4g} of "
            f"{seconds:.4g} s, so that nothing is left; measure at fewer models, or raise "
            "run.rounds, run.max_joules or run.max_virtual_seconds"
        )
    gap, useful = useful_snr(config.radio)
    gain, noise = world.links.uplink_gain[leaders], gap * share.noise_watts
    best_rate = 1 / (found.smoothness * float(weight @ found.dissimilarity**2))
    rate = min(config.training.learning_rate, best_rate)
    batch = batch_samples(config.training.batch, devices.samples)
    constants = {name: value for name, value in vars(found).items() if name != "convexity_from"}
    return P2Problem(
        **constants,
        weight=weight,
        gain=gain,
        bandwidth_hz=np.array(share.bandwidth_hz),
        gather_seconds=np.array([unit.per_update.gather_seconds for unit in plan.units]),
        gather_joules=np.array([unit.per_update.gather_joules for unit in plan.units]),
        max_updates=np.array(1 + joint_of(config).max_extra_updates),
        max_power_watts=np.minimum(devices.max_power_watts[leaders], useful * noise / gain),
        circuit_watts=config.radio.circuit_watts,
        amplifier_efficiency=config.radio.amplifier_efficiency,
        cluster=np.repeat(np.arange(len(leaders)), [len(unit.members) for unit in plan.units]),
        cycles=(devices.cycles_per_sample * batch)[members],
        capacitance=devices.capacitance[members],
        max_hz=devices.cpu_hz[members],
        noise_watts=noise,
        payload_bits=float(config.radio.bits_per_parameter * plan.parameters),
        learning_rate=rate,
        energy_joules=joules - spent[0],
        seconds=seconds - spent[1],
        source="the plan's problem P2",
        origin=_origin(config, found, spent, rate, models),
    )


def _origin(
    config: Config, found: Constants, spent: tuple[float, float], rate: float, models: int
) -> dict[str, str]:
    """Where each number of the problem comes from."""
    run, at = config.run, f"pilot, {models} models"
    whole = f"run.rounds = {run.rounds} rounds of the plan"
    joules = whole if run.max_joules is None else "run.max_joules"
    seconds = whole if run.max_virtual_seconds is None else "run.max_virtual_seconds"
    lowered = "1 / (L sum G_c delta_c^2), below " if rate < config.training.learning_rate else ""
    return {
        "convexity": f"{at}: {found.convexity_from}",
        "smoothness": f"{at}: largest curvature of a cluster",
        "divergence": f"{at}: largest ||grad F_c - g|| / ||g||",
        "dissimilarity": f"{at}: largest ||grad F_c|| / ||g||",
        "variance": f"{at}: largest scatter of mini-batches",
        "initial_gap": f"{at}: loss at the last, with F* = 0",
        "learning_rate": f"{lowered}training.learning_rate",
        "max_updates": "1 + scheme.parameters.max_extra_updates",
        "energy_joules": f"{joules}, less {spent[0]:.4g} J of the pilot",
        "seconds": f"{seconds}, less {spent[1]:.4g} s of the pilot",
        "others": "the plan's world",
    }


def _check(world: World, source: str) -> None:
    """Refuse settings of which P2 knows nothing."""
    config, devices = world.config, world.devices
    refuse_link_types(f"{source}: problem P2 sends at Shannon's rate", world)
    for key, value, wanted in (
        ("radio.access", config.radio.access, "tdma"),
        ("radio.downlink", config.radio.downlink, False),
        ("fleet.static_watts", float(devices.static_watts.max()), 0.0),
        ("fleet.idle_watts", float(devices.idle_watts.max()), 0.0),
        ("readings.compute_model", config.readings.compute_model, "cycles"),
        ("training.local_update", config.training.local_update, "step"),
    ):
        if value != wanted:
            raise InputError(
                f"{source}: {key} = {str(value).lower()}: problem P2 knows only "
                f"{str(wanted).lower()}; plan with --set {key}={str(wanted).lower()}"
            )
