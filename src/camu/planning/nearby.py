"""Who is near on the shared medium: which units hear each other, and which disturb each other."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from camu.arrays import Float64, Int64, from_decibels
from camu.world import World

NEGLIGIBLE = 1e-3  # of the noise: what is received at less disturbs nobody
_PREAMBLE_DBM, _PREAMBLE_HZ = -82.0, 20e6  # what an 802.11 receiver must notice in this band
_BLOCK = 256  # units whose surroundings are found at a time
_MOST_KEPT = 1 << 25  # pairs of all units; others are found again when they are asked for


class Nearby:
    """The surroundings of units, found for a block of units when one of them is asked for."""

    def __init__(self, world: World, units: Int64, leaders: Int64) -> None:
        self.world, self.units, self.leaders = world, units, leaders[units]
        self.threshold = carrier_sense_watts(world)  # (K,)
        self.known: dict[int, tuple[Int64, Int64, Float64]] = {}
        self.entries = 0

    def neighbours(self, unit: int) -> Int64:
        """The units that this one hears, or that hear it."""
        return self._around(unit)[0]

    def disturbed(self, unit: int) -> tuple[Int64, Float64]:
        """The units that disturb this one, or that it disturbs, and the gains between them."""
        return self._around(unit)[1:]

    def _around(self, unit: int) -> tuple[Int64, Int64, Float64]:
        if (found := self.known.get(unit)) is not None:
            return found
        place = int(np.searchsorted(self.units, unit))
        if self.entries > _MOST_KEPT:
            return self.rows(place, place + 1)[0]
        start = place - place % _BLOCK
        rows = self.rows(start, min(start + _BLOCK, len(self.units)))
        self.known.update(zip(self.units[start:].tolist(), rows, strict=False))
        self.entries += sum(
            len(others) + (near is not others) * len(near) for near, others, _ in rows
        )
        return self.known[unit]

    def rows(self, start: int, stop: int) -> list[tuple[Int64, Int64, Float64]]:
        """The neighbours of the units in these places, and whom they disturb at which gains."""
        first, second = self.pairs(start, stop)
        here, there = self.leaders[first], self.leaders[second]
        gain, power = self.world.links.pair_gain(here, there), self.world.devices.power_watts
        received = gain * np.maximum(power[there], power[here])
        hears = (received >= self.threshold[here]) & (here != there)
        disturbs = (received > self.least_watts) & (here != there)
        if (types := self.world.links.types) is not None:  # each type has a band of its own
            hears &= (types.place[here] == types.place[there]) & types.senses[there]
            plain = np.isneginf(types.lowest_snr_db)
            disturbs &= plain[here] & plain[there]
        places, other = np.arange(start + 1, stop), self.units[second]
        ends = np.searchsorted(first[disturbs], places)
        others, gains = np.split(other[disturbs], ends), np.split(gain[disturbs], ends)
        near = others  # where all are close, both are the same arrays
        if not np.array_equal(hears, disturbs):
            near = np.split(other[hears], np.searchsorted(first[hears], places))
        return list(zip(near, others, gains, strict=True))

    def pairs(self, start: int, stop: int) -> tuple[Int64, Int64]:
        """All pairs of one of these places with one that may be near, by the first and the second.

        They are those within the largest distance at which a leader is heard or disturbs.
        """
        count = len(self.units)
        if self.tree is None:
            first, second = np.divmod(np.arange(start * count, stop * count), count)
            return first, second
        asked = type(self.tree)(self.tree.data[start:stop])
        found = asked.sparse_distance_matrix(self.tree, self.reach_m, output_type="ndarray")
        first, second = np.divmod(np.sort(found["i"] * count + found["j"]), count)
        return start + first, second

    @property
    def least_watts(self) -> float:
        """Received power up to which a signal disturbs nobody."""
        return NEGLIGIBLE * self.world.links.noise_watts

    @cached_property
    def reach_m(self) -> float:
        """The largest distance on the ground at which a leader is heard or disturbs."""
        loudest = float(self.world.devices.power_watts[self.leaders].max())
        least = min(float(self.threshold[self.leaders].min()), self.least_watts)
        return self.world.links.reach_m(least / loudest)

    @cached_property
    def tree(self) -> Any:
        """The leaders in the plane; None for a few, or where distance bounds nothing."""
        if len(self.units) <= _BLOCK or not math.isfinite(self.reach_m):
            return None
        from scipy.spatial import cKDTree  # loading it takes long

        return cKDTree(self.world.devices.positions[self.leaders, :2])


def carrier_sense_watts(world: World) -> Float64:
    """The received power from which on each device takes the medium for busy (K,)."""
    radio, types = world.config.radio, world.links.types
    if radio.carrier_sense_dbm is not None:
        threshold = float(from_decibels(radio.carrier_sense_dbm - 30.0))
    else:
        share = radio.bandwidth_hz / _PREAMBLE_HZ
        threshold = float(from_decibels(_PREAMBLE_DBM - 30.0)) * share
    bands = np.ones(world.devices.count)
    return threshold * (bands if types is None else types.bandwidth_hz / radio.bandwidth_hz)
