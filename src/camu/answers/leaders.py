"""Who leads, and what other rules of leading would cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from camu.answers.dry import DryPlan
from camu.arrays import decibels
from camu.errors import CamuError

RULES = {
    "exemplar": "the device that the others of its cluster are most like",
    "best-uplink": "the member with the best uplink",
    "rotating": "in turn the member with the most energy left",
}
SHOWN = 10


@dataclass(frozen=True)
class Leader:
    """A leader, and what it does in a round."""

    device: int
    members: int  # of its unit, itself included
    snr_db: float  # at the base station
    better: int  # members with a better uplink
    seconds: float  # in which it sends to the base station
    joules: float  # of its uplink


@dataclass(frozen=True)
class Rule:
    """A rule of leading, and what a round costs with it."""

    name: str
    seconds: float
    joules: float


def leaders(dry: DryPlan) -> list[Leader]:
    """The leaders of a plan, those that send longest first."""
    world = dry.world
    snr = world.links.uplink_snr()
    found = []
    for unit in dry.plan.units:
        own = float(snr[unit.leader])
        better = int((snr[list(unit.members)] > own).sum())
        level = float(decibels(np.float64(max(own, 1e-30))))
        found.append(
            Leader(
                *(unit.leader, len(unit.members), level, better),
                *(unit.uplink_seconds, unit.uplink_joules),
            )
        )
    return sorted(found, key=lambda one: -one.seconds)


def rules(dry: DryPlan) -> list[Rule]:
    """What a round costs with each rule of leading, the present one first; one if nobody leads."""
    now = dry.world.config.clustering.leader
    found = [Rule(now, dry.cost.seconds, dry.cost.joules)]
    if all(len(unit.members) == 1 for unit in dry.plan.units):
        return found
    for name in RULES:
        if name == now:
            continue
        config = dry.world.config.replace({"clustering.leader": name})
        try:
            cost = DryPlan.of(replace(dry.world, config=config)).cost
        except CamuError:  # a scheme that chooses its leaders itself
            continue
        found.append(Rule(name, cost.seconds, cost.joules))
    return found
