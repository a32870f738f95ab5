"""Oort: devices with much to learn from and short rounds are selected more often."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.arrays import Float64
from camu.planning.plan import Plan
from camu.schemes.contract import State, View
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class Oort(LocalSgd):
    """A share of the devices trains: mostly those with high utility, and some that never did."""

    share: float = 0.5
    exploration: float = 0.9  # of the selected, at first
    exploration_factor: float = 0.98  # per round
    least_exploration: float = 0.2
    speed_quantile: float = 0.5  # of the devices' times: the round length T that is preferred
    penalty: float = 2.0  # alpha
    name: ClassVar[str] = "oort"
    family: ClassVar[str] = "selection"
    citation: ClassVar[str] = "Lai et al., Oort, OSDI 2021"
    simplified: ClassVar[tuple[str, ...]] = (
        "a device's utility is its samples times its mean loss; the original needs every "
        "sample's loss",
        "T is fixed; the original's pacer lengthens it; no cap and no blacklist",
    )
    choices: ClassVar[tuple[str, ...]] = ("devices that never trained are drawn evenly",)

    def select(self, view: View, state: State) -> Iterable[int]:
        """Explore some that never trained, and draw the others by utility near the top."""
        units = len(view.plan.units)
        last = state.setdefault("last", np.full(units, -1))
        state.setdefault("loss", np.zeros(units))
        wanted = max(1, round(self.share * units))
        generator = view.random().numpy()
        idle = np.array(view.idle)
        known, fresh = idle[last[idle] >= 0], idle[last[idle] < 0]
        chance = max(self.least_exploration, self.exploration * self.exploration_factor**view.round)
        new = min(len(fresh), max(round(chance * wanted), wanted - len(known)))
        old = min(len(known), wanted - new)
        chosen = [int(unit) for unit in generator.permutation(fresh)[:new]]
        if old > 0:
            utility = self.utility(view, state)[known]
            near = utility >= 0.95 * np.sort(utility)[-old]
            odds = np.where(near, utility, 0.0)
            chosen += generator.choice(known, old, replace=False, p=odds / odds.sum()).tolist()
        return chosen

    def utility(self, view: View, state: State) -> Float64:
        """n_k loss_k + sqrt(0.1 ln R / last_k), times (T / t_k)^alpha where t_k > T."""
        round_, last = view.round + 1, np.maximum(state["last"], 0) + 1
        seconds = np.array([unit.ready_seconds + unit.uplink_seconds for unit in view.plan.units])
        preferred = np.quantile(seconds, self.speed_quantile)
        samples = np.array([unit.samples for unit in view.plan.units])
        value = samples * np.maximum(state["loss"], 1e-12)
        value = value + np.sqrt(0.1 * np.log(round_) / last)
        return np.asarray(value * np.minimum(1.0, preferred / seconds) ** self.penalty)

    def revise(self, view: View, state: State) -> Plan | None:
        """Note the losses; the plan stays."""
        for arrival in view.arrived:
            state["loss"][arrival.unit], state["last"][arrival.unit] = arrival.loss, view.round
        return None
