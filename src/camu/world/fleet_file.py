"""Read a user's own fleet: a table of devices, and optionally the SNR measured between them.

`docs/fleet.md` describes the columns. Every mistake is refused with the file, the row, the column
and the fix.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from camu.arrays import Float64, Int64, from_decibels
from camu.config import Config
from camu.errors import InputError, suggest
from camu.seeding import derive
from camu.world.device_row import PLACES, DeviceRow, first_fault
from camu.world.devices import Devices
from camu.world.table import Table, read_snr, read_table

_LABEL = "label_"
_KNOWN = tuple(name for name in DeviceRow.model_fields if name != "labels")


class Fleet(NamedTuple):
    """The content of a fleet's files; nan for a device without a measurement, None without any."""

    devices: Devices
    gains: Float64 | None  # (K,) measured ||h_k||^2, antennas included
    snr_db: Float64 | None  # (K, K) measured between devices, symmetric
    distances_m: Float64 | None  # (K,) to the base station, where no position is known


def parse_fleet(path: str | Path, snr_path: str | Path | None, config: Config) -> Fleet:
    """The devices in a CSV or JSON file; the configuration gives what the file leaves open.

    CPU frequencies that the file does not give are drawn from fleet.cpu_hz, as for devices in
    regions.
    """
    table = read_table(Path(path))
    if not table.rows:
        raise InputError(f"{path}: holds 0 devices; write at least one row below the header")
    _check_columns(table)
    labels = _label_columns(table)
    rows = [_row(table, number, labels, config) for number in range(len(table.rows))]
    _check_ids(table, rows)
    devices = _devices(rows, config)
    gains_db = _column(rows, "gain_db")
    return Fleet(
        devices,
        from_decibels(gains_db) if "gain_db" in table.columns else None,
        _snr(table, devices, snr_path),
        _column(rows, "distance_m") if "distance_m" in table.columns else None,
    )


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


def _check_columns(table: Table) -> None:
    for name in table.columns:
        if name in _KNOWN or (name.startswith(_LABEL) and len(name) > len(_LABEL)):
            continue
        hint = suggest(name, (*_KNOWN, "label_0")) or "; leave it out"
        raise InputError(
            f"{table.path}, column {name}: is not known{hint}; "
            f"there are label_0, label_1, ... and {', '.join(_KNOWN)}"
        )
    if "id" not in table.columns:
        raise InputError(
            f"{table.path}, column id: is missing; give every device a name of its own"
        )
    if "samples" not in table.columns and not _label_columns(table):
        raise InputError(
            f"{table.path}, columns label_0, label_1, ...: are missing; write the samples per "
            "label, or a column samples with their number"
        )
    for one, other in (("x", "y"), ("y", "x"), ("z", "x")):
        if one in table.columns and other not in table.columns:
            raise InputError(
                f"{table.path}, column {other}: is missing; {one} alone is no position"
            )
    if not any(name in table.columns for name in PLACES):
        raise InputError(
            f"{table.path}, columns x and y: are missing; give positions in metres (x, y, z), or "
            "the measured gain to the base station in dB (gain_db), or the distance to it in "
            "metres (distance_m)"
        )


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


def _snr(table: Table, devices: Devices, snr_path: str | Path | None) -> Float64 | None:
    """The measured SNR between devices; None where positions give the links."""
    if snr_path is not None:
        return read_snr(Path(snr_path), devices.ids)
    unknown = np.isnan(devices.positions[:, 0])
    if devices.count == 1 and unknown.all():
        return np.zeros((1, 1))  # no other device, no link: any number does for the diagonal
    if unknown.any():
        _fail(
            table,
            int(np.argmax(unknown)),
            "x",
            "the device has no position, so its links to the other devices are not known; give x "
            "and y, or the measured SNR between devices in a second file (fleet.snr_file, see "
            "docs/fleet.md)",
        )
    return None


def _column(rows: list[DeviceRow], name: str, default: npt.ArrayLike = np.nan) -> Float64:
    """One field of all rows, with the default where it is None."""
    values = np.array([getattr(row, name) for row in rows], dtype=np.float64)
    return np.where(np.isnan(values), default, values)


def _label_counts(rows: list[DeviceRow]) -> Int64:
    """Samples per label; with `samples` alone, all samples count as one label."""
    return np.array([list(row.labels.values()) or [row.samples] for row in rows], dtype=np.int64)


def _devices(rows: list[DeviceRow], config: Config) -> Devices:
    fleet = config.fleet
    x, y = _column(rows, "x"), _column(rows, "y")
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
        battery_joules=_column(rows, "battery_joules"),
    )
