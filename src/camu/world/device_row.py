"""One row of a fleet file: a pydantic model whose errors name the column, the value and the fix."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

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
