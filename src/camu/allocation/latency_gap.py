"""Benchmark 3: update counts that make the clusters' updates arrive together, at fixed power.

Zeng et al., "Heterogeneous training intensity for federated learning: a deep reinforcement
learning approach" (IEEE Transactions on Network Science and Engineering, 2022), give fast
participants more local iterations so that no one waits: an exact algorithm for static conditions
and a learned policy for changing ones. This is the static case, with clusters as participants, as
in the CAMU paper's comparison. With T_c the time at which a cluster's update arrives,

    minimise   max_c T_c - min_c T_c
    subject to sum_c [ compute_c N_c + transmit_joules_c ] <= energy,  N_c = 1 ... 1 + n_max,c

A cluster is ready after N_c * seconds_per_update_c. If every cluster has a band of its own, its
update arrives transmit_seconds_c later. If they share one channel, they queue: first ready, first
served. For a target time that every cluster must reach, the fewest updates that reach it are the
cheapest and end soonest, so trying each reachable target, from the earliest on, meets the optimum.
"""

from __future__ import annotations

import heapq
import time

import numpy as np
from numpy.typing import ArrayLike

from camu.allocation.answer import Allocation
from camu.allocation.p1 import Problem, round_up
from camu.allocation.p1_exact import solve_exact
from camu.arrays import Float64, Int64, send_in_turn
from camu.errors import CamuError, InputError


def minimise_latency_gap(
    seconds_per_update: ArrayLike,
    transmit_seconds: ArrayLike,
    max_extra_updates: ArrayLike,
    compute_joules: ArrayLike,
    budget_joules: float,
) -> tuple[Int64, float]:
    """The extra updates n_c with the smallest gap between the clusters' arrivals, and that gap.

    ``budget_joules`` is what extra updates may cost together. Among equal gaps the cheapest wins.
    """
    per_update, transmit = np.asarray(seconds_per_update), np.asarray(transmit_seconds)
    limit, joules = np.asarray(max_extra_updates), np.asarray(compute_joules)
    extra, spent = np.zeros(per_update.size, dtype=np.int64), 0.0
    finish = per_update + transmit
    queue = [(float(t), c) for c, t in enumerate(finish)]
    heapq.heapify(queue)
    latest = float(finish.max())
    moves: list[int] = []  # which cluster got the update, in order
    best, best_moves = latest - queue[0][0], 0
    # The first to finish sets the target; only one more update of its own can raise it.
    while extra[c := queue[0][1]] < limit[c]:
        spent += float(joules[c])
        if spent > budget_joules:
            break
        extra[c] += 1
        moves.append(c)
        ends = float(per_update[c] * (1 + extra[c]) + transmit[c])
        heapq.heapreplace(queue, (ends, c))
        latest = max(latest, ends)
        if latest - queue[0][0] < best:
            best, best_moves = latest - queue[0][0], len(moves)
    chosen = np.bincount(moves[:best_moves], minlength=extra.size).astype(np.int64)
    return chosen, best


def minimise_arrival_spread(
    seconds_per_update: ArrayLike,
    transmit_seconds: ArrayLike,
    max_extra_updates: ArrayLike,
    compute_joules: ArrayLike,
    budget_joules: float,
) -> tuple[Int64, float]:
    """The same on one shared channel: the smallest spread of the arrivals, first come first served.

    The first cluster to be ready arrives first, and the last arrival is the end of the queue. Once
    it is decided who is first and when, the queue ends soonest if all others are ready as early as
    they may be, so every such decision is tried. Clusters ready together send in their order.
    """
    per_update, transmit = np.asarray(seconds_per_update), np.asarray(transmit_seconds)
    limit, joules = np.asarray(max_extra_updates), np.asarray(compute_joules)
    everyone, total = np.arange(per_update.size), float(transmit.sum())
    last = float((per_update * (1 + limit)).min())  # an upper bound on waiting
    starts = [
        (float(ready), c)
        for c in everyone.tolist()
        for ready in per_update[c] * np.arange(1, limit[c] + 2)
        if ready <= last
    ]
    best, best_extra = np.inf, np.zeros(per_update.size, dtype=np.int64)
    for target, first in sorted(starts):
        if total - transmit[first] >= best:  # the channel is never idle: no better spread exists
            continue
        updates = _fewest(per_update, target)
        if float((joules * (updates - 1)).sum()) > budget_joules:
            break
        updates += (everyone < first) & (per_update * updates == target)  # else it would be first
        if (updates > 1 + limit).any() or (joules * (updates - 1)).sum() > budget_joules:
            continue
        ends = send_in_turn(per_update * updates, transmit)
        spread = float(ends.max() - ends[first])
        if spread < best - 1e-12 * (target + total):  # rounding decides no tie
            best, best_extra = spread, updates - 1
    return best_extra, float(best)


def _fewest(per_update: Float64, target: float) -> Int64:
    """The fewest updates that keep each cluster busy until ``target``, at least one."""
    updates = np.maximum(1.0, np.ceil(target / per_update))
    # The quotient may be off by rounding; the products decide.
    updates = np.where((updates > 1) & ((updates - 1) * per_update >= target), updates - 1, updates)
    return np.where(updates * per_update < target, updates + 1, updates).astype(np.int64)


def solve_latency_gap(problem: Problem) -> Allocation:
    """Benchmark 3 on a problem: leaders send at their caps, or at equal shares of the total cap.

    Each cluster's uplink has a band of its own. The objective and its gap are P1's, so that answers
    can be compared.
    """
    began = time.perf_counter()
    seconds = problem.compute_seconds
    if seconds is None:
        raise InputError(
            f"{problem.source}: the latency solver needs clusters[].compute_seconds, "
            "the positive time of one local update of each cluster"
        )
    power = problem.max_power_watts
    if problem.max_total_power_watts is not None:
        share = problem.max_total_power_watts / problem.size
        power = np.minimum(power, share ** (1 / problem.exponent) * (1 - 1e-15))
    fixed = float(problem.spent_joules(power, np.zeros(problem.size)))
    if fixed > problem.energy_joules * (1 + 1e-9):
        raise CamuError(
            f"{problem.source}: a budget of {problem.energy_joules:.10g} J is too small: at this "
            f"power one update of each cluster needs at least {round_up(fixed)} J (energy_joules)"
        )
    extra, spread = minimise_latency_gap(
        seconds,
        problem.transmit_seconds(power),
        problem.extra_limit,
        problem.compute_joules,
        max(problem.energy_joules - fixed, 0.0),  # rounding
    )
    if not float(problem.denominator(extra)) > 0:
        raise CamuError(f"{problem.source}: with these updates 1 - A is not positive (descent)")
    return Allocation.of(
        problem,
        "latency",
        power,
        extra,
        lower_bound=solve_exact(problem).lower_bound,
        seconds=time.perf_counter() - began,
        details={"latency_gap_seconds": spread},
    )
