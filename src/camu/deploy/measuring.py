"""How long a local update takes on this machine, and how many joules, measured after warm-up."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from camu.errors import InputError
from camu.plugins import import_object, is_plugin

log = logging.getLogger(__name__)

FEWEST_UPDATES, MOST_UPDATES = 12, 3072
LEAST_SECONDS = 0.3  # of updates, where they are quick
STEADY = 0.1  # how much the median may still fall
METER_SECONDS = 0.5  # shortest time between two readings of a meter, which may be coarse
POWERCAP = Path("/sys/class/powercap")

Read = Callable[[], float]
Source = Literal["model", "rapl", "meter"]


@dataclass(frozen=True)
class Meter:
    """A counter of joules, and what to call it in reports."""

    source: Source
    read: Read


@dataclass(frozen=True)
class Measured:
    """One local update: its time, and its energy where a meter could be read."""

    seconds: float | None  # None: not measured
    joules: float | None = None
    source: Source = "model"  # of the joules


def measure(
    update: Callable[[], None],
    budget_seconds: float,
    meter: Meter | None = None,
    clock: Read = time.perf_counter,
) -> Measured:
    """Time of one update: the median of the later ones, once it falls no more.

    The first updates of a process are many times slower than the later ones, and other programs
    disturb single ones. Updates are repeated, twice as many each time, until the median of the
    last half is no longer below that of the quarter before, for a third of a second at least; or
    until the budget is spent, with three updates at least.
    """
    times: list[float] = []
    began, wanted = clock(), FEWEST_UPDATES
    while len(times) < wanted:
        before = clock()
        update()
        now = clock()
        times.append(now - before)
        if len(times) >= 3 and now - began > budget_seconds:
            break
        short = now - began < min(LEAST_SECONDS, budget_seconds)
        if len(times) == wanted and (short or not _steady(times)):
            wanted = min(2 * wanted, MOST_UPDATES)
    seconds = max(statistics.median(times[len(times) // 2 :]), 1e-9)
    joules = None if meter is None else _joules(update, meter, clock)
    if meter is None or joules is None:
        return Measured(seconds)
    return Measured(seconds, joules, meter.source)


def _steady(times: list[float]) -> bool:
    """Whether the last half took as long as the quarter before it."""
    half = len(times) // 2
    last, before = times[half:], times[half // 2 : half]
    return statistics.median(last) >= (1 - STEADY) * statistics.median(before)


def _joules(update: Callable[[], None], meter: Meter, clock: Read) -> float | None:
    """Joules of one update between two readings; None if the meter gives nothing usable."""
    try:
        first, began, count = meter.read(), clock(), 0
        while count < FEWEST_UPDATES or (clock() - began < METER_SECONDS and count < MOST_UPDATES):
            update()
            count += 1
        joules = (meter.read() - first) / count
    except (OSError, InputError) as error:
        log.warning("%s cannot be read (%s): the energy model is used", meter.source, error)
        return None
    if not (math.isfinite(joules) and joules > 0):
        log.warning("%s counted %g J per update: the energy model is used", meter.source, joules)
        return None
    return joules


def find_meter(name: str, powercap: Path | None = None) -> Meter | None:
    """The owner's meter, `module:function`; without one the processor's RAPL, if it is readable."""
    if name:
        return Meter("meter", _own_meter(name))
    zones = [
        zone
        for zone in sorted((powercap or POWERCAP).glob("intel-rapl:*"))
        if zone.name.count(":") == 1
    ]
    try:
        counters = [_Rapl(zone) for zone in zones]
    except (OSError, ValueError):
        return None
    return Meter("rapl", lambda: sum(each() for each in counters)) if counters else None


class _Rapl:
    """The joules of one processor package since this object was made."""

    def __init__(self, zone: Path) -> None:
        self.path = zone / "energy_uj"
        self.range = int((zone / "max_energy_range_uj").read_text())
        self.last, self.total = int(self.path.read_text()), 0

    def __call__(self) -> float:
        now = int(self.path.read_text())
        # The counter starts again at 0 when it is full.
        self.total += now - self.last if now >= self.last else now + self.range - self.last
        self.last = now
        return self.total / 1e6


def _own_meter(name: str) -> Read:
    if not is_plugin(name):
        raise InputError(f"joules = {name}: name a function as module:function")
    function = import_object(name, "joules")
    if not callable(function):
        raise InputError(f"joules = {name}: this is not a function")

    def read() -> float:
        try:
            value: Any = function()
            return float(value)
        except Exception as error:
            raise InputError(
                f"joules = {name}: it must take nothing and return the joules that a meter has "
                f"counted so far ({type(error).__name__}: {error})"
            ) from None

    return read
