"""Choices from pilot runs: how many rounds a design needs, and what its rounds take."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from camu.planning.plan import Plan


def rounds_between(losses: Sequence[Sequence[float]]) -> list[float]:
    """For each run, the rounds in which its loss falls from one level to another, common to all.

    The levels are the lowest first loss and the highest last one, where losses count as the least
    so far. Rounds are interpolated; a run without progress between the levels counts one round.
    """
    falls = [np.minimum.accumulate(np.asarray(run, dtype=float)) for run in losses]
    high = min(float(run[0]) for run in falls)
    low = max(float(run[-1]) for run in falls)
    if not low < high:
        return [1.0] * len(falls)
    return [max(_crossing(run, low) - _crossing(run, high), 1e-3) for run in falls]


def _crossing(losses: np.typing.NDArray[np.float64], level: float) -> float:
    """When a falling curve reaches a level."""
    after = int(np.argmax(losses <= level))
    if after == 0:
        return 0.0
    above, below = float(losses[after - 1]), float(losses[after])
    return after - 1 + (above - level) / (above - below)


def participation_factor(devices: int, count: int) -> float:
    """q(K) = 1 + (N - K) / (K (N - 1)), the price of drawing K of N devices."""
    return 1 + (count - devices) / (devices * max(count - 1, 1))


def fit_ratio(pairs: Sequence[tuple[int, int]], rounds: Sequence[float], count: int) -> float:
    """A0 / B0 from the rounds of pairs (K, E), which follow A0 / E + B0 q(K) E up to scale."""
    from scipy.optimize import nnls  # loading it takes long

    rows = [(1 / e, participation_factor(k, count) * e) for k, e in pairs]
    (first, second), _ = nnls(np.array(rows), np.array(rounds))
    return math.inf if second <= 0 else float(first / second)


def best_pair(plan: Plan, ratio: float, energy_price: float, most_updates: int) -> tuple[int, int]:
    """K and E of the least cost to a target, among all whole pairs."""
    count = len(plan.units)
    work = np.array([unit.per_update.compute_seconds for unit in plan.units])
    air = np.array([unit.uplink_seconds for unit in plan.units])
    work_joules = np.mean([unit.per_update.compute_joules for unit in plan.units])
    air_joules = np.mean([unit.uplink_joules for unit in plan.units])
    in_turn = plan.access == "tdma"
    best, pair = math.inf, (count, 1)
    for updates in range(1, most_updates + 1):
        times = np.sort(updates * work + (0.0 if in_turn else air))
        for devices in range(1, count + 1):
            seconds = expected_longest(times, devices) + in_turn * devices * float(air.mean())
            joules = devices * float(updates * work_joules + air_joules)
            factor = participation_factor(devices, count) * updates
            rounds = 1 / updates if math.isinf(ratio) else ratio / updates + factor
            cost = ((1 - energy_price) * seconds + energy_price * joules) * rounds
            if cost < best * (1 - 1e-12):
                best, pair = cost, (devices, updates)
    return pair


def expected_longest(sorted_times: np.typing.NDArray[np.float64], devices: int) -> float:
    """The expected maximum over K devices that are drawn without replacement."""
    count = len(sorted_times)
    chances = [math.comb(i - 1, devices - 1) for i in range(1, count + 1)]
    return float(np.dot(chances, sorted_times) / math.comb(count, devices))


def mean_round_seconds(plan: Plan, first: int, rounds: int = 50) -> float:
    """Mean time between aggregations if the server waits for `first` arrivals.

    Units restart at the aggregation after their arrival; an OFDMA band is shared by all units.
    """
    now = free = 0.0
    waiting: list[tuple[float, int, int]] = []  # time, 0 ready or 1 arrives, unit
    idle = list(range(len(plan.units)))
    for _ in range(rounds):
        for unit in idle:
            heapq.heappush(waiting, (now + plan.units[unit].ready_seconds, 0, unit))
        idle = []
        while len(idle) < first:
            now, kind, unit = heapq.heappop(waiting)
            if kind == 1:
                idle.append(unit)
                continue
            begin = max(now, free) if plan.access == "tdma" else now
            free = begin + plan.units[unit].uplink_seconds
            heapq.heappush(waiting, (free, 1, unit))
    return now / rounds
