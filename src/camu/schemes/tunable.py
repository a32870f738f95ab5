"""What of a scheme is worth tuning: ranges of its parameters, and those that all schemes share.

A scheme names them in `tunable`, by field: `(1, 20, "log")` is from 1 to 20 on a logarithmic
scale, `(0.1, 1.0)` on a linear one, and a list `[0.0, 0.5, 0.9]` has its values. Two whole numbers
mean whole numbers. A key of the configuration, with its section, may be there too. A class adds to
what the classes have that it is made from, and None takes a range away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from camu.errors import InputError
from camu.schemes.contract import Scheme

LOG = "log"


@dataclass(frozen=True)
class Between:
    """Numbers from low to high; whole ones if both are."""

    low: int | float
    high: int | float
    log: bool = False

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', logarithmic' if self.log else ''}"

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Whether a value is in the range."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high


@dataclass(frozen=True)
class OneOf:
    """One of some values."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))

    def holds(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return value in self.values


Range = Between | OneOf

# Of every scheme that does not say otherwise.
COMMON: Mapping[str, Range] = MappingProxyType(
    {
        "training.learning_rate": Between(0.003, 1.0, log=True),
        "training.server_momentum": OneOf((0.0, 0.5, 0.7, 0.9)),
    }
)


def tunable_of(kind: type[Scheme]) -> dict[str, Range]:
    """The ranges of a scheme, the common ones first."""
    found: dict[str, Range] = dict(COMMON)
    for base in reversed(kind.__mro__):
        for key, given in base.__dict__.get("tunable", {}).items():
            found.pop(key, None)
            if given is not None:
                found[key] = read_range(given, f"scheme {kind.__name__}: tunable: {key}")
    return found


def read_range(given: Any, what: str) -> Range:
    """A range as a scheme writes it; `what` names it in errors."""
    if isinstance(given, Between | OneOf):
        return given
    if isinstance(given, list):
        return _one_of(given, what)
    if isinstance(given, tuple) and len(given) in (2, 3) and given[2:] in ((), (LOG,)):
        return _between(given[0], given[1], len(given) == 3, what)
    raise InputError(
        f'{what}: give (low, high), (low, high, "log") or a list of values, not {given!r}'
    )


def _between(low: Any, high: Any, log: bool, what: str) -> Between:
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (low, high)]
    if not all(numbers) or not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"{what}: {low} to {high}: give two numbers, the smaller one first")
    if log and low <= 0:
        raise InputError(f"{what}: {low} to {high}: a logarithmic range begins above 0")
    return Between(low, high, log)


def _one_of(values: Sequence[Any], what: str) -> OneOf:
    if not values or len(set(map(repr, values))) < len(values):
        raise InputError(f"{what}: {list(values)}: give values that all differ")
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise InputError(f"{what}: {list(values)}: give numbers, words, or true and false")
    return OneOf(tuple(values))
