"""A scheme for pilots that notes what every unit did."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from camu.arrays import AnyArray, Float32, Float64
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View, Weights, World


@dataclass(frozen=True)
class Reporter(Scheme):
    """Notes the loss of every unit, and its change before the codec and the channel."""

    losses: dict[int, float] = field(default_factory=dict)
    changes: dict[int, Float64] = field(default_factory=dict)

    def plan(self, world: World) -> Plan:
        raise NotImplementedError  # a pilot has its plan

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> AnyArray | None:
        self.changes[unit] = change.astype(np.float64)
        return None

    def aggregate(self, view: View, state: State) -> Weights:
        self.losses.update({arrival.unit: arrival.loss for arrival in view.arrived})
        return super().aggregate(view, state)
