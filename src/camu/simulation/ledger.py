"""The energy and the bits of a run: in total, and joules of every device by kind."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.errors import CamuError
from camu.files import from_cell, to_csv
from camu.planning.batteries import Batteries
from camu.planning.costs import Costs, Spending

KINDS = ("compute", "transmit", "receive", "idle")  # of joules of devices
JOULES = (*KINDS, "base_station")
LINKS = ("uplink", "downlink", "gather")  # over which bits are sent


class Ledger:
    """Joules and bits since the start of a run.

    Attributes:
        devices: joules of each device, a row per kind (4, K).
        totals: joules of all devices by kind, and those of the base station, which are not theirs.
        bits: what was sent, by link.
    """

    def __init__(
        self,
        devices: Float64,
        totals: Mapping[str, float] = MappingProxyType(dict.fromkeys(JOULES, 0.0)),
        bits: Mapping[str, int] = MappingProxyType(dict.fromkeys(LINKS, 0)),
    ) -> None:
        # Version 0.3 had no idle power.
        missing = len(KINDS) - len(devices)
        self.devices = np.pad(devices, ((0, missing), (0, 0))) if missing else devices
        self.totals, self.bits = {**dict.fromkeys(JOULES, 0.0), **totals}, dict(bits)
        self._device_joules: Float64 | None = None

    @classmethod
    def new(cls, count: int) -> Ledger:
        """Nothing spent by so many devices."""
        return cls(np.zeros((len(KINDS), count)))

    @property
    def joules(self) -> float:
        """What all devices have spent."""
        return sum(self.totals[kind] for kind in KINDS)

    @property
    def megabytes(self) -> float:
        """What was sent."""
        return sum(self.bits.values()) / 8e6

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
        """Book joules and bits of the units that started; returns their devices and joules.

        `sizes` are the numbers of members of the units, whose devices follow in the spending.
        """
        there = np.repeat(started, sizes)
        devices = spending.devices[there]
        self._add("compute", (updates * costs.compute_joules)[started])
        extra = costs.by_unit(costs.extra_joules(updates))
        sent = updates * costs.gather_joules + extra + costs.uplink_joules
        self._add("transmit", sent[started])
        self.bits["uplink"] += int(costs.uplink_bits[started].sum())
        self.bits["gather"] += int((updates * costs.gather_bits)[started].sum())
        # The broadcast goes out once, also if no unit comes back.
        self.bits["downlink"] += costs.downlink_bits
        if np.any(costs.receive_watts):
            self._add("receive", spending.receive_joules[there])
        if costs.station_seconds > 0:
            self.totals["base_station"] += bs_power_watts * costs.station_seconds
        # A device is in one unit only, so no index occurs twice.
        self.devices[0, devices] += spending.compute_joules[there]
        self.devices[1, devices] += spending.transmit_joules[there]
        self.devices[2, devices] += spending.receive_joules[there]
        self._device_joules = None
        return devices, spending.busy_joules[there]

    def book_idle(self, devices: Int64, joules: Float64) -> None:
        """Book what idle power took in a round that has ended; no device occurs twice."""
        self._add("idle", joules)
        self.devices[3, devices] += joules
        self._device_joules = None

    def _add(self, kind: str, joules: Float64) -> None:
        """Add joules to a total, one after the other."""
        self.totals[kind] = float(np.cumsum(np.concatenate(([self.totals[kind]], joules)))[-1])

    def add(self, other: Ledger) -> None:
        """Add what another ledger of the same devices holds."""
        self.devices += other.devices
        self.totals = {kind: spent + other.totals[kind] for kind, spent in self.totals.items()}
        self.bits = {link: sent + other.bits[link] for link, sent in self.bits.items()}
        self._device_joules = None


@dataclass(frozen=True, eq=False)
class DeviceEnergy:
    """What each device spent in a run and what is left, one array entry per device."""

    ids: tuple[str, ...]
    compute_joules: Float64
    transmit_joules: Float64
    receive_joules: Float64
    idle_joules: Float64
    battery_joules: Float64  # in the full battery; nan on mains power
    left_joules: Float64  # at the end; nan on mains power
    empty_round: Int64  # rounds that were done when it was first found empty; -1: never

    @classmethod
    def of(cls, ids: tuple[str, ...], ledger: Ledger, batteries: Batteries) -> DeviceEnergy:
        """The energy of a run so far."""
        known = np.isfinite(batteries.capacity_joules)
        compute, transmit, receive, idle = ledger.devices.copy()
        return cls(
            ids,
            compute,
            transmit,
            receive,
            idle,
            battery_joules=np.where(known, batteries.capacity_joules, np.nan),
            left_joules=np.where(known, batteries.charge_joules, np.nan),
            empty_round=batteries.empty_round.copy(),
        )

    @property
    def joules(self) -> Float64:
        """All kinds together (K,)."""
        return sum((getattr(self, f"{kind}_joules") for kind in KINDS), np.zeros(len(self.ids)))

    def to_csv(self) -> str:
        """A line per device, with a head; cells without a value are empty."""
        numbers = [getattr(self, name).tolist() for name in _COLUMNS[1:-1]]
        rounds = [None if value < 0 else value for value in self.empty_round.tolist()]
        return to_csv([_COLUMNS, *zip(self.ids, *numbers, rounds, strict=True)])

    @classmethod
    def from_csv(cls, text: str, source: str) -> DeviceEnergy:
        """What `to_csv` wrote; `source` is named in errors."""
        lines = list(csv.reader(text.splitlines()))
        try:
            columns = list(zip(*lines[1:], strict=True))
            if tuple(lines[0]) == _COLUMNS_WITHOUT_IDLE:
                columns.insert(_COLUMNS.index("idle_joules"), ("0.0",) * len(columns[0]))
            elif tuple(lines[0]) != _COLUMNS:
                raise ValueError("another header")
            numbers = [np.array([float(cell or "nan") for cell in one]) for one in columns[1:-1]]
            rounds = np.array([int(cell or -1) for cell in columns[-1]])
            compute, transmit, receive, idle, battery, left = numbers
            ids = tuple(map(from_cell, columns[0]))
            return cls(ids, compute, transmit, receive, idle, battery, left, rounds)
        except (ValueError, IndexError, TypeError, csv.Error) as error:
            raise CamuError(
                f"{source}: is not a table of devices that this version wrote ({error})"
            ) from None


_COLUMNS = ("device", *(each.name for each in fields(DeviceEnergy)[1:]))
_COLUMNS_WITHOUT_IDLE = tuple(name for name in _COLUMNS if name != "idle_joules")  # version 0.3
