"""Queues of uplinks: each link type has its own channels, and who is ready first sends first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from camu.arrays import Float64, Int64, send_in_turn
from camu.planning.air import TOGETHER
from camu.world.link_types import SHANNON


class Queue(NamedTuple):
    """Where an uplink queues; the channels of `shannon` are what radio.access says."""

    link: str
    channels: int
    cell: int = 0  # each has its own

    @property
    def band(self) -> str:
        """The name of what it shares with other uplinks: the link type, and the cell."""
        return band_name(self.link, self.cell)


def band_name(link: str, cell: int) -> str:
    """The name of the band of a link type in a cell."""
    return f"{link} {cell}" if cell else link


@dataclass
class Channels:
    """When the channels of each band are free."""

    free: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # heaps, with numbers

    def first_free(self, queue: Queue) -> float:
        """From when on a channel is free; 0 where there are more channels than uplinks so far."""
        busy = self.free.get(queue.band, [])
        return busy[0][0] if 0 < queue.channels <= len(busy) else 0.0

    def send(self, ready: float, air: float, queue: Queue) -> tuple[float, int]:
        """When an uplink that is ready now has ended, and the number of its channel."""
        end = max(ready, self.first_free(queue)) + air
        busy = self.free.setdefault(queue.band, [])
        if 0 < queue.channels <= len(busy):
            number = busy[0][1]
            heapq.heapreplace(busy, (end, number))
        else:
            number = len(busy)
            heapq.heappush(busy, (end, number))
        return end, number

    def skip(self, seconds: float) -> None:
        """Let so much time pass at once."""
        for band, busy in self.free.items():
            self.free[band] = [(end + seconds, number) for end, number in busy]


def under(queues: Sequence[Queue], access: str) -> list[Queue]:
    """The queues with the channels of `shannon` under this access: one, or no limit (0)."""
    channels = int(access == "tdma")
    return [q._replace(channels=channels) if q.link == SHANNON else q for q in queues]


def arrivals(
    ready_seconds: Float64, air_seconds: Float64, access: str, queues: Sequence[Queue] | None = None
) -> Float64:
    """When each unit's update has arrived.

    Each sends when it is ready (`ofdma`), in turn (`tdma`), or all with the last one (`together`).
    With `queues` each unit waits for a channel of its own link type, in its own cell.
    """
    if access == TOGETHER:
        return np.asarray(ready_seconds.max() + air_seconds)
    if queues is not None:
        return _sent(ready_seconds, air_seconds, under(queues, access))[0]
    if access == "ofdma":
        return ready_seconds + air_seconds
    return send_in_turn(ready_seconds, air_seconds)


def _sent(ready: Float64, air: Float64, queues: Sequence[Queue]) -> tuple[Float64, Int64]:
    """When each uplink has ended, and its channel; those ready at once go by their index."""
    channels, ends = Channels(), np.empty(len(ready))
    numbers = np.empty(len(ready), dtype=np.int64)
    for k in np.argsort(ready, kind="stable").tolist():
        ends[k], numbers[k] = channels.send(float(ready[k]), float(air[k]), queues[k])
    return ends, numbers


def latest_ready(
    ready: Float64, air: Float64, access: str, queues: Sequence[Queue] | None = None
) -> Float64:
    """When each unit must be ready at the latest, for a round of the same length and order.

    Each stays on its channel.
    """
    if access == TOGETHER:
        return np.full(len(ready), ready.max())
    end = float(arrivals(ready, air, access, queues).max())
    if queues is None and access == "ofdma":
        return np.asarray(np.maximum(end - air, ready))
    order = np.argsort(ready, kind="stable")
    latest = np.empty(len(ready))
    if queues is None:
        latest[order] = end - np.cumsum(air[order][::-1])[::-1]
        return np.maximum(latest, ready)  # rounding
    own = under(queues, access)
    places = list(zip((queue.band for queue in own), _sent(ready, air, own)[1], strict=True))
    until: dict[tuple[str, int], float] = {}  # when the next one on a channel begins
    for k in order[::-1].tolist():
        latest[k] = until.get(places[k], end) - air[k]
        until[places[k]] = latest[k]
    return np.maximum(latest, ready)
