"""The updates of P1: the largest denominator 1 - A that a given computing energy can buy.

Each extra local update of a cluster costs the same joules and adds less and less to 1 - A, so the
best use of fractional updates is a knapsack in the order of descent per joule; at most one cluster
ends with a fraction. Between whole updates the menu is the straight line, which for whole numbers
is exact and for the corrected, curved denominator is the tightest concave cover.

Whole counts come from branch and bound, pruned by the Lagrangian of the relaxation.

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
from camu.arrays import Float64, Int64
from camu.errors import InputError

MOST_ITEMS = 5_000_000
TOLERANCE = 1e-9  # a better point must be better by this share; so the answer is proven to it


@dataclass(frozen=True, eq=False)
class Updates:
    """The menu of extra updates, best descent per joule first.

    Item k offers ``count[k]`` updates of cluster ``cluster[k]``, each adding ``gain[k]`` for
    ``cost[k]`` joules. The sums run over the items before k, so they have one entry more.
    """

    cluster: Int64
    gain: Float64
    cost: Float64
    count: Int64
    sum_cost: Float64
    sum_value: Float64  # the denominator when the items before k are bought
    rate: Float64  # descent per joule

    @classmethod
    def of(cls, problem: Problem) -> Updates:
        """Build and sort the menu; updates that add nothing are not on it."""
        first, useful = problem.descent - 3 * problem.penalty, useful_extra(problem)
        plain = np.flatnonzero((problem.penalty == 0) & (useful > 0))
        curved = np.flatnonzero((problem.penalty > 0) & (useful > 0))
        if int(useful[curved].sum()) > MOST_ITEMS:
            raise InputError(
                f"{problem.source}: clusters[].max_extra_updates allow more than {MOST_ITEMS} "
                "updates under a penalty; lower them"
            )
        repeated = np.repeat(curved, useful[curved])
        starts = np.repeat(np.cumsum(useful[curved]) - useful[curved], useful[curved])
        position = np.arange(repeated.size) - starts
        cluster = np.concatenate([plain, repeated]).astype(np.int64)
        gain = np.concatenate(
            [problem.descent[plain], first[repeated] - 2 * problem.penalty[repeated] * position]
        )
        count = np.concatenate([useful[plain], np.ones(repeated.size, dtype=np.int64)])
        cost = problem.compute_joules[cluster]
        with np.errstate(divide="ignore"):
            rate = gain / cost
        order = np.argsort(-rate, kind="stable")
        cluster, gain, cost, count = cluster[order], gain[order], cost[order], count[order]
        start = float(problem.denominator(np.zeros(problem.size)))
        return cls(
            cluster=cluster,
            gain=gain,
            cost=cost,
            count=count,
            sum_cost=np.concatenate([[0.0], np.cumsum(cost * count)]),
            sum_value=start + np.concatenate([[0.0], np.cumsum(gain * count)]),
            rate=rate[order],
        )

    @property
    def total_cost(self) -> float:
        """What buying the whole menu costs."""
        return float(self.sum_cost[-1])

    def position(self, joules: float) -> int:
        """How many items are bought in full for so many joules."""
        return int(np.searchsorted(self.sum_cost, joules, side="right")) - 1

    def value(self, joules: float, position: int) -> float:
        """The denominator for so many joules, the last of them spent on item ``position``."""
        if position >= self.gain.size:
            return float(self.sum_value[-1])
        rate = float(self.rate[position])
        extra = joules - float(self.sum_cost[position])
        return float(self.sum_value[position]) + (rate * extra if extra else 0.0)

    def counts(self, size: int, position: int, partial: int = 0) -> Int64:
        """Extra updates per cluster: the items before ``position`` and a part of that one."""
        extra = np.zeros(size, dtype=np.int64)
        np.add.at(extra, self.cluster[:position], self.count[:position])
        if partial:
            extra[self.cluster[position]] += partial
        return extra


def useful_extra(problem: Problem) -> Int64:
    """How many extra updates of each cluster still raise 1 - A."""
    # The j-th extra update adds beta - penalty (2 j + 1).
    room = np.full(problem.size, np.inf)
    curved = problem.penalty > 0
    room[curved] = np.ceil((problem.descent[curved] / problem.penalty[curved] - 1) / 2) - 1
    room[problem.descent <= 0] = 0
    return np.asarray(np.clip(room, 0, problem.extra_limit), dtype=np.int64)


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
