"""FedCS: as many devices as can send one after the other before a deadline."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.errors import InputError
from camu.planning.queues import Channels
from camu.schemes.contract import Plan, PositiveShare, State, View, World
from camu.schemes.local_sgd import LocalSgd

_DEFAULT_SHARE = 0.5


@dataclass(frozen=True)
class FedCs(LocalSgd):
    """Devices are taken one by one, each time the one that lengthens the round least."""

    # The deadline T as a share of a round of all devices; None: half, or what the fastest needs.
    round_share: PositiveShare | None = None
    name = "fedcs"
    family = "selection"
    citation = (
        "Nishio, Yonetani, Client selection for federated learning with heterogeneous resources in "
        "mobile edge, ICC 2019"
    )
    simplified = [
        "every device is asked; the original asks a random share of them",
        "the aggregation takes no time",
    ]
    choices = [
        "the deadline is a share of a round of all devices, by default half of it, or more if the "
        "fastest device needs more; the original's is in minutes",
        "times are those of mean channels, so that fading can make an update late",
        "under `ofdma` nobody waits for the band: all that are in time with their own share",
        "a given deadline that no device meets is refused; if only those with empty batteries met "
        "it, the fastest of the others trains alone, with the time that it needs",
    ]

    def plan(self, world: World) -> Plan:
        made = super().plan(world)
        least = float(made.column("seconds").min()) / made.round_seconds
        if self.round_share is not None and self.round_share < least * (1 - 1e-9):
            raise InputError(
                f"scheme fedcs: round_share = {self.round_share:g}: no device is ready and has "
                f"sent before this share of a round of all devices, {made.round_seconds:.4g} s; "
                f"set round_share to {math.ceil(1e4 * least) / 1e4:g} or more"
            )
        return made

    def select(self, view: View, state: State) -> Iterable[int]:
        """Take the device with the least t_up + max(0, t_compute - now), keep it if in time."""
        plan, left = view.plan, np.array(view.powered, dtype=np.int64)
        ready, air = plan.column("ready_seconds")[left], plan.column("uplink_seconds")[left]
        fastest = float((ready + air).min()) if len(left) else 0.0
        share = _DEFAULT_SHARE if self.round_share is None else self.round_share
        limit = max(share * plan.round_seconds, fastest)
        chosen: list[int] = []
        now, kept = np.zeros(len(left)), np.zeros(len(left), dtype=bool)
        channels, queues = Channels(), plan.uplink_queues
        own = [queues[unit] for unit in left]
        while not kept.all():
            end = np.where(kept, np.inf, np.maximum(now, ready) + air)
            best = int(end.argmin())
            if end[best] > limit:  # and so are all others
                break
            kept[best] = True
            chosen.append(int(left[best]))
            channels.send(float(ready[best]), float(air[best]), own[best])
            free = channels.first_free(own[best])
            now[[queue.band == own[best].band for queue in own]] = free
        state["limit"] = limit
        return chosen

    def deadline(self, view: View, state: State) -> float:
        return view.seconds + float(state["limit"]) * (1 + 1e-9)  # rounding is not late
