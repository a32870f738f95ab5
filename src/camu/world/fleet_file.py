"""Read a fleet from CSV or JSON; errors name the row, the column, the value and the fix."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator

from camu.arrays import Float64, Int64, decibels, from_decibels
from camu.config import Config
from camu.errors import InputError, suggest
from camu.seeding import derive
from camu.world.cells import (
    EMPTY,
    LOWEST_DB,
    Capacitance,
    Coordinate,
    Count,
    Cycles,
    Distance,
    Energy,
    Gain,
    Hertz,
    Latitude,
    Longitude,
    Name,
    Received,
    Snr,
    Text,
    Watts,
    first_fault,
    refuse,
)
from camu.world.devices import Devices
from camu.world.links import noise_watts
from camu.world.places import FARTHEST_M, Origin, read_stations, renamed
from camu.world.table import Table, read_snr, read_table

PLACES = ("x", "y", "z", "latitude", "longitude", "distance_m", "gain_db", "snr_db", "rssi_dbm")
UPLINKS = ("gain_db", "snr_db", "rssi_dbm")  # ways to write a measured uplink
_MOST_NAMED = 10


class DeviceRow(BaseModel):
    """A device as its row describes it; None where a cell is empty or the column is missing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    x: Coordinate = None
    y: Coordinate = None
    z: Coordinate = None
    latitude: Latitude = None
    longitude: Longitude = None
    distance_m: Distance = None
    gain_db: Gain = None
    snr_db: Snr = None
    rssi_dbm: Received = None
    samples: Count = None
    labels: dict[str, Count] = {}
    cpu_hz: Hertz = None
    cycles_per_sample: Cycles = None
    capacitance: Capacitance = None
    power_watts: Watts = None
    max_power_watts: Watts = None
    battery_joules: Energy = None
    harvest_watts: Energy = None
    region: Text = ""

    @model_validator(mode="after")
    def _is_placed(self) -> DeviceRow:
        """A device has one way to know its link to the base station."""
        for one, other in (("x", "y"), ("latitude", "longitude")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                column = one if getattr(self, one) is None else other
                refuse(f"{EMPTY}; give {one} and {other}, or neither", column)
        placed = self.x is not None or self.latitude is not None
        if self.distance_m is not None and placed:
            rule = "the row has a position too; leave one of the two empty"
            refuse(f"{self.distance_m:.15g}; {rule}", "distance_m")
        measured = [name for name in UPLINKS if getattr(self, name) is not None]
        if len(measured) > 1:
            rule = f"the row has {measured[0]} too; leave one of the two empty"
            refuse(f"{getattr(self, measured[1]):.15g}; {rule}", measured[1])
        if not placed and self.distance_m is None and not measured:
            column = next((name for name in PLACES if name in self.model_fields_set), "x")
            refuse(
                f"{EMPTY}; give the device a position (x, y), a distance_m, or a measured "
                "gain_db, snr_db or rssi_dbm",
                column,
            )
        return self

    @model_validator(mode="after")
    def _has_data(self) -> DeviceRow:
        total = sum(count or 0 for count in self.labels.values())
        if self.labels and total == 0:
            names = list(self.labels)
            span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            refuse("all counts are 0; leave the device out or give it samples", span)
        if self.samples == 0:
            refuse("0; the device holds no data; leave it out or give it samples", "samples")
        if self.labels and self.samples not in (None, total):
            refuse(
                f"{self.samples}, but the label columns add up to {total}; correct one of them, "
                "or leave the column samples out",
                "samples",
            )
        return self

    @model_validator(mode="after")
    def _keeps_its_limit(self, info: ValidationInfo) -> DeviceRow:
        defaults: dict[str, float] = info.context or {}
        largest = self.max_power_watts or defaults.get("max_power_watts", math.inf)
        if self.power_watts is not None and self.power_watts > largest:
            rule = "is more than max_power_watts of the device; lower the one or raise the other"
            refuse(f"{self.power_watts:.15g}; {rule}", "power_watts")
        return self


_LABEL = "label_"
_KNOWN = tuple(name for name in DeviceRow.model_fields if name != "labels")


class Fleet(NamedTuple):
    """The content of a fleet's files; nan for a device without a measurement, None without any."""

    devices: Devices
    gains: Float64 | None  # (K,) measured ||h_k||^2, antennas included
    snr_db: Float64 | None  # (K, K) measured between devices, symmetric
    distances_m: Float64 | None  # (K,) to the base station, where no position is known
    labels: tuple[int, ...] | None = None  # class of each label column; None: samples only
    stations: Float64 | None = None  # (S, 3) base stations of fleet.base_station_file
    notes: tuple[str, ...] = ()  # what the user should know of the file


def parse_fleet(path: str | Path, snr_path: str | Path | None, config: Config) -> Fleet:
    """The devices in a CSV or JSON file; the configuration gives what the file leaves open.

    CPU frequencies that the file does not give are drawn from fleet.cpu_hz, as for devices in
    regions.
    """
    table = renamed(read_table(Path(path)))
    if not table.rows:
        raise InputError(f"{path}: holds 0 devices; write at least one row below the header")
    notes = _check_columns(table)
    labels = _label_columns(table)
    rows = [_row(table, number, labels, config) for number in range(len(table.rows))]
    _check_ids(table, rows)
    origin, x, y = _plane(table, rows)
    devices = _devices(rows, config, x, y)
    gains = _gains(table, rows, devices, config)
    snr_db = None if snr_path is None else read_snr(Path(snr_path), devices.ids)
    stations = None
    if config.fleet.base_station_file is not None:
        stations = read_stations(config.fleet.base_station_file, origin).positions
    elif origin is not None and (gains is None or np.isnan(gains).any()):
        notes += [
            f"{path}: the base station is at fleet.base_station = "
            f"{list(config.fleet.base_station)}, in metres east and north of the middle of the "
            f"fleet (latitude {origin.latitude:.5f}, longitude {origin.longitude:.5f}); "
            "fleet.base_station_file places it by latitude and longitude"
        ]
    unknown = np.isnan(devices.positions[:, 0])
    if snr_db is None and unknown.any() and devices.count > 1:
        notes += [
            f"{path}: {int(unknown.sum())} of {devices.count} devices have no position and no SNR "
            "was measured between devices (fleet.snr_file), so devices are clustered by their "
            "uplinks alone, and a link between two devices counts as good as the weaker of "
            "their uplinks"
        ]
    return Fleet(
        devices,
        gains,
        snr_db,
        _column(rows, "distance_m") if "distance_m" in table.columns else None,
        _classes(labels),
        stations,
        tuple(notes),
    )


def _plane(table: Table, rows: list[DeviceRow]) -> tuple[Origin | None, Float64, Float64]:
    """Positions in metres (nan where unknown), and where on the earth they are counted from."""
    x, y = _column(rows, "x"), _column(rows, "y")
    latitude, longitude = _column(rows, "latitude"), _column(rows, "longitude")
    known = ~np.isnan(latitude)
    if not known.any():
        return None, x, y
    origin = Origin.amid(latitude[known], longitude[known])
    x, y = origin.metres(latitude, longitude)
    far = np.hypot(x, y)
    if np.nanmax(far) > FARTHEST_M:
        row = int(np.nanargmax(far))
        _fail(
            table,
            row,
            "latitude",
            f"{latitude[row]:g}, {longitude[row]:g} is {far[row] / 1000:.0f} km from the middle of "
            f"the fleet; at most {FARTHEST_M / 1000:g} km can be; check signs and order",
        )
    return origin, x, y


def _gains(table: Table, rows: list[DeviceRow], devices: Devices, config: Config) -> Float64 | None:
    """The measured gains, nan where a row has none; None if the file has no such column.

    An SNR is that of the whole band and a received power that at the base station, both at the
    device's power_watts and with the antennas' combining: gain = snr noise / power = rssi / power.
    """
    if not any(name in table.columns for name in UPLINKS):
        return None
    power_db = decibels(devices.power_watts)
    noise_db = decibels(noise_watts(config.radio))
    gains_db = _column(rows, "gain_db")
    for name, offset_db in (("snr_db", noise_db), ("rssi_dbm", -30.0)):
        measured = _column(rows, name)
        found = measured + offset_db - power_db
        if (found > 0).any():
            row = int(np.argmax(found > 0))
            _fail(
                table,
                row,
                name,
                f"{measured[row]:.15g} is more than the {devices.power_watts[row]:g} W that the "
                f"device sends with; write at most {measured[row] - found[row]:.4g}, or correct "
                "power_watts",
            )
        gains_db = np.where(np.isnan(gains_db), found, gains_db)
    return from_decibels(np.maximum(gains_db, LOWEST_DB))


def _classes(labels: list[str]) -> tuple[int, ...] | None:
    """The class that each label column stands for: its number, or its place if it has a name."""
    numbers = [name[len(_LABEL) :] for name in labels]
    if not labels:
        return None
    if all(number.isdecimal() and len(number) < 10 for number in numbers):
        return tuple(int(number) for number in numbers)
    return tuple(range(len(labels)))


def _row(table: Table, number: int, labels: list[str], config: Config) -> DeviceRow:
    cells = table.rows[number]
    values: dict[str, Any] = {name: cell for name, cell in cells.items() if name in _KNOWN}
    if labels:
        values["labels"] = {name: cells[name] for name in labels}
    try:
        return DeviceRow.model_validate(
            values, context={"max_power_watts": config.fleet.max_power_watts}
        )
    except ValidationError as error:
        _fail(table, number, *first_fault(error))


def _fail(table: Table, row: int, column: str, problem: str) -> NoReturn:
    raise InputError(f"{table.path}, {table.places[row]}, column {column}: {problem}")


def _check_ids(table: Table, rows: list[DeviceRow]) -> None:
    first: dict[str, int] = {}
    for number, row in enumerate(rows):
        if row.id in first:
            there = table.places[first[row.id]]
            _fail(table, number, "id", f"{row.id!r} is already the id of {there}; ids must differ")
        first[row.id] = number


def _check_columns(table: Table) -> list[str]:
    """Refuse a table without what a fleet needs; returns a note on columns that are not used."""
    strange = [
        name
        for name in table.columns
        if name not in _KNOWN and not (name.startswith(_LABEL) and len(name) > len(_LABEL))
    ]
    if "id" not in table.columns:
        _missing(table, strange, "id", "column id: is missing; give every device a name of its own")
    if "samples" not in table.columns and not _label_columns(table):
        _missing(
            table,
            strange,
            "samples",
            "columns label_0, label_1, ...: are missing; write the samples per label, or a column "
            "samples with their number",
        )
    pairs = (("x", "y"), ("y", "x"), ("latitude", "longitude"), ("longitude", "latitude"))
    for one, other in pairs:
        if one in table.columns and other not in table.columns:
            raise InputError(
                f"{table.path}, column {other}: is missing; {one} alone is not a position"
            )
    if "x" in table.columns and "latitude" in table.columns:
        raise InputError(
            f"{table.path}, columns x and latitude: positions are written in metres or in "
            "degrees; remove the columns of one of the two"
        )
    if not any(name in table.columns for name in PLACES if name != "z"):
        _missing(
            table,
            strange,
            "gain_db",
            "columns x and y: are missing; give positions in metres (x, y, z) or in degrees "
            "(latitude, longitude), or the measured gain_db, snr_db or rssi_dbm of the uplink, or "
            "the distance to the base station (distance_m)",
        )
    return _unused(table, strange)


def _missing(table: Table, strange: list[str], name: str, problem: str) -> NoReturn:
    """Refuse a table without a column, with the column that may be meant."""
    typo = next((one for one in strange if suggest(one, (name,))), None)
    if typo is not None:
        problem += f"; is the column {typo} meant? Name it {name}"
    raise InputError(f"{table.path}, {problem}")


def _unused(table: Table, strange: list[str]) -> list[str]:
    """A note on columns that mean nothing to camu; a likely typo gets a hint."""
    if not strange:
        return []
    known = (*_KNOWN, "label_0")
    named = [
        name + suggest(name, known).replace("; did", " (did").replace("?", "?)")
        for name in strange[:_MOST_NAMED]
    ]
    more = f" and {len(strange) - _MOST_NAMED} more" if len(strange) > _MOST_NAMED else ""
    return [f"{table.path}: columns that are not used: {', '.join(named)}{more}"]


def _label_columns(table: Table) -> list[str]:
    """The label columns in the order of their labels: by number, or else as in the file."""
    names = [name for name in table.columns if name.startswith(_LABEL)]
    numbers = [name[len(_LABEL) :] for name in names]
    if not all(number.isdecimal() and len(number) < 10 for number in numbers):
        return names
    names.sort(key=lambda name: int(name[len(_LABEL) :]))
    for before, after in pairwise(names):
        expected = int(before[len(_LABEL) :]) + 1
        if int(after[len(_LABEL) :]) != expected:
            raise InputError(
                f"{table.path}, column {after}: comes after {before}; labels are numbered without "
                f"gaps: add a column {_LABEL}{expected}, with 0 where a device has none"
            )
    return names


def _column(rows: list[DeviceRow], name: str, default: npt.ArrayLike = np.nan) -> Float64:
    """One field of all rows, with the default where it is None."""
    values = np.array([getattr(row, name) for row in rows], dtype=np.float64)
    return np.where(np.isnan(values), default, values)


def _label_counts(rows: list[DeviceRow]) -> Int64:
    """Samples per label; with `samples` alone, all samples count as one label."""
    return np.array([list(row.labels.values()) or [row.samples] for row in rows], dtype=np.int64)


def _devices(rows: list[DeviceRow], config: Config, x: Float64, y: Float64) -> Devices:
    fleet = config.fleet
    z = np.where(np.isnan(x), np.nan, _column(rows, "z", 0.0))
    largest = _column(rows, "max_power_watts", fleet.max_power_watts)
    drawn = derive(config.run.seed, "cpu").numpy().uniform(*fleet.cpu_hz, size=len(rows))
    return Devices(
        ids=tuple(row.id for row in rows),
        positions=np.column_stack([x, y, z]),
        regions=tuple(row.region for row in rows),
        label_counts=_label_counts(rows),
        cpu_hz=_column(rows, "cpu_hz", drawn),
        cycles_per_sample=_column(rows, "cycles_per_sample", fleet.cycles_per_sample),
        capacitance=_column(rows, "capacitance", fleet.capacitance),
        # A default power is lowered to the device's limit.
        power_watts=np.minimum(_column(rows, "power_watts", fleet.power_watts), largest),
        max_power_watts=largest,
        battery_joules=_column(
            rows, "battery_joules", np.nan if fleet.battery_joules is None else fleet.battery_joules
        ),
        harvest_watts=_column(rows, "harvest_watts", fleet.harvest_watts),
    )
