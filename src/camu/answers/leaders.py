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
_AMPLE = 1e6


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
    """What a round costs with each rule of leading, the present one first; one if nobody leads.

    All devices take part: a rule is no cheaper because batteries are empty.
    """
    now = dry.world.config.clustering.leader
    if all(len(unit.members) == 1 for unit in dry.plan.units):
        return [Rule(now, dry.cost.seconds, dry.round_joules)]
    # Leaders in turn go by what is left, so all batteries grow alike.
    world = dry.world.with_devices(battery_joules=_AMPLE * dry.world.devices.battery_joules)
    found = []
    for name in (now, *(other for other in RULES if other != now)):
        config = world.config.replace({"clustering.leader": name})
        try:
            own = DryPlan.of(replace(world, config=config), above_resting=dry.above_resting)
        except CamuError:  # a scheme that chooses its leaders itself
            continue
        found.append(Rule(name, own.cost.seconds, own.round_joules))
    return found
