"""Oort: devices with much to learn from and short rounds are selected more often."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.errors import InputError
from camu.schemes.contract import NonNegative, Plan, PositiveShare, Share, State, View, World
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class Oort(LocalSgd):
    """A share of the devices trains: mostly those with high utility, and some that never did."""

    share: PositiveShare = 0.5
    exploration: Share = 0.9  # of the selected, at first
    exploration_factor: Share = 0.98  # per round
    least_exploration: Share = 0.2
    speed_quantile: Share = 0.5  # of the devices' times: the round length T that is preferred
    penalty: NonNegative = 2.0  # alpha
    name = "oort"
    family = "selection"
    citation = "Lai et al., Oort, OSDI 2021"
    simplified = [
        "a device's utility is its samples times its mean loss; the original needs every "
        "sample's loss",
        "T is fixed; the original's pacer lengthens it; no cap and no blacklist",
    ]
    choices = ["devices that never trained are drawn evenly"]

    def plan(self, world: World) -> Plan:
        if world.config.training.dp_unit != "none":
            raise InputError(
                f"training.dp_unit = {world.config.training.dp_unit}: scheme {self.name} chooses "
                "by exact training losses, which no epsilon covers; take another one"
            )
        return super().plan(world)

    def select(self, view: View, state: State) -> Iterable[int]:
        """Explore some that never trained, and draw the others by utility near the top."""
        units = len(view.plan.units)
        last = state.setdefault("last", np.full(units, -1))
        state.setdefault("loss", np.zeros(units))
        wanted = max(1, round(self.share * units))
        generator = view.random().numpy()
        able = np.array(view.powered)
        known, fresh = able[last[able] >= 0], able[last[able] < 0]
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
        seconds = view.plan.column("seconds")
        preferred = np.quantile(seconds, self.speed_quantile)
        value = view.plan.column("samples") * np.maximum(state["loss"], 1e-12)
        value = value + np.sqrt(0.1 * np.log(round_) / last)
        return np.asarray(value * np.minimum(1.0, preferred / seconds) ** self.penalty)

    def revise(self, view: View, state: State) -> Plan | None:
        """Note the losses; the plan stays."""
        for arrival in view.arrived:
            state["loss"][arrival.unit], state["last"][arrival.unit] = arrival.loss, view.round
        return None
