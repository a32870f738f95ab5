"""Cells of tables: what a number, a count, a place or a gain may be, and sentences about errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from camu.config.fields import LARGEST_COORDINATE_M, LARGEST_HZ, LARGEST_WATTS, SMALLEST_WATTS

LARGEST_COUNT = 10**12
LOWEST_DB = -300.0
EMPTY = "the cell is empty"
_LONGEST_TEXT = 200


def refuse(text: str, column: str = "") -> NoReturn:
    """Refuse a cell with a sentence; a column is named where a rule of the whole row is broken."""
    raise PydanticCustomError("cell", "{text}", {"text": text, "column": column})


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _check_type(cell: Any, wanted: str) -> None:
    """Refuse true and false, lists and objects of a JSON file."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float | None):
        refuse(f"{json.dumps(cell)[:40]} is not {wanted}; write {wanted}")


def _text(cell: Any) -> str:
    _check_type(cell, "text")
    text = "" if cell is None else str(cell).strip()
    if not text.isprintable() or len(text) > _LONGEST_TEXT:
        refuse(f"{ascii(text)[:40]}; write at most {_LONGEST_TEXT} characters that can be printed")
    return text


def _number(cell: Any) -> float | None:
    """A finite number, or None for an empty cell."""
    _check_type(cell, "a number")
    if _is_empty(cell):
        return None
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        refuse(f"{str(cell)[:40]!r} is not a number; write digits, with a point")
    if not math.isfinite(value):
        refuse(f"{str(cell).strip()!r} is not a finite number; write a finite one")
    return value


def _count(cell: Any) -> int:
    value = _number(cell)
    if value is None:
        refuse(f"{EMPTY}; write a whole number, 0 if there are none")
    if value < 0 or value != math.floor(value) or value > LARGEST_COUNT:
        refuse(f"{value:.15g}; write a whole number from 0 to {LARGEST_COUNT:g}")
    return int(value)


def _name(cell: Any) -> str:
    return _text(cell) or refuse("is empty; give every device a name of its own")


def _where(holds: Callable[[float], bool], rule: str) -> AfterValidator:
    """Refuse a number for which the rule does not hold."""

    def check(value: float | None) -> float | None:
        if value is not None and not holds(value):
            refuse(f"{value:.15g}; {rule}")
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
Snr = Annotated[
    _Number,
    _where(
        lambda value: abs(value) <= -LOWEST_DB,
        f"an SNR is a number from {LOWEST_DB:g} to {-LOWEST_DB:g} dB",
    ),
]
Received = Annotated[
    _Number,
    _where(
        lambda value: LOWEST_DB <= value <= 60.0,
        f"a received power is a number from {LOWEST_DB:g} to 60 dBm, such as -95",
    ),
]
Latitude = Annotated[
    _Number,
    _where(lambda degrees: abs(degrees) <= 90, "a latitude lies between -90 and 90 degrees"),
]
Longitude = Annotated[
    _Number,
    _where(lambda degrees: abs(degrees) <= 180, "a longitude lies between -180 and 180 degrees"),
]
Positive = Annotated[
    _Number, _where(lambda value: value > 0, "write a positive number, or nothing for the default")
]
Watts = Annotated[
    Positive,
    _where(
        lambda watts: SMALLEST_WATTS <= watts <= LARGEST_WATTS,
        f"a power is from {SMALLEST_WATTS:g} to {LARGEST_WATTS:g} W",
    ),
]
Hertz = Annotated[
    Positive,
    _where(lambda hertz: 1 <= hertz <= LARGEST_HZ, f"a frequency is from 1 to {LARGEST_HZ:g} Hz"),
]
Cycles = Annotated[
    Positive,
    _where(lambda cycles: 1e-6 <= cycles <= 1e15, "cycles per sample are from 1e-6 to 1e15"),
]
Capacitance = Annotated[
    Positive,
    _where(lambda kappa: 1e-60 <= kappa <= 1, "a capacitance is from 1e-60 to 1 W s^3"),
]
Energy = Annotated[
    _Number,
    _where(lambda joules: joules <= 1e30, "an energy is at most 1e30 J"),
    _where(
        lambda joules: joules >= 0, "an energy is not negative; leave it empty if it is not known"
    ),
]
Name = Annotated[str, BeforeValidator(_name)]
Text = Annotated[str, BeforeValidator(_text)]


def first_fault(error: ValidationError) -> tuple[str, str]:
    """The column of the first error in a row, and the sentence about it."""
    first = error.errors(include_url=False)[0]
    return first["ctx"]["column"] or str(first["loc"][-1]), first["ctx"]["text"]
