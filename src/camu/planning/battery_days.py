"""How many days batteries last, with learning and without, and what share of it learning takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.planning.batteries import Lifetime
from camu.planning.harvest import Harvest
from camu.world import World
from camu.world.sun import DAY_SECONDS, YEAR_SECONDS

_MOST_NUMBERS = 2_000_000  # of a table of times and devices


@dataclass(frozen=True, eq=False)
class BatteryDays:
    """Days until each full battery is empty (K,); nan on mains power, inf if it never is.

    Attributes:
        days_with_learning: rounds go on as planned, and devices rest in between.
        days_without_learning: devices rest all the time, asleep or idle.
        learning_share: of the mean power with learning, what is drawn for learning (0 to 1); of
            devices on mains power too.
    """

    days_with_learning: Float64
    days_without_learning: Float64
    learning_share: Float64


def battery_days(world: World, found: Lifetime) -> BatteryDays:
    """The days that a forecast of batteries (`simulation.dry_run.battery_life`) comes to.

    A device leaves the forecast when it cannot pay for a whole round; within that round its battery
    is drained by what a round costs on average. So is one that is not empty within the forecast,
    because the device harvests.
    """
    resting = world.devices.resting_watts
    # Where rounds follow each other, the ledger knows nothing of devices that take no part.
    learning = np.maximum(found.round_joules / found.round_seconds, resting)
    steady, left = seconds_until_empty(world, learning), found.empty_seconds
    in_round = np.clip(steady, left, left + found.round_seconds)
    seconds = np.where(np.isnan(left), steady, in_round)
    with np.errstate(invalid="ignore"):
        share = np.where(learning > 0, 1.0 - resting / learning, 0.0)
    without = seconds_until_empty(world, resting)
    mains = ~found.battery
    return BatteryDays(
        np.where(mains, np.nan, seconds / DAY_SECONDS),
        np.where(mains, np.nan, without / DAY_SECONDS),
        np.asarray(share),
    )


def seconds_until_empty(world: World, watts: Float64) -> Float64:
    """How long full batteries last at a steady power (K,), with what devices harvest; or inf.

    Two years of the sun are followed hour by hour. A battery that ends the second one as full as
    the first is never empty; another goes on to lose as much in every year.
    """
    capacity, harvest = world.devices.battery_joules, Harvest(world)
    found = np.full(len(capacity), np.inf)
    middle = harvest.settled_seconds + YEAR_SECONDS
    for devices, end in ((harvest.sunless, np.inf), (harvest.sunny, middle + YEAR_SECONDS)):
        own = devices[~np.isnan(capacity[devices])]
        edges = harvest.edges(end, middle)
        size = max(1, _MOST_NUMBERS // len(edges))  # devices at once
        for part in (own[start : start + size] for start in range(0, len(own), size)):
            drain = watts[part] - harvest.powers(edges, part)
            charge, empty = _drained(capacity[part], drain, edges)
            if np.isfinite(end):
                before, after = charge[np.searchsorted(edges, middle)], charge[-1]
                loses = after < before * (1 - 1e-6)  # less is rounding
                with np.errstate(divide="ignore", invalid="ignore"):
                    later = np.where(loses, end + after / (before - after) * YEAR_SECONDS, np.inf)
                empty = np.where(np.isinf(empty), later, empty)
            found[part] = empty
    return found


def _drained(capacity: Float64, drain: Float64, edges: Float64) -> tuple[Float64, Float64]:
    """Charges at these times (N + 1, k), and when the batteries are empty (k,), or inf.

    A battery that is never fuller than full has lost what has been drained since it was full: the
    sum of all that is drained, less the least that this sum has been.
    """
    with np.errstate(invalid="ignore"):  # a steady power that goes on for ever
        joules = np.where(drain == 0, 0.0, drain * np.diff(edges)[:, None])
        spent = np.concatenate((np.zeros((1, len(capacity))), np.cumsum(joules, axis=0)))
        charge = capacity - (spent - np.minimum.accumulate(spent, axis=0))
        gone = charge[1:] <= 0
    first, each = gone.argmax(axis=0), np.arange(len(capacity))
    with np.errstate(divide="ignore", invalid="ignore"):
        moment = edges[first] + charge[first, each] / drain[first, each]
    return charge, np.where(gone[first, each], moment, np.inf)
