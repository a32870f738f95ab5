"""Cost-effective design: how many devices and how many local updates, at the least cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Pilot, Scheme, State, View
from camu.schemes.design import best_pair, fit_ratio, rounds_between
from camu.world import World


@dataclass(frozen=True)
class CostEffective(Scheme):
    """K devices drawn evenly do E updates each; both are chosen once, after pilot runs."""

    energy_price: float = 0.5  # gamma: a joule costs this, a second one minus this
    most_updates: int = 20  # the largest E that is tried
    pilot_rounds: int = 6
    participants: int = 0  # K; 0: chosen
    updates: int = 0  # E; 0: chosen
    name: ClassVar[str] = "cost-effective"
    family: ClassVar[str] = "selection"
    citation: ClassVar[str] = "Luo et al., Cost-effective federated learning design, INFOCOM 2021"
    simplified: ClassVar[tuple[str, ...]] = (
        "three pilot runs; the number of pairs, and the losses between which rounds are counted, "
        "are not taken from the paper",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "K and E by an exact search with the expected longest time, not by alternation",
        "under `tdma` the uplinks of the K devices add up",
        "weights by data size among the drawn devices",
    )

    def plan(self, world: World) -> Plan:
        """One device per unit."""
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
        """K devices, without replacement."""
        wanted = state.get("participants", self.participants)
        return view.draw(wanted / len(view.plan.units))
