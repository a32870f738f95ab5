"""FedSA: the server takes the first M models, and no worker falls too far behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.planning.plan import Plan
from camu.schemes.contract import Pilot, State, View, mix_models
from camu.schemes.design import mean_round_seconds, rounds_between
from camu.schemes.local_sgd import LocalSgd

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class FedSa(LocalSgd):
    """Semi-asynchronous: the first M arrivals are mixed in, and only their devices start again."""

    first: int = 0  # M; 0: chosen after pilot runs
    max_staleness: int = 5  # tau_0
    keep_old: bool = True  # the old model keeps the share of devices that have not arrived
    pilot_rounds: int = 6
    name: ClassVar[str] = "fedsa"
    family: ClassVar[str] = "asynchronous"
    citation: ClassVar[str] = "Ma et al., FedSA, IEEE JSAC 2021"
    simplified: ClassVar[tuple[str, ...]] = ("M is chosen once, not again during training",)
    choices: ClassVar[tuple[str, ...]] = (
        "the old model keeps its share; implementations differ (keep_old)",
        "rounds needed with M are a + b / M, from two pilot runs; the paper has a bound",
        "rates count one participation more per device, so that all start at the same rate",
    )

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
        total = 1.0 if self.keep_old else sum(arrival.weight for arrival in view.arrived)
        return mix_models(view, [arrival.weight / total for arrival in view.arrived])

    def revise(self, view: View, state: State) -> Plan | None:
        """eta_i = eta / (n f_i), where f_i is the share of device i in all participations."""
        count = state.setdefault("count", np.ones(len(view.plan.units)))
        for arrival in view.arrived:
            count[arrival.unit] += 1
        rates = count.mean() / count
        units = [
            replace(unit, rule=replace(unit.rule, rate=float(rate)))
            for unit, rate in zip(view.plan.units, rates, strict=True)
        ]
        return replace(view.plan, units=tuple(units))
