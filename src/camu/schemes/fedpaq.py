"""FedPAQ: some devices, several local steps, quantised updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.planning.codecs import Quantised
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.world import World


@dataclass(frozen=True)
class FedPaq(Scheme):
    """A share of the devices, drawn evenly, sends its update rounded at random to few levels."""

    local_updates: int = 2  # tau
    share: float = 0.5  # r / n
    levels: int = 7  # s
    name: ClassVar[str] = "fedpaq"
    family: ClassVar[str] = "compression"
    citation: ClassVar[str] = "Reisizadeh et al., FedPAQ, AISTATS 2020"
    simplified: ClassVar[tuple[str, ...]] = ("entropy coding of the levels is not counted",)
    choices: ClassVar[tuple[str, ...]] = (
        "seven levels, a sign and the norm: 4 bits per parameter",
        "meant for radio.uplink = digital; otherwise noise is added to the quantised update",
    )

    def plan(self, world: World) -> Plan:
        """One device per unit, all with the same weight."""
        groups = single_devices(world)
        even = np.full(len(groups), 1 / len(groups))
        return make_plan(self, groups, even, self.local_updates, codec=Quantised(self.levels))

    def select(self, view: View, state: State) -> Iterable[int]:
        """r of n devices, without replacement."""
        return view.draw(self.share)
