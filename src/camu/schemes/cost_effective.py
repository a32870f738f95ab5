"""Cost-effective design: how many devices and how many local updates, at the least cost."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from camu.arrays import Float64
from camu.planning.groups import make_plan, single_devices
from camu.planning.queues import arrivals
from camu.schemes.contract import (
    Count,
    CountFromTwo,
    CountFromZero,
    Pilot,
    Plan,
    Scheme,
    Share,
    State,
    View,
    World,
)


@dataclass(frozen=True)
class CostEffective(Scheme):
    """K devices drawn evenly do E updates each; both are chosen once, after pilot runs."""

    energy_price: Share = 0.5  # gamma: a joule costs this, a second one minus this
    most_updates: Count = 20  # the largest E that is tried
    pilot_rounds: CountFromTwo = 6
    participants: CountFromZero = 0  # K; 0: chosen
    updates: CountFromZero = 0  # E; 0: chosen
    name = "cost-effective"
    family = "selection"
    citation = "Luo et al., Cost-effective federated learning design, INFOCOM 2021"
    simplified = [
        "three pilot runs; the number of pairs, and the losses between which rounds are counted, "
        "are not taken from the paper",
    ]
    choices = [
        "K and E by an exact search with the expected longest time, not by alternation",
        "a round of all devices takes the time of the plan; under `tdma` fewer are taken to send "
        "in turn once the slowest of them is ready, but to need no longer than all",
        "weights by data size among the drawn devices",
    ]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights, self.updates or 1)

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        """Learn A0 / B0 from the rounds of three pairs, then choose K and E."""
        count = len(pilot.plan.units)
        state["participants"], updates = self.participants or count, self.updates
        if not (self.participants and self.updates):
            pairs = [(count, 1), (count, 5), (max(1, count // 2), 2)]
            runs = [
                pilot.train(
                    pilot.plan.with_updates([updates] * count),
                    self.pilot_rounds,
                    scheme=replace(self, participants=devices, updates=updates),
                ).losses
                for devices, updates in pairs
            ]
            state["ratio"] = fit_ratio(pairs, rounds_between(runs), count)
            best = best_pair(pilot.plan, state["ratio"], self.energy_price, self.most_updates)
            state["participants"], updates = best
        return pilot.plan.with_updates([updates] * count)

    def select(self, view: View, state: State) -> Iterable[int]:
        wanted = state.get("participants", self.participants)
        return view.draw(wanted / len(view.plan.units))


Number = TypeVar("Number", float, Float64)


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


def _crossing(losses: Float64, level: float) -> float:
    """When a falling curve reaches a level."""
    after = int(np.argmax(losses <= level))
    if after == 0:
        return 0.0
    above, below = float(losses[after - 1]), float(losses[after])
    return after - 1 + (above - level) / (above - below)


def participation_factor(devices: Number, count: int) -> Number:
    """q(K) = 1 + (N - K) / (K (N - 1)), the price of drawing K of N devices."""
    return 1 + (count - devices) / (devices * max(count - 1, 1))


def fit_ratio(pairs: Sequence[tuple[int, int]], rounds: Sequence[float], count: int) -> float:
    """A0 / B0 from the rounds of pairs (K, E), which follow A0 / E + B0 q(K) E up to scale."""
    from scipy.optimize import nnls  # loading it takes long

    devices, updates = np.array(pairs, dtype=np.float64).T
    rows = np.stack((1 / updates, participation_factor(devices, count) * updates), axis=1)
    (first, second), _ = nnls(rows, np.array(rounds))
    return math.inf if second <= 0 else float(first / second)


def best_pair(plan: Plan, ratio: float, energy_price: float, most_updates: int) -> tuple[int, int]:
    """K and E of the least cost to a target, among all whole pairs."""
    count = len(plan.units)
    work_joules, fixed_joules = (
        plan.column("update_joules").mean(),
        plan.column("fixed_joules").mean(),
    )
    updates, devices = np.arange(1.0, most_updates + 1)[:, None], np.arange(1.0, count + 1)
    seconds = round_seconds(plan, most_updates)
    joules = devices * (updates * work_joules + fixed_joules)
    joules = joules + devices * plan.idle_watts / count * seconds
    factor = participation_factor(devices, count) * updates
    rounds = 1 / updates if math.isinf(ratio) else ratio / updates + factor
    cost = ((1 - energy_price) * seconds + energy_price * joules) * rounds
    # Of pairs that cost the same up to rounding, the first: the fewest updates, then devices.
    first = int(np.argmax(cost <= cost.min() * (1 + 1e-12)))
    return first % count + 1, first // count + 1


def round_seconds(plan: Plan, most_updates: int) -> Float64:
    """The expected time of a round, a row for each E and a column for each K, both from 1.

    That of all devices is the plan's. Under `tdma` fewer are taken to send in turn once the
    slowest of them is ready, but to need no longer than all: whoever is left out delays nobody.
    With link types other than `shannon`, fewer than all are taken to send at once.
    """
    work = np.array([unit.per_update.compute_seconds for unit in plan.units])
    air, heard = plan.column("uplink_seconds"), plan.column("downlink_seconds")
    in_turn = plan.access == "tdma" and plan.queues is None
    updates, devices = np.arange(1.0, most_updates + 1)[:, None], np.arange(1, len(work) + 1)
    times = np.sort(updates * work + (0.0 if in_turn else air), axis=1)
    longest = np.stack([expected_longest(times, drawn) for drawn in devices.tolist()], axis=1)
    seconds = heard.max() + longest + in_turn * devices * air.mean()
    ready = heard + updates * work
    seconds[:, -1] = [arrivals(row, air, plan.access, plan.queues).max() for row in ready]
    return np.asarray(np.minimum(seconds, seconds[:, -1:]))


def expected_longest(sorted_times: Float64, devices: int) -> Float64:
    """The expected maximum of each row over K devices that are drawn without replacement."""
    from scipy.special import gammaln  # loading it takes long

    rank = np.arange(devices, sorted_times.shape[-1] + 1)  # of the longest among those drawn
    # C(rank - 1, K - 1) up to a factor, in logarithms: the numbers themselves overflow.
    logs = gammaln(rank) - gammaln(rank - devices + 1)
    chances = np.exp(logs - logs[-1])
    return np.asarray(sorted_times[..., devices - 1 :] @ (chances / chances.sum()))
