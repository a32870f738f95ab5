"""Whole update counts of P1 by branch and bound, pruned by the Lagrangian of the relaxation.

A point that beats the incumbent objective t satisfies error - t (1 - A) < 0. The Lagrangian bounds
that from below by a constant plus one term per cluster, so every cluster's choice has a regret,
and the regrets of a better point sum to less than a known slack. Partial choices beyond the slack
are cut; of two partial choices the one that costs no less and descends no more is cut as well.
What survives is solved in the order of a bound that grows a tangent with every solve.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from camu.allocation.p1 import Problem
from camu.allocation.p1_powers import Powers, Transmit
from camu.arrays import Float64, Int64

TOLERANCE = 1e-9  # a better point must be better by this share; so the answer is proven to it


class Incumbent(NamedTuple):
    """The best whole update counts so far, with their powers."""

    extra: Int64
    powers: Powers
    objective: float


class Tangent(NamedTuple):
    """A lower bound on the error that is linear in the computing joules: start + price * joules."""

    start: float
    price: float

    @classmethod
    def of(cls, transmit: Transmit, powers: Powers) -> Tangent:
        """The Lagrangian's minimum over the powers, at the prices of ``powers``."""
        price = powers.price
        start = powers.error + price * (powers.joules - transmit.available)
        if powers.log_power_price > -np.inf:
            start += float(np.exp(powers.log_power_price)) * (
                powers.total_power - float(np.exp(transmit.log_total))
            )
        return cls(start, price)


def branch_and_bound(
    problem: Problem, transmit: Transmit, tangent: Tangent, incumbent: Incumbent, most_states: int
) -> tuple[Incumbent, bool]:
    """The best whole update counts, and whether the search was complete."""
    target = incumbent.objective * (1 - TOLERANCE)
    choices = _choices(problem, tangent, target)
    start = float(problem.denominator(np.zeros(problem.size)))
    slack = target * start - tangent.start - sum(choice.least for choice in choices)
    if slack <= 0:
        return incumbent, True
    states = _expand(choices, problem, slack, most_states)
    if states is None:
        return incumbent, False
    cost, value, extra = states
    return _solve_survivors(transmit, tangent, incumbent, cost, start + value, extra), True


class _Choice(NamedTuple):
    """One cluster's options: counts with their cost, value and regret over the best of them."""

    cluster: int
    cost: Float64
    value: Float64
    regret: Float64
    least: float


def _choices(problem: Problem, tangent: Tangent, target: float) -> list[_Choice]:
    choices = []
    for c in np.flatnonzero(problem.useful_extra).tolist():
        count = np.arange(problem.useful_extra[c] + 1)
        cost = problem.compute_joules[c] * count
        value = (problem.descent[c] - 2 * problem.penalty[c]) * count
        value = value - problem.penalty[c] * count**2
        reduced = tangent.price * cost - target * value
        least = float(reduced.min())
        choices.append(_Choice(c, cost, value, reduced - least, least))
    # Clusters that can hardly deviate come first, so that the list of states stays short.
    choices.sort(key=lambda choice: -float(np.partition(choice.regret, 1)[1]))
    return choices


def _expand(
    choices: list[_Choice], problem: Problem, slack: float, most_states: int
) -> tuple[Float64, Float64, Int64] | None:
    """Every combination within the slack that no other dominates; None when there are too many."""
    cost, value, regret = np.zeros(1), np.zeros(1), np.zeros(1)
    extra = np.zeros((1, problem.size), dtype=np.int64)
    for choice in choices:
        allowed = np.flatnonzero(choice.regret < slack)
        if cost.size * allowed.size > 20 * most_states:
            return None
        regret = (regret[:, None] + choice.regret[allowed]).ravel()
        cost = (cost[:, None] + choice.cost[allowed]).ravel()
        value = (value[:, None] + choice.value[allowed]).ravel()
        kept = np.flatnonzero((regret < slack) & (cost < problem.spare_joules))
        kept = kept[_undominated(cost[kept], value[kept])]
        if kept.size > most_states:
            return None
        extra = extra[kept // allowed.size]
        extra[:, choice.cluster] = allowed[kept % allowed.size]
        cost, value, regret = cost[kept], value[kept], regret[kept]
    return cost, value, extra


def _undominated(cost: Float64, value: Float64) -> Int64:
    """Indices of the states that no other state beats in both cost and value."""
    order = np.lexsort((-value, cost))
    sorted_value = value[order]
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(sorted_value)[:-1]])
    return np.asarray(order[sorted_value > best_before])


def _solve_survivors(
    transmit: Transmit,
    tangent: Tangent,
    incumbent: Incumbent,
    cost: Float64,
    value: Float64,
    extra: Int64,
) -> Incumbent:
    """Solve the powers of the most promising state, tighten all bounds with it, repeat."""
    alive = value > 0
    safe, powers = np.where(alive, value, 1.0), incumbent.powers
    bound = np.where(alive, tangent.start + tangent.price * cost, np.inf) / safe
    while (bound < incumbent.objective * (1 - TOLERANCE)).any():
        best = int(np.argmin(bound))
        powers = transmit.for_joules(transmit.available - float(cost[best]), powers)
        objective = powers.error / float(value[best])
        if objective < incumbent.objective:
            incumbent = Incumbent(extra[best], powers, objective)
        line = Tangent.of(transmit, powers)
        bound = np.maximum(bound, np.where(alive, (line.start + line.price * cost) / safe, np.inf))
        bound[best] = np.inf
    return incumbent
