"""The uplink: when updates arrive, what noise does to them, and which the server refuses."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from camu.arrays import Float32, from_decibels
from camu.errors import InputError
from camu.learning.native_draw import noisy_change
from camu.learning.sums import sum_of_squares
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream


def receive(update: Float32, snr: float, uplink: str, stream: Stream) -> Float32:
    """The update as the base station reads it, at this linear SNR.

    `update`: the leader sends the update scaled to unit power, so its noise relative to the update
    is 1/sqrt(SNR). `weights`: the leader sends raw weights, so the noise of standard deviation
    1/sqrt(SNR) per weight is the same however small the update is (as printed in Appendix I).
    `digital`: bits arrive without error; so they do under `packet` where the update is not lost.
    Otherwise `uplink` names the user's own function
    (update, snr, generator) -> update, with numpy's random generator of this uplink and round.
    """
    if uplink in ("digital", "packet"):
        return update
    if is_plugin(uplink):
        return _own_uplink(update, snr, uplink, stream)
    return _with_noise(update, None, snr, uplink, stream)[0]


def receive_change(
    model: Float32, start: Float32, snr: float, uplink: str, stream: Stream
) -> tuple[Float32, float]:
    """The same for the change of a model, and the sum of its squares: most updates are no more."""
    if uplink in ("update", "weights"):
        return _with_noise(model, start, snr, uplink, stream)
    update = receive(model - start, snr, uplink, stream)
    return update, sum_of_squares(update)


def _with_noise(
    model: Float32, start: Float32 | None, snr: float, uplink: str, stream: Stream
) -> tuple[Float32, float]:
    scale = 1.0 / math.sqrt(snr) if snr else math.inf
    return noisy_change(model, start, scale, uplink == "update", stream)


def _own_uplink(update: Float32, snr: float, name: str, stream: Stream) -> Float32:
    function = import_object(name, "radio.uplink")
    with user_code(f"radio.uplink = {name}", function, "(update, snr, generator)"):
        received = function(update.copy(), snr, stream.numpy())
    array = np.asarray(received)
    if array.shape != update.shape or array.dtype.kind != "f":
        raise InputError(
            f"radio.uplink = {name}: it returned {array.dtype} of shape {array.shape}; return the "
            f"received update, floats of shape {update.shape}"
        )
    return array.astype(np.float32)


def in_outage(snr: float, outage_snr_db: float | None) -> bool:
    """Whether an uplink at this linear SNR fails."""
    return outage_snr_db is not None and 10.0 * np.log10(snr) < outage_snr_db


def packet_error(snr: float, waterfall_db: float) -> float:
    """Probability that an update is lost: 1 - exp(-m (I + N) / (p g)), Chen et al. 2021, eq. (7).

    m is the waterfall threshold, and the linear SNR is p g / (I + N).
    """
    return -math.expm1(-float(from_decibels(waterfall_db)) / snr)


def refuse(squares: float, buffers: Float32, limit: float) -> str | None:
    """Why an update with this sum of squares must not touch the model, or None."""
    norm = math.sqrt(squares)
    # Squares of single precision are finite in double precision, and so is their sum.
    if not (math.isfinite(norm) and np.isfinite(buffers).all()):
        return "it has entries that are not finite"
    if norm > limit:
        return f"its norm {norm:.3g} exceeds training.max_update_norm = {limit:g}"
    return None


@dataclass
class Clock:
    """Events of units on one time axis, and the one uplink band that TDMA units share."""

    in_turn: bool  # TDMA: one uplink at a time; otherwise all at once
    now_seconds: float = 0.0
    free_seconds: float = 0.0  # when the shared band is free
    _events: list[tuple[float, int, int, float]] = field(default_factory=list)

    _READY = 0
    _ARRIVES = 1

    def start(self, unit: int, ready_seconds: float, uplink_seconds: float) -> None:
        """A unit starts now, is ready to send after some time, and then sends for some time."""
        event = (self.now_seconds + ready_seconds, self._READY, unit, uplink_seconds)
        heapq.heappush(self._events, event)

    def next_arrival(self, deadline_seconds: float | None = None) -> int | None:
        """Advance to the next arrival and return its unit; None if the deadline comes first.

        At equal times, the unit with the lower number queues first, so that the order depends on
        nothing but the plan. An arrival at the deadline is in time.
        """
        while self._events:
            if deadline_seconds is not None and self._events[0][0] > deadline_seconds:
                break
            time, kind, unit, uplink_seconds = heapq.heappop(self._events)
            self.now_seconds = time
            if kind == self._ARRIVES:
                return unit
            begin = max(time, self.free_seconds) if self.in_turn else time
            end = begin + uplink_seconds
            if self.in_turn:
                self.free_seconds = end
            heapq.heappush(self._events, (end, self._ARRIVES, unit, 0.0))
        if deadline_seconds is not None:
            self.wait_until(deadline_seconds)
        return None

    def wait_until(self, seconds: float) -> None:
        """Advance to a time at which nothing arrives; a time that has passed changes nothing."""
        self.now_seconds = max(self.now_seconds, seconds)

    def state(self) -> dict[str, object]:
        """Everything that a checkpoint needs."""
        return {
            "now_seconds": self.now_seconds,
            "free_seconds": self.free_seconds,
            "events": [list(event) for event in sorted(self._events)],
        }

    @classmethod
    def restore(cls, in_turn: bool, state: Mapping[str, Any]) -> Clock:
        """The clock as it was."""
        events = [(float(t), int(kind), int(u), float(air)) for t, kind, u, air in state["events"]]
        return cls(in_turn, float(state["now_seconds"]), float(state["free_seconds"]), events)
