"""Branch and bound over whole update counts, pruned by the Lagrangian of the relaxation.

A point that beats the incumbent objective t satisfies error - t (1 - A) < 0. The Lagrangian bounds
that from below by a constant plus one term per cluster, so every cluster's choice has a regret,
and the regrets of a better point sum to less than a known slack. Partial choices beyond the slack
are cut; of two partial choices the one that costs no less and descends no more is cut as well.
What survives is solved in the order of a bound that grows a tangent with every solve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from camu.allocation.problem import Problem
from camu.allocation.transmit import Powers, Transmit
from camu.allocation.updates import useful_extra
from camu.arrays import Float64, Int64

TOLERANCE = 1e-9  # a better point must be better by this share; so the answer is proven to it


@dataclass(frozen=True, eq=False)
class Incumbent:
    """The best whole update counts so far, with their powers."""

    extra: Int64
    powers: Powers
    objective: float


@dataclass(frozen=True, eq=False)
class Tangent:
    """A lower bound on the error that is linear in the computing joules: start + price * joules."""

    start: float
    price: float

    @classmethod
    def of(cls, transmit: Transmit, powers: Powers, available: float) -> Tangent:
        """The Lagrangian's minimum over the powers, at the prices of ``powers``.

        ``available`` is the energy above the infimum of one update everywhere.
        """
        price = powers.price
        start = powers.error + price * (powers.joules - available)
        if powers.log_power_price > -np.inf:
            start += float(np.exp(powers.log_power_price)) * (
                powers.total_power - float(np.exp(transmit.log_total))
            )
        return cls(start, price)


def branch_and_bound(
    problem: Problem,
    transmit: Transmit,
    available: float,
    tangent: Tangent,
    incumbent: Incumbent,
    most_states: int,
) -> tuple[Incumbent, bool]:
    """The best whole update counts, and whether the search was complete."""
    target = incumbent.objective * (1 - TOLERANCE)
    choices = _regrets(problem, tangent, target)
    floor = sum(choice.least for choice in choices)
    start = float(problem.denominator(np.zeros(problem.size)))
    slack = target * start - tangent.start - floor
    if slack <= 0:
        return incumbent, True
    states = _expand(choices, slack, available, most_states)
    if states is None:
        return incumbent, False
    cost, value, picks = states
    return _solve_survivors(
        problem, transmit, available, tangent, incumbent, (cost, start + value, picks)
    )


@dataclass(frozen=True, eq=False)
class _Choice:
    """One cluster's options: counts with their cost, value and regret over the best of them."""

    cluster: int
    cost: Float64
    value: Float64
    regret: Float64
    least: float


def _regrets(problem: Problem, tangent: Tangent, target: float) -> list[_Choice]:
    useful, choices = useful_extra(problem), []
    for c in np.flatnonzero(useful).tolist():
        count = np.arange(useful[c] + 1)
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
    choices: list[_Choice], slack: float, available: float, most_states: int
) -> tuple[Float64, Float64, Int64] | None:
    """Every combination within the slack that no other dominates; None when there are too many."""
    clusters = [choice.cluster for choice in choices]
    cost, value, regret = np.zeros(1), np.zeros(1), np.zeros(1)
    picks = np.zeros((1, len(choices)), dtype=np.int64)
    for k, choice in enumerate(choices):
        allowed = np.flatnonzero(choice.regret < slack)
        if cost.size * allowed.size > 20 * most_states:
            return None
        regret = (regret[:, None] + choice.regret[allowed]).ravel()
        cost = (cost[:, None] + choice.cost[allowed]).ravel()
        value = (value[:, None] + choice.value[allowed]).ravel()
        kept = np.flatnonzero((regret < slack) & (cost < available))
        kept = kept[_undominated(cost[kept], value[kept])]
        if kept.size > most_states:
            return None
        picks = picks[kept // allowed.size]
        picks[:, k] = allowed[kept % allowed.size]
        cost, value, regret = cost[kept], value[kept], regret[kept]
    return cost, value, _columns(picks, clusters)


def _columns(picks: Int64, clusters: list[int]) -> Int64:
    """The picks in the order of the clusters' indices; others keep no extra update."""
    width = max(clusters, default=-1) + 1
    ordered = np.zeros((picks.shape[0], width), dtype=np.int64)
    ordered[:, clusters] = picks
    return ordered


def _undominated(cost: Float64, value: Float64) -> Int64:
    """Indices of the states that no other state beats in both cost and value."""
    order = np.lexsort((-value, cost))
    sorted_value = value[order]
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(sorted_value)[:-1]])
    return np.asarray(order[sorted_value > best_before])


def _solve_survivors(
    problem: Problem,
    transmit: Transmit,
    available: float,
    tangent: Tangent,
    incumbent: Incumbent,
    states: tuple[Float64, Float64, Int64],
) -> tuple[Incumbent, bool]:
    """Solve the powers of the most promising state, tighten all bounds with it, repeat."""
    cost, value, picks = states
    alive = value > 0
    bound = np.where(alive, tangent.start + tangent.price * cost, np.inf)
    bound = bound / np.where(alive, value, 1.0)
    powers = incumbent.powers
    while (bound < incumbent.objective * (1 - TOLERANCE)).any():
        best = int(np.argmin(bound))
        powers = transmit.for_joules(available - float(cost[best]), powers)
        objective = powers.error / float(value[best])
        if objective < incumbent.objective:
            extra = np.zeros(problem.size, dtype=np.int64)
            extra[: picks.shape[1]] = picks[best]
            incumbent = Incumbent(extra, powers, objective)
        line = Tangent.of(transmit, powers, available)
        tighter = (line.start + line.price * cost) / np.where(alive, value, 1.0)
        bound = np.maximum(bound, np.where(alive, tighter, np.inf))
        bound[best] = np.inf
    return incumbent, True
