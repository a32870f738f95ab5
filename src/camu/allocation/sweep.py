"""What other budgets would buy: P1 at several energies, P2 over a grid of both budgets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from camu.allocation.p1 import Problem
from camu.allocation.p2 import P2Problem
from camu.allocation.solve import solve
from camu.errors import CamuError, InputError
from camu.work import Progress, silent

_FORM = "write energy=1,2,4 or energy=FROM:TO:COUNT, in joules"
MOST_BUDGETS = 1000


@dataclass(frozen=True)
class SweepRow:
    """The answer at one budget; None where the budget is too small for any answer."""

    budget_joules: float
    objective: float | None = None
    gap: float | None = None
    compute_joules: float | None = None
    transmit_joules: float | None = None
    power_watts: float | None = None  # of all leaders
    updates: int | None = None  # local updates of all clusters in a round


def parse_sweep(text: str) -> list[float]:
    """The budgets of `energy=1,2,4`, or of `energy=FROM:TO:COUNT` with equal ratios."""
    key, _, values = text.partition("=")
    if key.strip() != "energy":
        raise InputError(f"--sweep {text}: only energy can be swept; {_FORM}")
    try:
        if ":" in values:
            first, last, count = values.split(":")
            low, high, number = float(first), float(last), int(count)
            if not (0 < low < high < np.inf and 2 <= number <= MOST_BUDGETS):
                raise ValueError
            budgets = [float(budget) for budget in np.geomspace(low, high, number)]
        else:
            budgets = [float(value) for value in values.split(",")]
    except ValueError:
        raise InputError(f"--sweep {text}: these are not budgets; {_FORM}") from None
    if not all(0 < budget < np.inf for budget in budgets) or len(budgets) > MOST_BUDGETS:
        raise InputError(f"--sweep {text}: a budget is a positive number; {_FORM}")
    return budgets


def sweep_energy(
    problem: Problem,
    budgets_joules: Sequence[float],
    solver: str = "exact",
    seed: int = 0,
    progress: Progress = silent,
) -> list[SweepRow]:
    """The answer of a solver at each of these energy budgets.

    Parameters:
        problem: the instance; its own budget does not matter.
        budgets_joules: the budgets.
        solver: as for `solve`.
        seed: seed of PPO.
        progress: called after each budget.

    Returns:
        A row per budget, in the same order.
    """
    rows = []
    for done, budget in enumerate(budgets_joules, 1):
        rows.append(_row(replace(problem, energy_joules=float(budget)), solver, seed))
        progress("budgets", done, len(budgets_joules))
    return rows


def _row(problem: Problem, solver: str, seed: int) -> SweepRow:
    budget = problem.energy_joules
    if budget < problem.smallest_budget_joules:
        return SweepRow(budget)
    try:
        answer = solve(problem, solver, seed=seed)
    except InputError:
        raise
    except CamuError:  # `latency` sends at fixed power, so it needs more than the smallest budget
        return SweepRow(budget)
    return SweepRow(
        budget,
        answer.objective,
        answer.gap,
        float(problem.update_joules(answer.extra_updates).sum()),
        float(problem.transmit_joules(answer.power_watts).sum()),
        float(answer.power_watts.sum()),
        int(problem.size + answer.extra_updates.sum()),
    )


class Cell(NamedTuple):
    """The best that a pair of budgets buys; means over clusters and devices."""

    energy_joules: float
    seconds: float
    objective: float
    rounds: int
    updates: float
    power_watts: float
    cpu_hz: float
    joule_price: float
    second_price: float


def trade_off(problem: P2Problem, factors: Sequence[float]) -> list[Cell]:
    """The answer at every pair of factors on both budgets; pairs that fit no round are left out."""
    cells = []
    for energy, time in itertools.product(factors, repeat=2):
        joules, seconds = energy * problem.energy_joules, time * problem.seconds
        try:
            answer = solve(replace(problem, energy_joules=joules, seconds=seconds))
        except CamuError:
            continue
        means = (answer.updates.mean(), answer.power_watts.mean(), answer.cpu_hz.mean())
        prices = (answer.joule_price, answer.second_price)
        cells.append(Cell(joules, seconds, answer.objective, answer.rounds, *means, *prices))
    return cells
