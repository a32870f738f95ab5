"""What sending costs over link types other than `shannon`: uplinks, gathers, and the broadcast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, decibels
from camu.planning.queues import Channels, Queue, band_name
from camu.world import World
from camu.world.link_types import SHANNON, LinkType, LoRa
from camu.world.links import Links


class Sent(NamedTuple):
    """Seconds and joules of messages, one array entry each."""

    seconds: Float64
    joules: Float64  # of all states of the sender's radio


def bands(links: Links, leaders: Sequence[int] | Int64) -> list[str]:
    """The band of each of these devices: that of its link type in its cell."""
    names = [SHANNON] * len(leaders) if links.types is None else links.types.of(leaders)
    return list(map(band_name, names, links.cells[np.asarray(leaders, dtype=np.int64)].tolist()))


def senders(links: Links, leaders: Sequence[int] | Int64) -> dict[str, int]:
    """How many of these devices send in each band."""
    if links.types is None and not links.cells.any():
        return {SHANNON: len(leaders)}
    return dict(Counter(bands(links, leaders)))


def queues_of(links: Links, leaders: Sequence[int]) -> list[Queue] | None:
    """Where each of these leaders queues for its uplink; None if all are `shannon` in one cell."""
    cells = links.cells[np.asarray(leaders, dtype=np.int64)].tolist()
    if links.types is None:
        return [Queue(SHANNON, 0, cell) for cell in cells] if any(cells) else None
    channels = {name: kind.channels for name, kind in links.types.kinds.items()}
    names = links.types.of(leaders)
    return [Queue(n, channels.get(n, 0), cell) for n, cell in zip(names, cells, strict=True)]


def uplinks(
    world: World,
    leaders: Sequence[int],
    power_watts: Float64,
    gain: Float64,
    payload_bits: npt.ArrayLike,
    together: Mapping[str, int],
    plain: Sent,
) -> Sent:
    """Uplinks of leaders; `plain` is what they cost with `shannon`, and holds where they have it.

    So many units of each link type send in the same round, and contend with each other. A measured
    rate is that of an upload under such conditions.
    """
    types = world.links.types
    if types is None:
        return plain
    stations = np.array([together.get(band, 1) for band in bands(world.links, leaders)])
    return _send(world, np.array(leaders), power_watts, gain, payload_bits, stations, plain)


def gather_messages(
    world: World,
    devices: Int64,
    power_watts: Float64,
    gain: Float64,
    bits: npt.ArrayLike,
    stations: Int64,
    plain: Sent,
) -> Sent:
    """Messages to devices, of which so many are sent to the same one at once."""
    if world.links.types is None:
        return plain
    return _send(world, devices, power_watts, gain, bits, stations, plain, to_device=True)


def side_by_side(world: World, devices: Int64, unit: Int64, seconds: Float64) -> Float64:
    """The share of its gather that each sender takes, where leaders hear several at once.

    The shares of a unit add up to the time until its leader has heard all.
    """
    types = world.links.types
    if types is None:
        return seconds
    found = seconds.copy()
    for name, kind in types.kinds.items():
        if kind.among_devices < 2:
            continue
        own = np.flatnonzero(types.place[devices] == types.names.index(name))
        for number in np.unique(unit[own]).tolist():
            rows, channels = own[unit[own] == number], Channels()
            queue = Queue(name, kind.among_devices)
            ends = [channels.send(0.0, air, queue)[0] for air in seconds[rows].tolist()]
            found[rows] *= max(ends) / seconds[rows].sum()
    return found


class Broadcast(NamedTuple):
    """The model on its way to the devices, once over each link type."""

    seconds: Float64 | float  # until each unit has it
    station_seconds: float  # in which the base station sends
    copies: int
    receive_watts: Float64 | float  # of the devices of each unit while they receive


def typed_broadcast(
    world: World,
    flat: Int64,
    leaders: Sequence[int],
    gains: Float64,
    bits: int,
    plain_seconds: Mapping[str, float],
) -> Broadcast:
    """The broadcast to devices of several link types; `plain_seconds` has that of `shannon`.

    It takes as long as an upload at the SNR of the weakest device: the base station sends with its
    own power, but where devices hear each other with no more than they may.
    """
    links, radio = world.links, world.config.radio
    assert links.types is not None
    seconds = dict(plain_seconds)
    watts = dict.fromkeys(seconds, radio.receive_watts)
    for name, kind in links.types.kinds.items():
        own = flat[links.types.place[flat] == links.types.names.index(name)]
        if own.size:
            power = min(radio.bs_power_watts, kind.power_watts if kind.among_devices else np.inf)
            noise = np.asarray(links.own_noise_watts)[own[0]]
            snr_db = decibels(power * gains[own].min() / radio.antennas / noise)
            seconds[name] = float(kind.send(bits, snr_db).seconds)
            watts[name] = kind.radio.receive
    names = links.types.of(leaders)
    heard = np.array([watts[name] for name in names])
    if not radio.downlink:
        return Broadcast(0.0, 0.0, len(seconds), heard)
    each = np.array([seconds[name] for name in names])
    return Broadcast(each, sum(seconds.values()), len(seconds), heard)


def _send(
    world: World,
    devices: Int64,
    power_watts: Float64,
    gain: Float64,
    bits: npt.ArrayLike,
    stations: Int64,
    plain: Sent,
    to_device: bool = False,
) -> Sent:
    """Messages by the link types of their senders, each among so many stations that send at once.

    Those of `shannon` cost what `plain` says.
    """
    links = world.links
    assert links.types is not None
    seconds, joules = plain.seconds.copy(), plain.joules.copy()
    snr_db = decibels(power_watts * gain / np.asarray(links.own_noise_watts)[devices])
    size = np.broadcast_to(bits, len(devices))
    for name, kind in links.types.kinds.items():
        own = links.types.place[devices] == links.types.names.index(name)
        for count in np.unique(stations[own]).tolist():
            rows = own & (stations == count)
            if to_device:
                sent = _heard_by_device(kind).send(size[rows], snr_db[rows], int(count))
            else:
                sent = kind.send(size[rows], snr_db[rows], int(count))
                sent = sent.at_rate(size[rows], world.devices.rate_bps[devices[rows]])
            seconds[rows], joules[rows] = sent.seconds, sent.transmit_joules + sent.receive_joules
    return Sent(seconds, joules)


def _heard_by_device(kind: LinkType) -> LinkType:
    """The link type where a device receives: it listens to one channel."""
    return replace(kind, gateway_channels=1) if isinstance(kind, LoRa) else kind
