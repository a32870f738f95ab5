"""FedPAQ: some devices, several local steps, quantised updates."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.planning.codecs import Quantised
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, PositiveShare, Scheme, State, View, World


@dataclass(frozen=True)
class FedPaq(Scheme):
    """A share of the devices, drawn evenly, sends its update rounded at random to few levels."""

    local_updates: Count = 2  # tau
    share: PositiveShare = 0.5  # r / n
    levels: Count = 7  # s
    name = "fedpaq"
    tunable = {
        "local_updates": (1, 20, "log"),
        "share": (0.1, 1.0),
        "levels": [1, 3, 7, 15, 127],  # 2, 3, 4, 5 and 8 bits
    }
    family = "compression"
    citation = "Reisizadeh et al., FedPAQ, AISTATS 2020"
    simplified = ["entropy coding of the levels is not counted"]
    choices = [
        "seven levels, a sign and the norm: 4 bits per parameter",
        "meant for radio.uplink = digital; otherwise noise is added to the quantised update",
    ]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        even = np.full(len(groups), 1 / len(groups))
        return make_plan(self, groups, even, self.local_updates, codec=Quantised(self.levels))

    def select(self, view: View, state: State) -> Iterable[int]:
        return view.draw(self.share)
