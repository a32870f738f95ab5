"""Adaptive local updates: the number of local steps follows what training shows about the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from camu.learning.engine import Job
from camu.learning.weights import Weights
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.adapting import View
from camu.world import World

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AdaptiveTau:
    """All devices run tau local updates; tau is searched anew each round from rho, beta and delta.

    The resource is energy: c joules per local update of everyone, b per aggregation, and the budget
    is run.max_joules or else what the configured rounds of one update would cost. Gradients are
    those of mini-batches; rho is taken from the slope along the step a device made.
    """

    max_extra_updates: int = 4
    control: float = 0.025  # phi of the original
    citation: ClassVar[str] = "Wang et al., IEEE JSAC 2019"

    def plan(self, world: World) -> Plan:
        """One device per unit; the first round runs one update."""
        groups = single_devices(world)
        return make_plan("adaptive-tau", groups, groups.sample_weights)

    def adapt(self, view: View) -> list[int]:
        """tau for the next round, the same for all."""
        now = view.plan.units[0].local_updates
        rate = view.world.config.training.learning_rate
        constants = estimate(view, rate)
        tau = now
        if constants is not None:
            local, fixed = _joules(view.plan)
            left = _budget(view) - view.joules
            most = 1 + self.max_extra_updates
            values = [
                control_value(t, *constants, rate, self.control, local, fixed, left)
                for t in range(1, most + 1)
            ]
            tau = 1 + int(np.argmin(values)) if left > 0 else 1
        return [tau] * len(view.plan.units)


def control_value(
    tau: int,
    rho: float,
    beta: float,
    delta: float,
    rate: float,
    phi: float,
    local_joules: float,
    fixed_joules: float,
    budget_joules: float,
) -> float:
    """The bound on the loss at the end of the budget (Wang et al., eq. 19); smaller is better."""
    # h(tau) = delta/beta ((rate beta + 1)^tau - 1) - rate delta tau, in a form that keeps digits.
    drift = delta / beta * np.expm1(tau * np.log1p(rate * beta)) - rate * delta * tau
    share = (local_joules * tau + fixed_joules) / (budget_joules * tau)
    half = share / (2 * rate * phi)
    return float(half + np.sqrt(half**2 + rho * drift / (rate * phi * tau)) + rho * drift)


def estimate(view: View, rate: float) -> tuple[float, float, float] | None:
    """rho, beta and delta over the devices that took part, or None where nothing moved."""
    units = sorted(view.trained)
    if not units:
        return None
    plan = view.plan.units
    jobs = [Job(plan[u].members, plan[u].member_weights) for u in units]
    weight = np.array([plan[u].weight for u in units])
    weight = weight / weight.sum()
    here = _gradients(view, [view.before] * len(units), jobs, rate)
    there = _gradients(view, [view.trained[u] for u in units], jobs, rate)
    moved = np.stack(
        [view.trained[u].parameters.astype(float) - view.before.parameters for u in units]
    )
    length = np.linalg.norm(moved, axis=1)
    if not (np.isfinite(length).all() and (length > 0).all()):
        return None
    beta = float(weight @ (np.linalg.norm(there - here, axis=1) / length))
    rho = float(weight @ (np.abs((here * moved).sum(axis=1)) / length))
    delta = float(weight @ np.linalg.norm(here - weight @ here, axis=1))
    if not (np.isfinite([rho, beta, delta]).all() and min(rho, beta, delta) > 0):
        return None
    return rho, beta, delta


def _gradients(view: View, starts: list[Weights], jobs: list[Job], rate: float) -> Floats:
    """Mini-batch gradients, read off one local step from each start on the next round's batch."""
    ends = view.engine.iterate(starts, jobs, view.round)
    return np.stack(
        [
            (start.parameters.astype(float) - end.parameters) / rate
            for start, end in zip(starts, ends, strict=True)
        ]
    )


def _joules(plan: Plan) -> tuple[float, float]:
    """Energy of one local update of everyone, and of one aggregation."""
    local = sum((u.compute_joules + u.gather_joules) / u.local_updates for u in plan.units)
    return local, sum(unit.uplink_joules for unit in plan.units)


def _budget(view: View) -> float:
    run = view.world.config.run
    if run.max_joules is not None:
        return run.max_joules
    return run.rounds * sum(_joules(view.plan))
