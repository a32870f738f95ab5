"""P2 of a plan with constants that a pilot measures, at the expense of both budgets.

In every round of the pilot each device passes once over all its data, mini-batch by mini-batch, at
the same model. The mean over its mini-batches is its gradient, their scatter the variance. Members
send to their leaders and leaders to the base station as in any round, without error. The run
continues from the last model that the pilot looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from camu.allocation.horizon import HorizonProblem
from camu.allocation.pilot import Constants, Look, follow, measured, of_batches
from camu.arrays import Float32, Float64, Int64
from camu.data.batches import batch_samples
from camu.errors import CamuError, InputError
from camu.learning.data import DeviceBatch
from camu.learning.engine import Engine
from camu.learning.job import LocalRule
from camu.learning.kernel import Kernel
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.schemes.plan_problem import groups_of_plan
from camu.simulation.result import build_engine
from camu.world import World


def measured_problem(path: Path, models: int) -> HorizonProblem:
    """P2 of a saved plan; the pilot looks at this many models."""
    plan, groups = groups_of_plan(path, with_samples=True)
    world = groups.world
    _check(world, str(path))
    with build_engine(world) as engine:
        looks = look_around(engine, plan, world.config.training.learning_rate, models)
    weight = np.array([unit.weight for unit in plan.units])
    return horizon_of(plan, world, measured(looks, weight), pilot_plan(plan, world), models)


def look_around(engine: Engine, plan: Plan, learning_rate: float, models: int) -> list[Look]:
    """What the units of a plan report at the models of a pilot."""
    rounds = iter(range(models))

    def look(parameters: Float64) -> Look:
        at = engine.initial.with_parameters(parameters)
        seen = list(_devices(engine, plan, at, next(rounds)))
        losses, gradients, variance = [], [], []
        for unit in plan.units:
            shares = np.array(unit.member_weights)
            own, seen = seen[: len(shares)], seen[len(shares) :]
            losses.append(shares @ [loss for loss, _, _ in own])
            gradients.append(shares @ [gradient for _, gradient, _ in own])
            variance.append(shares**2 @ [scatter for _, _, scatter in own])
        rows = np.stack(gradients)
        return Look(parameters, np.array(losses), rows, np.array(variance))

    weight = np.array([unit.weight for unit in plan.units])
    start = engine.initial.parameters.astype(np.float64)
    return follow(look, weight, start, learning_rate, models)


def _devices(
    engine: Engine, plan: Plan, at: Weights, round_number: int
) -> Iterator[tuple[float, Float64, float]]:
    """Loss, gradient and variance of every member, unit by unit, from one pass over its data."""
    for unit in plan.units:
        for device in unit.members:
            batches = engine.batches.epoch(round_number, device, 0)
            passes = engine.on_worker(
                f"Computing gradients of device {device}", partial(_passes, at, device, batches)
            )
            sizes = [len(own) for own in batches]
            rows = np.stack([gradient for gradient, _ in passes]).astype(np.float64)
            gradient, variance = of_batches(sizes, rows)
            loss = float(np.average([loss for _, loss in passes], weights=sizes))
            w = at.parameters.astype(np.float64)
            yield loss + engine.l2 / 2 * float(w @ w), gradient + engine.l2 * w, variance


def _passes(
    at: Weights, device: int, batches: list[Int64], kernel: Kernel
) -> list[tuple[Float32, float]]:
    """Gradient and loss of each mini-batch, all at the same model."""
    return [kernel.full_pass(at, [DeviceBatch(device, own, 1.0)], True) for own in batches]


def pilot_plan(plan: Plan, world: World) -> Plan:
    """A round of the pilot as a plan: every device passes once over all its data."""
    units = [replace(unit, local_updates=1, rule=LocalRule(batch=1.0)) for unit in plan.units]
    return replace(plan, units=tuple(units)).repriced(world)


def horizon_of(
    plan: Plan, world: World, found: Constants, pilot: Plan, models: int
) -> HorizonProblem:
    """P2 of the units of a plan, with these constants and what the pilot left of the budgets.

    The budgets are run.max_joules and run.max_virtual_seconds, or what run.rounds rounds of the
    plan cost.
    """
    config, devices = world.config, world.devices
    leaders = np.array([unit.leader for unit in plan.units])
    members = np.concatenate([unit.members for unit in plan.units])
    weight = np.array([unit.weight for unit in plan.units])
    share, run = world.links.share(len(leaders)), config.run
    joules = run.max_joules or run.rounds * plan.round_joules
    seconds = run.max_virtual_seconds or run.rounds * plan.round_seconds
    spent = (models * pilot.round_joules, models * pilot.round_seconds)
    if spent[0] >= joules or spent[1] >= seconds:
        raise CamuError(
            f"the pilot takes {spent[0]:.4g} of {joules:.4g} J and {spent[1]:.4g} of "
            f"{seconds:.4g} s, so that nothing is left; measure at fewer models, or raise "
            "run.rounds, run.max_joules or run.max_virtual_seconds"
        )
    best_rate = 1 / (found.smoothness * float(weight @ found.dissimilarity**2))
    rate = min(config.training.learning_rate, best_rate)
    batch = batch_samples(config.training.batch, devices.samples)
    return HorizonProblem(
        weight=weight,
        divergence=found.divergence,
        dissimilarity=found.dissimilarity,
        variance=found.variance,
        gain=world.links.uplink_gain[leaders],
        bandwidth_hz=np.full(len(leaders), share.bandwidth_hz),
        gather_seconds=np.array([unit.per_update.gather_seconds for unit in plan.units]),
        gather_joules=np.array([unit.per_update.gather_joules for unit in plan.units]),
        max_updates=np.full(len(leaders), 1 + config.scheme.max_extra_updates),
        max_power_watts=devices.max_power_watts[leaders],
        cluster=np.repeat(np.arange(len(leaders)), [len(unit.members) for unit in plan.units]),
        cycles=(devices.cycles_per_sample * batch)[members],
        capacitance=devices.capacitance[members],
        max_hz=devices.cpu_hz[members],
        noise_watts=share.noise_watts,
        payload_bits=float(config.radio.bits_per_parameter * plan.parameters),
        convexity=found.convexity,
        smoothness=found.smoothness,
        learning_rate=rate,
        initial_gap=found.initial_gap,
        energy_joules=joules - spent[0],
        seconds=seconds - spent[1],
        source="the plan's problem P2",
        origin=_origin(world, found, spent, rate < config.training.learning_rate, models),
    )


def _origin(
    world: World, found: Constants, spent: tuple[float, float], lowered: bool, models: int
) -> dict[str, str]:
    """Where each number of the problem comes from."""
    run = world.config.run
    at = f"pilot, {models} models"
    whole = f"run.rounds = {run.rounds} rounds of the plan"
    joules = whole if run.max_joules is None else "run.max_joules"
    seconds = whole if run.max_virtual_seconds is None else "run.max_virtual_seconds"
    limit = "1 / (L sum G_c delta_c^2), below training.learning_rate"
    return {
        "convexity": f"{at}: {found.convexity_from}",
        "smoothness": f"{at}: largest curvature of a cluster",
        "divergence": f"{at}: largest ||grad F_c - g|| / ||g||",
        "dissimilarity": f"{at}: largest ||grad F_c|| / ||g||",
        "variance": f"{at}: largest scatter of mini-batches",
        "initial_gap": f"{at}: loss at the last, with F* = 0",
        "learning_rate": limit if lowered else "training.learning_rate",
        "max_updates": "1 + scheme.max_extra_updates",
        "energy_joules": f"{joules}, less {spent[0]:.4g} J of the pilot",
        "seconds": f"{seconds}, less {spent[1]:.4g} s of the pilot",
        "others": "the plan's world",
    }


def _check(world: World, source: str) -> None:
    """Refuse settings of which P2 knows nothing."""
    config = world.config
    for key, value, wanted in (
        ("radio.access", config.radio.access, "tdma"),
        ("radio.downlink", config.radio.downlink, False),
        ("fleet.compute_model", config.fleet.compute_model, "cycles"),
        ("training.local_update", config.training.local_update, "step"),
    ):
        if value != wanted:
            raise InputError(
                f"{source}: {key} = {str(value).lower()}: problem P2 knows only "
                f"{str(wanted).lower()}; plan with --set {key}={str(wanted).lower()}"
            )
