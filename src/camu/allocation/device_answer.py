"""The answer to a problem per device: what each of them gets, with a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from camu.allocation.answer import Answer
from camu.arrays import Float64, Int64


@dataclass(frozen=True, eq=False, kw_only=True)
class DeviceAnswer(Answer):
    """Bandwidth, power and frequency of every device.

    Attributes:
        kind: of the problem.
        bandwidth_hz: of each device while it sends.
        cpu_hz: frequency of each device.
        device_seconds: when each device's update has arrived if it does not have to wait.
        device_joules: what a round costs each device.
        round_seconds: length of the round.
    """

    rows = "devices"
    columns: ClassVar[tuple[str, ...]] = (
        *("bandwidth_hz", "power_watts", "cpu_hz", "device_seconds", "device_joules"),
    )
    kind: str
    bandwidth_hz: Float64
    cpu_hz: Float64
    device_seconds: Float64
    device_joules: Float64
    round_seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockAnswer(DeviceAnswer):
    """Also the block of every device, -1 for those that do not take part, and its packet error."""

    columns = (*DeviceAnswer.columns, "block", "packet_error")
    block: Int64
    packet_error: Float64
