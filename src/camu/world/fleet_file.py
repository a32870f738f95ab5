"""Read a fleet from CSV or JSON; errors name the row, the column, the value and the fix."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from camu.arrays import Float64, Int64, from_decibels
from camu.config import Config
from camu.errors import InputError, suggest
from camu.seeding import derive
from camu.world.devices import Devices
from camu.world.table import Table, read_snr, read_table

LARGEST_COORDINATE_M = 1e7
LARGEST_COUNT = 10**12
LOWEST_DB = -300.0
PLACES = ("x", "y", "z", "distance_m", "gain_db")
_EMPTY = "the cell is empty"


def _refuse(text: str, column: str = "") -> NoReturn:
    raise PydanticCustomError("cell", "{text}", {"text": text, "column": column})


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _check_type(cell: Any, wanted: str) -> None:
    """Refuse true and false, lists and objects of a JSON file."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float | None):
        _refuse(f"{json.dumps(cell)[:40]} is not {wanted}; write {wanted}")


def _text(cell: Any) -> str:
    _check_type(cell, "text")
    return "" if cell is None else str(cell).strip()


def _number(cell: Any) -> float | None:
    """A finite number, or None for an empty cell."""
    _check_type(cell, "a number")
    if _is_empty(cell):
        return None
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        _refuse(f"{str(cell)[:40]!r} is not a number; write digits, with a point")
    if not math.isfinite(value):
        _refuse(f"{str(cell).strip()!r} is not a finite number; write a finite one")
    return value


def _count(cell: Any) -> int:
    value = _number(cell)
    if value is None:
        _refuse(f"{_EMPTY}; write a whole number, 0 if there are none")
    if value < 0 or value != math.floor(value) or value > LARGEST_COUNT:
        _refuse(f"{value:.15g}; write a whole number from 0 to {LARGEST_COUNT:g}")
    return int(value)


def _name(cell: Any) -> str:
    return _text(cell) or _refuse("is empty; give every device a name of its own")


def _where(holds: Callable[[float], bool], rule: str) -> AfterValidator:
    """Refuse a number for which the rule does not hold."""

    def check(value: float | None) -> float | None:
        if value is not None and not holds(value):
            _refuse(f"{value:.15g}; {rule}")
        return value

    return AfterValidator(check)


_Number = Annotated[float | None, BeforeValidator(_number)]
Count = Annotated[int | None, BeforeValidator(_count)]
Coordinate = Annotated[
    _Number,
    _where(
        lambda metres: abs(metres) <= LARGEST_COORDINATE_M,
        f"a coordinate lies within {LARGEST_COORDINATE_M:g} m of the origin",
    ),
]
Distance = Annotated[
    _Number,
    _where(lambda metres: metres >= 0, "a distance is not negative; write it in metres"),
    _where(
        lambda metres: metres <= LARGEST_COORDINATE_M,
        f"a distance is at most {LARGEST_COORDINATE_M:g} m",
    ),
]
Gain = Annotated[
    _Number,
    _where(
        lambda gain_db: gain_db <= 0,
        "a gain is at most 0 dB, since the base station cannot receive more than was sent; "
        "write a path loss of 80 dB as -80",
    ),
    _where(lambda gain_db: gain_db >= LOWEST_DB, f"the lowest gain is {LOWEST_DB:g} dB"),
]
Positive = Annotated[
    _Number, _where(lambda value: value > 0, "write a positive number, or nothing for the default")
]
Energy = Annotated[
    _Number,
    _where(
        lambda joules: joules >= 0, "an energy is not negative; leave it empty if it is not known"
    ),
]


class DeviceRow(BaseModel):
    """A device as its row describes it; None where a cell is empty or the column is missing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, BeforeValidator(_name)]
    x: Coordinate = None
    y: Coordinate = None
    z: Coordinate = None
    distance_m: Distance = None
    gain_db: Gain = None
    samples: Count = None
    labels: dict[str, Count] = {}
    cpu_hz: Positive = None
    cycles_per_sample: Positive = None
    capacitance: Positive = None
    power_watts: Positive = None
    max_power_watts: Positive = None
    battery_joules: Energy = None
    harvest_watts: Energy = None
    region: Annotated[str, BeforeValidator(_text)] = ""

    @model_validator(mode="after")
    def _is_placed(self) -> DeviceRow:
        """A device has one way to know its link to the base station."""
        if (self.x is None) != (self.y is None):
            column = "x" if self.x is None else "y"
            _refuse(f"{_EMPTY}; give x and y, or neither", column)
        if self.distance_m is not None and self.x is not None:
            rule = "the row has a position too; leave one of the two empty"
            _refuse(f"{self.distance_m:.15g}; {rule}", "distance_m")
        if self.x is None and self.distance_m is None and self.gain_db is None:
            column = next((name for name in PLACES if name in self.model_fields_set), "x")
            _refuse(
                f"{_EMPTY}; give the device a position (x, y), a distance_m or a gain_db", column
            )
        return self

    @model_validator(mode="after")
    def _has_data(self) -> DeviceRow:
        total = sum(count or 0 for count in self.labels.values())
        if self.labels and total == 0:
            names = list(self.labels)
            span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            _refuse("all counts are 0; leave the device out or give it samples", span)
        if self.samples == 0:
            _refuse("0; the device holds no data; leave it out or give it samples", "samples")
        if self.labels and self.samples not in (None, total):
            _refuse(
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
            _refuse(f"{self.power_watts:.15g}; {rule}", "power_watts")
        return self


def first_fault(error: ValidationError) -> tuple[str, str]:
    """The column of the first error in a row, and the sentence about it."""
    first = error.errors(include_url=False)[0]
    return first["ctx"]["column"] or str(first["loc"][-1]), first["ctx"]["text"]


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
                f"{table.path}, column {other}: is missing; {one} alone is not a position"
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
        battery_joules=_column(
            rows, "battery_joules", np.nan if fleet.battery_joules is None else fleet.battery_joules
        ),
        harvest_watts=_column(rows, "harvest_watts", fleet.harvest_watts),
    )
