"""Scheduling by age of update: whoever matters and has not been heard for long may send."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.schemes.contract import NonNegative, Plan, PositiveShare, State, View
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class AgeScheduling(LocalSgd):
    """The devices with the highest importance times (1 + age) train, the older at smaller rates."""

    share: PositiveShare = 0.5  # of the devices that are scheduled
    damping: NonNegative = 0.5  # the rate is multiplied by (1 + age)^-damping
    name = "age-scheduling"
    tunable = {"share": (0.1, 1.0, "log")}
    family = "selection"
    citation = (
        "after Zheng et al., AoU-based local update and user scheduling for semi-asynchronous "
        "online federated learning, IEEE IoT Journal 2024"
    )
    simplified = [
        "no clusters, no asynchrony inside them, and no data that arrive during training",
    ]
    choices = [
        "all formulas: importance is samples times the length of the last update per step and rate",
        "age counts rounds since a device's update was last used",
    ]

    def select(self, view: View, state: State) -> Iterable[int]:
        """The highest priorities; equal ones go by number."""
        units = len(view.plan.units)
        age = state.setdefault("age", np.zeros(units))
        slope = state.setdefault("slope", np.full(units, np.nan))
        usual = 1.0 if np.isnan(slope).all() else float(np.nanmean(slope))
        priority = view.plan.column("samples") * np.where(np.isnan(slope), usual, slope) * (1 + age)
        able = np.array(view.powered)
        order = able[np.argsort(-priority[able], kind="stable")]
        return [int(unit) for unit in order[: max(1, round(self.share * units))]]

    def revise(self, view: View, state: State) -> Plan | None:
        """Ages, lengths of updates, and the rates that follow from ages."""
        state["age"] += 1
        for arrival in view.arrived:
            rate = view.plan.units[arrival.unit].rule.rate
            length = np.sqrt(np.square(arrival.update, dtype=np.float64).sum())
            state["slope"][arrival.unit] = length / (self.local_updates * rate)
            state["age"][arrival.unit] = 0
        return view.plan.with_rates((1 + state["age"]) ** -self.damping)
