"""Budgets at which schemes are compared: what rounds of one scheme cost, and who plans for them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from camu.config import Config
from camu.schemes import make_scheme, plans
from camu.schemes.contract import Scheme
from camu.simulation.dry_run import dry_run, round_cost
from camu.world import build_world

_OTHERS = ("seconds", "megabytes")


def with_end(config: Config, at: Mapping[str, float]) -> Config:
    """The configuration, with enough run.max_joules for these joules, seconds and megabytes.

    Only a scheme that ends by itself plans for it; that of any other stays as it is.
    """
    scheme = make_scheme(config)
    if type(scheme).finished is Scheme.finished:
        return config
    world = build_world(config)
    cost = round_cost(world, scheme, plans.plan(scheme, world))
    least = at.get("joules", 0.0)
    joules = max(
        least,
        *(at[axis] * cost.joules / getattr(cost, axis) for axis in _OTHERS if axis in at),
        0.0,
    )
    return config.replace({"run.max_joules": max(least, float(f"{joules:.4g}"))})


def spent_in(config: Config, scheme: str, rounds: int) -> dict[str, float]:
    """The joules and seconds that so many rounds of a scheme cost, by a dry run.

    They are rounded down, so that this scheme has spent both after these rounds.
    """
    spent = dry_run(build_world(config), make_scheme(config, scheme), rounds).final
    costs = {"joules": spent.total_joules, "seconds": spent.virtual_seconds}
    return {axis: math.floor(1000 * value) / 1000 for axis, value in costs.items()}
