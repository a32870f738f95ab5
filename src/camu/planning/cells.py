"""Cells: units that are served by several base stations, and what they hear of each other.

With `radio.cells = "one"` all uplinks share one band, whoever receives them. Otherwise each base
station has its own queue (`tdma`) or its own shares (`ofdma`). The cells are `apart`, each on a
band of its own, or `interfering` on one: what a station receives of the leaders of other cells
adds to its noise. Cells are taken to be busy all the time, so under `tdma` each adds the mean of
what is received of its leaders, who send equally often, and under `ofdma` the sum of it, spread
over the band. It is the mean over fading, and only units that start in the same round count.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.errors import InputError
from camu.world import World
from camu.world.link_types import SHANNON


def interference(world: World, leaders: npt.ArrayLike, power_watts: npt.ArrayLike) -> Float64:
    """What leaders of other cells add to the noise of each leader's uplink, in noise powers."""
    links, radio = world.links, world.config.radio
    who, power = np.asarray(leaders, dtype=np.int64), np.asarray(power_watts, dtype=np.float64)
    everyone = np.zeros(len(who))
    if radio.cells != "interfering":
        return everyone
    if links.types is not None:  # other link types have bands of their own
        plain = np.array([name == SHANNON for name in links.types.of(who)], dtype=np.bool_)
    else:
        plain = np.ones(len(who), dtype=np.bool_)
    everyone[plain] = _between_cells(world, who[plain], power[plain])
    return everyone


def _between_cells(world: World, who: Int64, power: Float64) -> Float64:
    """The same of leaders that all use the one band of several cells."""
    links, radio = world.links, world.config.radio
    cells, found = links.cells[who], np.zeros(len(who))
    unknown = np.flatnonzero(np.isnan(links.devices.positions[who, 0]))
    if len(unknown):
        name = links.devices.ids[who[unknown[0]]]
        raise InputError(
            f'radio.cells = "interfering": device {name} has no position, so that nobody knows '
            "what other base stations hear of it; give x and y, or set radio.cells to apart"
        )
    counts = np.bincount(cells)
    for station in np.flatnonzero(counts).tolist():
        # Combining the antennas for one signal adds up the powers of that signal alone.
        heard = power * links.gain_at(station, who) / radio.antennas
        level = np.bincount(cells, heard).astype(np.float64)
        if radio.access == "tdma":
            level = level / np.maximum(counts, 1)
        level[station] = 0.0
        found[cells == station] = level.sum() / links.noise_watts
    return found


def refuse_cells(world: World, who: str) -> None:
    """Refuse several cells where one band is divided among all, or one station receives all."""
    kind = world.config.radio.cells
    if kind != "one" and len(world.base_stations) > 1:
        raise InputError(
            f'{who}, and radio.cells = "{kind}" has uplinks at several base stations at once; set '
            "radio.cells to one"
        )
