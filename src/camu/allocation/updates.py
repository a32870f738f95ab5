"""The updates of P1: the largest denominator 1 - A that a given computing energy can buy.

Each extra local update of a cluster costs the same joules and adds less and less to 1 - A, so the
best use of fractional updates is a knapsack in the order of descent per joule; at most one cluster
ends with a fraction. Between whole updates the menu is the straight line, which for whole numbers
is exact and for the corrected, curved denominator is the tightest concave cover.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from camu.allocation.problem import Problem
from camu.arrays import Float64, Int64
from camu.errors import InputError

MOST_ITEMS = 5_000_000


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
