"""Two learning rates, one at the devices and one at the server, with partial participation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class TwoSided(Scheme):
    """Devices step at their rate, and the server moves by its own rate times the mean update."""

    local_updates: int = 2  # K
    share: float = 0.5  # n / m
    server_rate: float = 1.0  # eta; that of the devices, eta_L, is training.learning_rate
    name: ClassVar[str] = "two-sided"
    family: ClassVar[str] = "server"
    citation: ClassVar[str] = (
        "Yang, Fang, Liu, Achieving linear speedup with partial worker participation, ICLR 2021"
    )
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = ("devices are drawn without replacement",)

    def plan(self, world: World) -> Plan:
        """One device per unit, all with the same weight."""
        groups = single_devices(world)
        even = np.full(len(groups), 1 / len(groups))
        return make_plan(self, groups, even, self.local_updates)

    def select(self, view: View, state: State) -> Iterable[int]:
        """n of m devices."""
        return view.draw(self.share)

    def aggregate(self, view: View, state: State) -> Weights:
        """x <- x + eta times the mean of the updates."""
        mean = super().aggregate(view, state)
        here = view.weights.parameters.astype(np.float64)
        return mean.with_parameters(here + self.server_rate * (mean.parameters - here))
