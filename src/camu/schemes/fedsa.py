"""FedSA: the server takes the first M models, and no worker falls too far behind."""

import heapq
from dataclasses import dataclass, replace

import numpy as np

from camu.planning.queues import Channels
from camu.schemes.aggregation import mix_models
from camu.schemes.contract import (
    Count,
    CountFromTwo,
    CountFromZero,
    Pilot,
    Plan,
    State,
    View,
    Weights,
)
from camu.schemes.cost_effective import rounds_between
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class FedSa(LocalSgd):
    """Semi-asynchronous: the first M arrivals are mixed in, and only their devices start again."""

    first: CountFromZero = 0  # M; 0: chosen after pilot runs
    max_staleness: Count = 5  # tau_0
    keep_old: bool = True  # the old model keeps the share of devices that have not arrived
    pilot_rounds: CountFromTwo = 6
    name = "fedsa"
    family = "asynchronous"
    citation = "Ma et al., FedSA, IEEE JSAC 2021"
    simplified = ["M is chosen once, not again during training"]
    choices = [
        "the old model keeps its share; implementations differ (keep_old)",
        "rounds needed with M are a + b / M, from two pilot runs; the paper has a bound",
        "rates count one participation more per device, so that all start at the same rate",
    ]

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        """M with the smallest rounds times seconds."""
        count = len(pilot.plan.units)
        state["first"] = min(self.first, count)
        if not self.first:
            tries = (max(1, count // 4), count)
            runs = [
                pilot.train(
                    pilot.plan, self.pilot_rounds * count // m, scheme=replace(self, first=m)
                ).losses
                for m in tries
            ]
            few, all_ = rounds_between(runs)
            b = max(0.0, (few - all_) / (1 / tries[0] - 1 / count)) if count > 1 else 0.0
            total = {
                m: (all_ - b / count + b / m) * mean_round_seconds(pilot.plan, m)
                for m in range(1, count + 1)
            }
            state["first"] = min(total, key=total.__getitem__)
        return None

    def ready(self, view: View, state: State) -> bool:
        """When M have arrived and nobody on the way is at the bound."""
        late = [f for f in view.in_flight.values() if view.round - f.round >= self.max_staleness]
        enough = len(view.arrived) >= state.get("first", self.first)
        return (enough and not late) or not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """(1 - sum p_i) w + sum p_i w_i."""
        weights = [arrival.weight for arrival in view.arrived]
        return mix_models(view, weights if self.keep_old else view.shares)

    def revise(self, view: View, state: State) -> Plan | None:
        """eta_i = eta / (n f_i), where f_i is the share of device i in all participations."""
        count = state.setdefault("count", np.ones(len(view.plan.units)))
        for arrival in view.arrived:
            count[arrival.unit] += 1
        return view.plan.with_rates(count.mean() / count)


def mean_round_seconds(plan: Plan, first: int, rounds: int = 50) -> float:
    """Mean time between aggregations if the server waits for `first` arrivals.

    Units restart at the aggregation after their arrival; an OFDMA band is shared by all units.
    """
    now, channels = 0.0, Channels()
    queues = plan.uplink_queues
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
            end, _ = channels.send(now, plan.units[unit].uplink_seconds, queues[unit])
            heapq.heappush(waiting, (end, 1, unit))
    return now / rounds
