"""Broadband analogue aggregation: truncated channel inversion, and who is scheduled."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from camu.planning.air import Truncated
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import NonNegative, Plan, PositiveShare, Scheme, State, View, World


@dataclass(frozen=True)
class BroadbandAnalog(Scheme):
    """Devices invert their channels and transmit at once; those in a deep fade are silent.

    Without the far devices the others are received at more power, but their data is lost.
    """

    truncation: NonNegative = 0.2
    scheduling: Literal["all", "inner", "alternating"] = "all"
    inner_share: PositiveShare = 0.5
    name = "broadband-analog"
    family = "over the air"
    citation = (
        "Zhu, Wang and Huang, Broadband analog aggregation for low-latency federated edge "
        "learning, TWC 2020"
    )
    simplified = [
        "one coefficient of flat fading per device and round; the original fades per sub-channel",
        "power is limited in every round, not on average over the fading",
        "updates are not shifted by a common mean before they are sent",
    ]
    choices = [
        "the sum is divided by the weight of the devices that were not silent",
        "inner devices are the share with the best mean gain",
        "`alternating` takes all devices in odd rounds and the inner ones in even rounds",
    ]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        plan = make_plan(self, groups, groups.sample_weights)
        return plan.over_the_air(Truncated(self.truncation))

    def select(self, view: View, state: State) -> Iterable[int]:
        everyone = self.scheduling == "alternating" and view.round % 2 == 0
        if self.scheduling == "all" or everyone:
            return view.idle
        gain = view.world.links.uplink_gain[view.plan.column("leader")]
        count = max(1, round(self.inner_share * len(gain)))
        return sorted(np.argsort(-gain, kind="stable")[:count].tolist())
