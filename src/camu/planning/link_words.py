"""Words on models that a link type can hardly send: packets, hours, and what would fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from camu.arrays import decibels
from camu.planning.codecs import BITS_PER_PARAMETER, Quantised, Sparse
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.world import World
from camu.world.link_types import LinkType, LoRa, Sending

SENSIBLE_SECONDS = 3600.0  # of an upload
_SPANS = (("days", 86_400.0), ("hours", 3600.0))


def unsendable(plan: Plan, world: World) -> list[str]:
    """A sentence for each link type over which a typical upload takes more than an hour.

    It is about the unit with the median time of its type, and says what would fit into an hour.

    Parameters:
        plan: the plan, with the codecs of its units.
        world: the fleet.

    Returns:
        The sentences; none if all is well.
    """
    types, found = world.links.types, []
    for name, kind in types.kinds.items() if types is not None else ():
        own = [unit for unit in plan.units if unit.link == name]
        own.sort(key=lambda unit: unit.uplink_seconds)
        if own and own[len(own) // 2].uplink_seconds > SENSIBLE_SECONDS:
            found.append(_sentence(kind, own, plan.parameters, world))
    return found


def _sentence(kind: LinkType, units: Sequence[Unit], parameters: int, world: World) -> str:
    unit, links = units[len(units) // 2], world.links
    noise = np.asarray(links.own_noise_watts)[unit.leader]
    snr_db = decibels(unit.power_watts * links.uplink_gain[unit.leader] / noise)

    def send(bits: int) -> Sending:
        sent = kind.send([bits], [snr_db], len(units))
        return sent.at_rate([bits], world.devices.rate_bps[[unit.leader]])

    fits = _most_bits(lambda bits: float(send(bits).seconds[0]), unit.payload_bits)
    name, length = next(one for one in _SPANS if unit.uplink_seconds >= one[1])
    duty = f" under a duty cycle of {100 * kind.duty_cycle:g} %" if isinstance(kind, LoRa) else ""
    ways = _ways(fits, parameters, world.config.radio.bits_per_parameter)
    return (
        f"{unit.link}: an update of {unit.payload_bits:,} bits is "
        f"{int(send(unit.payload_bits).packets[0]):,} packets and takes "
        f"{unit.uplink_seconds / length:.1f} {name}{duty}; {fits:,} bits fit into an hour: "
        + (" or ".join(ways) or "too few for any model, so choose another link")
    )


def _most_bits(seconds: Callable[[int], float], too_many: int) -> int:
    """The most bits that take no longer than an hour; more bits never take less time."""
    low, high = 0, too_many
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seconds(middle) <= SENSIBLE_SECONDS else (low, middle)
    return low


def _ways(bits: int, parameters: int, bits_per_parameter: int) -> list[str]:
    """What of a model of so many parameters can be sent with these bits, and what size as it is."""
    found = []
    widths = range(BITS_PER_PARAMETER, 1, -1)
    sizes = ((width, Quantised(2 ** (width - 1) - 1).bits(parameters)) for width in widths)
    if width := next((width for width, size in sizes if size <= bits), 0):
        found.append(f"this model quantised to {width} bits per parameter")
    else:
        entry_bits = Sparse(1.0).bits(parameters) // parameters
        if (entries := min(bits // entry_bits, parameters)) > 0:
            share = 100 * entries / parameters
            found.append(f"the {entries:,} largest entries of an update ({share:.2g} %)")
    if size := math.floor(bits / bits_per_parameter):
        found.append(f"a model of {size:,} parameters as it is")
    return found
