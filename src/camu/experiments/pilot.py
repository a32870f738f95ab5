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

from dataclasses import replace
from pathlib import Path

import numpy as np

from camu.allocation.measured import Constants, Look, follow, measured, of_batches
from camu.allocation.p2 import P2Problem
from camu.arrays import Float32, Float64
from camu.config import Config
from camu.errors import CamuError
from camu.learning.engine import Engine
from camu.learning.job import LocalRule
from camu.learning.kernel import DeviceBatch, Kernel
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.schemes import Clustered, make_scheme
from camu.schemes.p2_problem import check_p2, problem_of_plan
from camu.schemes.plans import groups_of_plan, joint_of
from camu.simulation.dry_run import round_cost
from camu.simulation.result import build_engine
from camu.world import World


def measured_problem(path: Path, models: int) -> P2Problem:
    """P2 of a saved plan; the pilot looks at this many models."""
    plan, groups = groups_of_plan(path, with_samples=True)
    world = groups.world
    check_p2(world, str(path))
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
    run = world.config.run
    cost = round_cost(world, make_scheme(world.config), plan)
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
    left, most = (joules - spent[0], seconds - spent[1]), joint_of(world.config).max_extra_updates
    problem = problem_of_plan(plan, world, found, left, 1 + most)
    return replace(problem, origin=_origin(world.config, found, spent, problem, models))


def _origin(
    config: Config,
    found: Constants,
    spent: tuple[float, float],
    problem: P2Problem,
    models: int,
) -> dict[str, str]:
    """Where each number of the problem comes from."""
    run, at = config.run, f"pilot, {models} models"
    whole = f"run.rounds = {run.rounds} rounds of the plan"
    joules = whole if run.max_joules is None else "run.max_joules"
    seconds = whole if run.max_virtual_seconds is None else "run.max_virtual_seconds"
    lowered = (
        "1 / (L sum G_c delta_c^2), below "
        if problem.learning_rate < config.training.learning_rate
        else ""
    )
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
