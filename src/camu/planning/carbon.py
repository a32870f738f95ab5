"""Grams of CO2 that go with the energy of devices, by the carbon intensity of their power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.config import Config
from camu.config.fields import LARGEST_GRAMS
from camu.world.tables import read_trace

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, eq=False)
class Grid:
    """Grams of CO2 per kWh, each from its virtual second on; the first one also before it."""

    seconds: Float64
    grams_per_kwh: Float64

    @classmethod
    def of(cls, config: Config) -> Grid | None:
        """That of the configuration; None if it says nothing of carbon."""
        fleet = config.fleet
        if fleet.carbon_trace is None:
            known = fleet.grams_per_kwh
            return None if known is None else cls(np.zeros(1), np.array([known]))
        header = ("seconds", "grams_per_kwh")
        table = read_trace(fleet.carbon_trace, "fleet.carbon_trace", header)
        seconds, grams = (table.floats(name) for name in header)
        table.refuse(~(seconds >= 0), "seconds", "write a finite number from 0")
        rule = f"write a number from 0 to {LARGEST_GRAMS:g}"
        table.refuse(~((grams >= 0) & (grams <= LARGEST_GRAMS)), "grams_per_kwh", rule)
        table.check()
        order = np.argsort(seconds, kind="stable")
        return cls(seconds[order], grams[order])

    def grams(self, moments: Sequence[float], joules: Sequence[float]) -> float:
        """What all energy came with: totals of joules at these virtual seconds.

        Between two moments power is taken to be steady.
        """
        times = np.asarray(moments, dtype=np.float64)
        spent, length = np.diff(joules), np.diff(times)
        reached = np.array([self._until(moment) for moment in times.tolist()])
        steady = np.where(length > 0, np.diff(reached) / np.where(length > 0, length, 1.0), 0.0)
        at_once = np.array([self._at(moment) for moment in times[1:].tolist()])
        each = np.where(length > 0, steady, at_once)
        return float((spent * each).sum() / JOULES_PER_KWH)

    def mean(self, seconds: float) -> float:
        """The mean of the grams per kWh until this virtual second."""
        return self._until(seconds) / seconds if seconds > 0 else self._at(0.0)

    def _at(self, seconds: float) -> float:
        place = int(np.searchsorted(self.seconds, seconds, side="right")) - 1
        return float(self.grams_per_kwh[max(place, 0)])

    def _until(self, seconds: float) -> float:
        """The sum of grams per kWh times seconds from second 0 on."""
        starts = np.minimum(np.concatenate(([0.0], self.seconds[1:])), seconds)
        ends = np.minimum(np.append(self.seconds[1:], np.inf), seconds)
        return float((self.grams_per_kwh * (ends - starts)).sum())
