"""How many days batteries last, with learning and without, and what share of it learning takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.planning.batteries import Lifetime
from camu.planning.harvest import Harvest
from camu.world import World
from camu.world.sun import DAY_SECONDS, YEAR_SECONDS


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
    charge, empty = capacity.copy(), np.full(len(capacity), np.inf)

    def follow(start: float, end: float) -> None:
        nonlocal charge
        for begin, until, harvested in harvest.stretches(start, end, step=3600.0):
            drain, seconds = watts - harvested, until - begin
            with np.errstate(divide="ignore", invalid="ignore"):
                lasts = np.where(drain > 0, charge / drain, np.inf)
                gone = np.isinf(empty) & (lasts <= seconds) & np.isfinite(lasts)
                empty[gone] = begin + lasts[gone]
                if np.isinf(until):
                    return
                charge = np.minimum(charge - drain * seconds, capacity)

    if not harvest.seasons:
        follow(0.0, np.inf)
        return empty
    middle = harvest.settled_seconds + YEAR_SECONDS
    follow(0.0, middle)
    before, last = charge, middle + YEAR_SECONDS
    follow(middle, last)
    with np.errstate(divide="ignore", invalid="ignore"):
        loses = charge < before * (1 - 1e-9)  # less is rounding
        later = np.where(loses, last + charge / (before - charge) * YEAR_SECONDS, np.inf)
    return np.asarray(np.where(np.isinf(empty), later, empty))
