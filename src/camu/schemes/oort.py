"""Oort: devices with much to learn from and short rounds are selected more often."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.errors import InputError
from camu.schemes.contract import NonNegative, Plan, PositiveShare, Share, State, View, World
from camu.schemes.local_sgd import LocalSgd

_WINDOW = 5  # of devices that never trained, so many times as many as are needed may be drawn


@dataclass(frozen=True)
class Oort(LocalSgd):
    """A share of the devices trains: mostly those with high utility, and some that never did."""

    share: PositiveShare = 0.5
    exploration: Share = 0.9  # of the selected, at first
    exploration_factor: Share = 0.98  # per round
    least_exploration: Share = 0.2
    speed_quantile: Share = 0.5  # of the devices' times: the round length T that is preferred
    penalty: NonNegative = 2.0  # alpha
    clip: Share = 0.95  # utilities count as no more than this quantile of them
    cut_off: Share = 0.95  # of the utility that is just high enough: who is above may be drawn
    name = "oort"
    family = "selection"
    tunable = {"share": (0.1, 1.0, "log"), "penalty": [0.0, 1.0, 2.0, 5.0]}
    citation = "Lai et al., Oort, OSDI 2021"
    simplified = [
        "a device's utility is its samples times its mean loss; the original has the root of the "
        "mean square of every sample's loss",
        "T is fixed; the original's pacer lengthens it; no blacklist",
    ]
    choices = [
        "the utility of devices that never trained, of which the fast and large ones are tried "
        "first, is their samples, as in the authors' code",
    ]

    def plan(self, world: World) -> Plan:
        if world.config.training.dp_unit != "none":
            raise InputError(
                f"training.dp_unit = {world.config.training.dp_unit}: scheme {self.name} chooses "
                "by exact training losses, which no epsilon covers; take another one"
            )
        return super().plan(world)

    def select(self, view: View, state: State) -> Iterable[int]:
        """Draw some that never trained, and others near the top, by their utilities."""
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
        chosen: list[int] = []
        if old > 0:
            utility = self.utility(view, state, known)
            near = utility >= self.cut_off * np.sort(utility)[-old]
            odds = np.where(near, utility, 0.0)
            chosen += generator.choice(known, old, replace=False, p=odds / odds.sum()).tolist()
        if new > 0:
            value = view.plan.column("samples")[fresh] * self.slowness(view)[fresh]
            odds = np.where(value >= np.sort(value)[-min(_WINDOW * new, len(value))], value, 0.0)
            chosen += generator.choice(fresh, new, replace=False, p=odds / odds.sum()).tolist()
        return chosen

    def utility(self, view: View, state: State, known: Int64) -> Float64:
        """Of these devices: (U - min U) / range + sqrt(0.1 ln R / last), times the slowness.

        U is n_k loss_k, clipped at a quantile.
        """
        worth = view.plan.column("samples")[known] * np.maximum(state["loss"][known], 1e-12)
        order = np.sort(worth)
        high = order[min(int(self.clip * len(order)), len(order) - 1)]
        low = 0.999 * order[0]  # so that nobody has a utility of zero
        value = (np.minimum(worth, high) - low) / max(order[-1] - low, 1e-4)
        value = value + np.sqrt(0.1 * np.log(view.round + 1) / (state["last"][known] + 1))
        return np.asarray(np.maximum(value, 1e-12) * self.slowness(view)[known])

    def slowness(self, view: View) -> Float64:
        """(T / t_k)^alpha where a device needs more than T, else 1."""
        seconds = view.plan.column("seconds")
        preferred = np.quantile(seconds, self.speed_quantile)
        return np.asarray(np.minimum(1.0, preferred / seconds) ** self.penalty)

    def revise(self, view: View, state: State) -> Plan | None:
        """Note the losses; the plan stays."""
        for arrival in view.arrived:
            state["loss"][arrival.unit], state["last"][arrival.unit] = arrival.loss, view.round
        return None
