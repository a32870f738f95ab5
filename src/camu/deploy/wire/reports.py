"""What a node tells about itself in the query round: its devices, never its data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

LARGEST_COUNT = 10**12


class Refusal(Exception):
    """Why something that a node sent is not used."""


@dataclass(frozen=True)
class DeviceReport:
    """One device: how many samples of each label, and how fast it computes."""

    id: str
    label_counts: tuple[int, ...]
    update_seconds: float  # measured time of one local update
    snr_db: float | None = None  # at the base station, where the node knows it


@dataclass(frozen=True)
class Report:
    """A node: its devices, and in a trial which part of the partition it serves."""

    devices: tuple[DeviceReport, ...]
    partition: int | None = None

    @property
    def name(self) -> str:
        """The same for every life of the node, where Flower's node id may change."""
        if self.partition is not None:
            return f"partition {self.partition}"
        return ", ".join(device.id for device in self.devices)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


def read_report(data: Any, classes: int) -> Report:
    """A report from plain data that a node sent; whatever is wrong is a Refusal."""
    if not isinstance(data, dict) or not isinstance(data.get("devices"), list):
        raise Refusal("its report has no list of devices")
    partition = data.get("partition")
    if partition is not None and not (_whole(partition) and partition >= 0):
        raise Refusal(f"its partition {partition!r} is not a whole number from 0")
    devices = tuple(_read_device(item, classes) for item in data["devices"])
    if len({device.id for device in devices}) < len(devices):
        raise Refusal("its report names a device twice")
    if not devices and partition is None:
        raise Refusal("its report names no device")
    return Report(devices, partition)


def _read_device(item: Any, classes: int) -> DeviceReport:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
        raise Refusal("a device of its report has no id")
    name, counts = item["id"], item.get("label_counts")
    if not (
        isinstance(counts, list)
        and len(counts) == classes
        and all(_whole(count) and 0 <= count <= LARGEST_COUNT for count in counts)
        and sum(counts) > 0
    ):
        raise Refusal(f"device {name}: label_counts must be {classes} whole numbers, not all 0")
    seconds: Any = item.get("update_seconds")
    snr: Any = item.get("snr_db")
    if not (_number(seconds) and 0 < seconds < 1e6):
        raise Refusal(f"device {name}: update_seconds = {seconds!r} must be a positive number")
    if snr is not None and not (_number(snr) and abs(snr) <= 300):
        raise Refusal(f"device {name}: snr_db = {snr!r} must be a number of decibels")
    return DeviceReport(name, tuple(counts), float(seconds), None if snr is None else float(snr))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
