"""The trade-off of P2: the exact answer over a grid of both budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from camu.allocation.horizon import HorizonProblem
from camu.allocation.horizon_exact import solve_horizon
from camu.errors import CamuError


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


def trade_off(problem: HorizonProblem, factors: Sequence[float]) -> list[Cell]:
    """The answer at every pair of factors on both budgets; pairs that fit no round are left out."""
    cells = []
    for joules in factors:
        for seconds in factors:
            changed = replace(
                problem,
                energy_joules=joules * problem.energy_joules,
                seconds=seconds * problem.seconds,
            )
            try:
                answer = solve_horizon(changed)
            except CamuError:
                continue
            cells.append(
                Cell(
                    changed.energy_joules,
                    changed.seconds,
                    answer.objective,
                    answer.rounds,
                    float(answer.updates.mean()),
                    float(answer.power_watts.mean()),
                    float(answer.cpu_hz.mean()),
                    answer.joule_price,
                    answer.second_price,
                )
            )
    return cells
