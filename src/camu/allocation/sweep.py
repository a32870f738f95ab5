"""Problem P1 at several energy budgets: what each buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from camu.allocation.problem import Problem
from camu.allocation.solve import solve
from camu.errors import CamuError, InputError
from camu.work import Progress, silent

_FORM = "write energy=1,2,4 or energy=FROM:TO:COUNT, in joules"
MOST_BUDGETS = 1000


@dataclass(frozen=True)
class SweepRow:
    """The answer at one budget; None where the budget is too small for any answer."""

    budget_joules: float
    objective: float | None
    gap: float | None
    compute_joules: float | None
    transmit_joules: float | None
    power_watts: float | None  # of all leaders
    updates: int | None  # local updates of all clusters in a round


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
    nothing = SweepRow(budget, None, None, None, None, None, None)
    if budget < problem.smallest_budget_joules:
        return nothing
    try:
        answer = solve(problem, solver, seed=seed)
    except InputError:
        raise
    except CamuError:  # `latency` sends at fixed power, so it needs more than the smallest budget
        return nothing
    return SweepRow(
        budget,
        answer.objective,
        answer.gap,
        float(problem.update_joules(answer.extra_updates).sum()),
        float(problem.transmit_joules(answer.power_watts).sum()),
        float(answer.power_watts.sum()),
        int(problem.size + answer.extra_updates.sum()),
    )
