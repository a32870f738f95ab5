"""Which device of a fleet has which link type, and what follows: its band, its queue, who hears it.

A fleet in which all have the type `shannon` has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.config import RadioConfig
from camu.errors import InputError
from camu.world.devices import Devices
from camu.world.link_types import LINK_TYPES, SHANNON, LinkType, LoRa

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FleetLinks:
    """The link types of K devices, of which some are not `shannon`."""

    names: tuple[str, ...]  # of the types that occur
    place: Int64  # (K,) the type of each device, by its place among the names
    kinds: Mapping[str, LinkType]  # of all types but `shannon`
    bandwidth_hz: Float64  # (K,)

    @cached_property
    def lowest_snr_db(self) -> Float64:
        """The SNR below which a device is not heard (K,); -inf with `shannon`."""
        return self._of_each(lambda kind: kind.lowest_snr_db, -np.inf)

    @cached_property
    def gathers(self) -> Mask:
        """Whether other devices of the same type can hear a device (K,)."""
        return np.asarray(self._of_each(lambda kind: kind.among_devices, 1.0) > 0)

    @cached_property
    def senses(self) -> Mask:
        """Whether a device listens before it sends to others, and waits for them (K,).

        One that sends for a small share of the time does not.
        """
        return np.asarray(self._of_each(lambda kind: kind.among_devices, 1.0) == 1)

    def _of_each(self, value: Callable[[LinkType], float], shannon: float) -> Float64:
        own = [shannon if name == SHANNON else value(self.kinds[name]) for name in self.names]
        return np.array(own, dtype=np.float64)[self.place]

    def devices(self) -> Iterator[tuple[str, Int64]]:
        """Each type that occurs, and the devices that have it."""
        for place, name in enumerate(self.names):
            yield name, np.flatnonzero(self.place == place)

    def of(self, devices: npt.ArrayLike) -> list[str]:
        """The link types of these devices."""
        return [self.names[place] for place in self.place[np.asarray(devices)].tolist()]

    def hear(self, first: Int64, second: Int64, snr_db: Float64, least_db: float) -> Mask:
        """Whether devices hear each other at this SNR; with `shannon` it is to be at least this."""
        least = np.maximum(self.lowest_snr_db[first], self.lowest_snr_db[second])
        least = np.where(np.isneginf(least), least_db, least)
        same = (self.place[first] == self.place[second]) & self.gathers[first]
        return np.asarray(same & (snr_db >= least))


def fleet_links(devices: Devices, radio: RadioConfig) -> FleetLinks | None:
    """The link types of these devices; None if all are `shannon`."""
    if set(devices.link) <= {SHANNON}:
        return None
    names, place = np.unique(devices.link, return_inverse=True)
    if radio.uplink in ("packet", "analog", "hybrid", "hybrid-weights"):
        other = next(name for name in names.tolist() if name != SHANNON)
        raise InputError(
            f"radio.uplink = {radio.uplink}: the link type {other} has packets and repeats of its "
            "own; set radio.uplink to digital, or radio.link (or the column link) to shannon"
        )
    kinds = {name: link_type(name, radio) for name in names.tolist() if name != SHANNON}
    hertz = [kinds[n].bandwidth_hz if n in kinds else radio.bandwidth_hz for n in names.tolist()]
    return FleetLinks(tuple(names.tolist()), place.astype(np.int64), kinds, np.array(hertz)[place])


def link_type(name: str, radio: RadioConfig) -> LinkType:
    """A link type with the configured duty cycle."""
    kind = LINK_TYPES[name]
    if isinstance(kind, LoRa) and radio.duty_cycle is not None:
        return replace(kind, duty_cycle=radio.duty_cycle)
    return kind
