"""Talk or work: as many local updates per round as the energy of sending is worth."""

import math
from dataclasses import dataclass

import numpy as np

from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Plan, Positive, Scheme, World


@dataclass(frozen=True)
class TalkOrWork(Scheme):
    """H updates per round, where H minimises the energy to a target: rounds times joules of one."""

    ratio: Positive = 25.0  # A0 / B0 of the rounds A0 / H + B0 H
    name = "talk-or-work"
    tunable = {"ratio": (1.0, 100.0, "log")}
    family = "local updates"
    citation = (
        "after Shi et al., Toward energy-efficient federated learning over 5G+ mobile devices, "
        "IEEE Wireless Communications 2022"
    )
    simplified = [
        "the article is an overview; only its trade-off of computing and sending is here",
        "no compression",
    ]
    choices = ["rounds to a target are A0 / H + B0 H up to scale, with a given ratio"]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        once = make_plan(self, groups, groups.sample_weights)
        updates = best_updates(*once.joules_of_updates, self.ratio)
        return once.with_updates([updates] * len(groups))


def best_updates(work_joules: float, talk_joules: float, ratio: float) -> int:
    """The whole H with the smallest (A0 / H + B0 H) (H work + talk).

    Its real optimum is the one positive root of 2 work H^3 + talk H^2 - talk ratio.
    """
    roots = np.roots([2 * work_joules, talk_joules, 0.0, -talk_joules * ratio])
    real = max((float(r.real) for r in roots if abs(r.imag) < 1e-9 * abs(r)), default=1.0)
    low = max(1, math.floor(real))

    def joules(updates: int) -> float:
        return (ratio / updates + updates) * (updates * work_joules + talk_joules)

    return min((low, low + 1), key=joules)
