"""The energy of a run: in total, and of every device by kind."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.errors import CamuError
from camu.planning.batteries import Batteries
from camu.planning.costs import Costs, Spending

KINDS = ("compute", "transmit", "receive")


@dataclass(eq=False)
class Ledger:
    """Joules since the start of a run; those of the base station are not the fleet's."""

    devices: Float64  # (3, K): a row per kind
    compute_joules: float = 0.0
    transmit_joules: float = 0.0
    receive_joules: float = 0.0
    base_station_joules: float = 0.0
    _device_joules: Float64 | None = field(default=None, repr=False)

    @classmethod
    def new(cls, count: int) -> Ledger:
        """Nothing spent by so many devices."""
        return cls(np.zeros((len(KINDS), count)))

    @property
    def joules(self) -> float:
        """What all devices have spent."""
        return self.compute_joules + self.transmit_joules + self.receive_joules

    @property
    def device_joules(self) -> Float64:
        """What each device has spent, read-only (K,)."""
        if self._device_joules is None:
            self._device_joules = self.devices.sum(axis=0)
            self._device_joules.setflags(write=False)
        return self._device_joules

    def book(
        self,
        updates: Float64,
        costs: Costs,
        spending: Spending,
        sizes: Sequence[int],
        started: npt.NDArray[np.bool_],
        bs_power_watts: float,
    ) -> tuple[Int64, Float64]:
        """Book a round's energy for the units that started; returns their devices and joules.

        `sizes` are the numbers of members of the units, whose devices follow in the spending.
        """
        uplink = updates * costs.gather_joules + costs.uplink_joules
        compute = (updates * costs.compute_joules)[started]
        self.compute_joules = _add_in_order(self.compute_joules, compute)
        self.transmit_joules = _add_in_order(self.transmit_joules, uplink[started])
        there = np.repeat(started, sizes)
        devices = spending.devices[there]
        if costs.downlink_seconds > 0:
            receive = spending.receive_joules[there]
            self.receive_joules = _add_in_order(self.receive_joules, receive)
            # The broadcast went out even if no unit came back.
            self.base_station_joules += bs_power_watts * costs.downlink_seconds
        # A device is in one unit only, so no index occurs twice.
        self.devices[0, devices] += spending.compute_joules[there]
        self.devices[1, devices] += spending.transmit_joules[there]
        self.devices[2, devices] += spending.receive_joules[there]
        self._device_joules = None
        return devices, spending.joules[there]

    def add(self, other: Ledger) -> None:
        """Add what another ledger of the same devices holds."""
        self.devices += other.devices
        self.compute_joules += other.compute_joules
        self.transmit_joules += other.transmit_joules
        self.receive_joules += other.receive_joules
        self.base_station_joules += other.base_station_joules
        self._device_joules = None

    def totals(self) -> dict[str, float]:
        """The joules of all devices by kind, and those of the base station."""
        return {
            "compute": self.compute_joules,
            "transmit": self.transmit_joules,
            "receive": self.receive_joules,
            "base_station": self.base_station_joules,
        }


def _add_in_order(total: float, parts: Float64) -> float:
    """A total after adding one part after the other."""
    return float(np.cumsum(np.concatenate(([total], parts)))[-1])


@dataclass(frozen=True, eq=False)
class DeviceEnergy:
    """What each device spent in a run and what is left, one array entry per device.

    Attributes:
        ids: names of the devices.
        compute_joules: spent on computing.
        transmit_joules: spent on sending.
        receive_joules: spent on receiving; 0 without `radio.downlink`.
        battery_joules: energy in the full battery; nan on mains power.
        left_joules: energy left at the end; nan on mains power.
        empty_round: rounds that were done when the device was first found empty; -1: never.
    """

    ids: tuple[str, ...]
    compute_joules: Float64
    transmit_joules: Float64
    receive_joules: Float64
    battery_joules: Float64
    left_joules: Float64
    empty_round: Int64

    @classmethod
    def of(cls, ids: tuple[str, ...], ledger: Ledger, batteries: Batteries) -> DeviceEnergy:
        """The energy of a run so far."""
        known = np.isfinite(batteries.capacity_joules)
        compute, transmit, receive = ledger.devices.copy()
        return cls(
            ids,
            compute,
            transmit,
            receive,
            battery_joules=np.where(known, batteries.capacity_joules, np.nan),
            left_joules=np.where(known, batteries.charge_joules, np.nan),
            empty_round=batteries.empty_round.copy(),
        )

    @property
    def joules(self) -> Float64:
        """All kinds together (K,)."""
        return self.compute_joules + self.transmit_joules + self.receive_joules

    def to_csv(self) -> str:
        """A line per device, with a head; cells without a value are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        numbers = [getattr(self, name).tolist() for name in _COLUMNS[1:-1]]
        cells = [["" if value != value else value for value in column] for column in numbers]
        rounds = ["" if value < 0 else value for value in self.empty_round.tolist()]
        writer.writerows(zip(self.ids, *cells, rounds, strict=True))
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str, source: str) -> DeviceEnergy:
        """What `to_csv` wrote; `source` is named in errors."""
        lines = list(csv.reader(text.splitlines()))
        try:
            if tuple(lines[0]) != _COLUMNS:
                raise ValueError("another header")
            columns = list(zip(*lines[1:], strict=True))
            numbers = [np.array([float(cell or "nan") for cell in one]) for one in columns[1:-1]]
            rounds = np.array([int(cell or -1) for cell in columns[-1]])
            compute, transmit, receive, battery, left = numbers
            return cls(tuple(columns[0]), compute, transmit, receive, battery, left, rounds)
        except (ValueError, IndexError, TypeError, csv.Error) as error:
            raise CamuError(
                f"{source}: is not a table of devices that this version wrote ({error})"
            ) from None


_COLUMNS = (
    "device",
    "compute_joules",
    "transmit_joules",
    "receive_joules",
    "battery_joules",
    "left_joules",
    "empty_round",
)
