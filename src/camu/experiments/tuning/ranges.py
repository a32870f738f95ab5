"""What is searched: the ranges of a scheme, those that users give, and the budgets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camu.config import Config
from camu.config.layers import parse_value
from camu.errors import InputError, suggest
from camu.schemes.catalogue import ALIASES
from camu.schemes.registry import field_names, find_scheme, make_scheme
from camu.schemes.tunable import LOG, Between, OneOf, Range, read_range, tunable_of
from camu.schemes.variants import Variant, keys_of

# What a budget is of, with the key that makes a run go on until it is spent.
LEAST = {
    "joules": "run.min_joules",
    "seconds": "run.min_virtual_seconds",
    "megabytes": "run.min_megabytes",
}
_SYNTAX = "write KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=A,B,C, with SCHEME@ before it for one scheme"


@dataclass(frozen=True)
class Budget:
    """So many joules, virtual seconds or megabytes: the score is that of the model by then."""

    axis: str
    amount: float

    def __str__(self) -> str:
        return f"{self.axis}={self.amount:g}"


@dataclass(frozen=True)
class Asked:
    """A range that a user gave, for all schemes or for one; None takes the range away."""

    scheme: str | None
    key: str
    range: Range | None
    text: str  # as it was written


def read_budgets(given: Mapping[str, float] | Iterable[str] | None, config: Config) -> list[Budget]:
    """The budgets in their order: of a mapping, of texts `joules=500`, or of the configuration."""
    if isinstance(given, Mapping):
        found = [_budget(axis, amount, f"{axis}={amount}") for axis, amount in given.items()]
    else:
        found = [
            _budget(axis.strip(), parse_value(amount), part.strip())
            for text in given or ()
            for part in text.split(",")
            for axis, _, amount in [part.partition("=")]
        ]
    if not found:
        values = config.flat()
        found = [Budget(axis, values[key]) for axis, key in LEAST.items() if values[key]]
    if not found:
        raise InputError("--budget: say at what schemes are judged, for example --budget joules=50")
    if len(set(found)) < len(found):
        raise InputError(f"--budget {', '.join(map(str, found))}: one is given twice")
    return found


def _budget(axis: str, amount: Any, text: str) -> Budget:
    number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if axis not in LEAST or not number or not (math.isfinite(amount) and amount > 0):
        raise InputError(
            f"--budget {text}: write {', '.join(LEAST)} = a number above 0, for example joules=50"
        )
    return Budget(axis, float(amount))


def read_asked(texts: Iterable[str]) -> list[Asked]:
    """The ranges of a command line: `training.learning_rate=0.01:1:log`, `camu@x=1,2,4`."""
    return [_asked(text) for text in texts]


def asked_of(ranges: Mapping[str, Any]) -> list[Asked]:
    """The ranges of a program, written as in `tunable`."""
    return [
        Asked(None, key, None if given is None else read_range(given, f"range {key}"), key)
        for key, given in ranges.items()
    ]


def _asked(text: str) -> Asked:
    name, equals, given = text.partition("=")
    scheme, _, key = (part.strip() for part in name.rpartition("@"))
    if not (equals and key and given.strip()):
        raise InputError(f"--range {text}: {_SYNTAX}")
    where = f"--range {text}"
    if given.strip().lower() == "none":
        return Asked(scheme or None, key, None, where)
    parts = [part.strip() for part in given.split(":")]
    if len(parts) == 1:
        found = read_range([parse_value(part) for part in given.split(",")], where)
    elif len(parts) in (2, 3) and parts[2:] in ([], [LOG]):
        found = read_range((*map(parse_value, parts[:2]), *parts[2:]), where)
    else:
        raise InputError(f"{where}: {_SYNTAX}")
    return Asked(scheme or None, key, found, where)


def spaces_of(variants: Sequence[Variant], asked: Sequence[Asked]) -> list[dict[str, Range]]:
    """What is searched of each scheme: its own ranges, changed by those that were asked for.

    A range that belongs to none of the schemes is refused, and so is an end that the scheme or the
    configuration does not take.
    """
    for one in asked:
        _check_place(one, variants)
    return [_space_of(variant, asked) for variant in variants]


def _check_place(one: Asked, variants: Sequence[Variant]) -> None:
    names = list(dict.fromkeys(variant.name for variant in variants))
    if one.scheme is not None and not any(_same(one.scheme, name) for name in names):
        raise InputError(
            f"{one.text}: {one.scheme} is not among the schemes{suggest(one.scheme, names)}"
        )
    own = [name for name in names if one.scheme is None or _same(one.scheme, name)]
    known = {field for name in own for field in field_names(name)}
    if "." not in one.key and one.key not in known:
        raise InputError(
            f"{one.text}: {' and '.join(own)} has no parameter {one.key}"
            f"{suggest(one.key, known)}; a key of the configuration has its section before it"
        )


def _same(scheme: str, name: str) -> bool:
    return ALIASES.get(scheme, scheme) == ALIASES.get(name, name)


def _space_of(variant: Variant, asked: Sequence[Asked]) -> dict[str, Range]:
    given = given_with(variant)
    space = {k: r for k, r in tunable_of(find_scheme(variant.name)).items() if k not in given}
    for one in asked:
        if one.scheme is not None and not _same(one.scheme, variant.name):
            continue
        if "." not in one.key and one.key not in field_names(variant.name):
            continue  # another scheme's
        if one.key in given:
            raise InputError(f"{one.text}: --schemes {variant.word} has a value of it already")
        space.pop(one.key, None)
        if one.range is not None:
            _check_ends(variant, one)
            space[one.key] = one.range
    if not space:
        raise InputError(f"{variant.label}: nothing is left to tune; give a --range")
    return space


def given_with(variant: Variant) -> list[str]:
    """The keys that `--schemes NAME@KEY=VALUE` sets: they are not searched."""
    return [part.partition("=")[0].strip() for part in variant.word.split("@")[1:]]


def _check_ends(variant: Variant, one: Asked) -> None:
    found = one.range
    assert found is not None
    for value in (found.low, found.high) if isinstance(found, Between) else found.values:
        try:
            make_scheme(variant.config.replace(keys_of(variant.name, {one.key: value})))
        except InputError as error:
            raise InputError(f"{one.text}: {str(error).removeprefix('replace: ')}") from None


def configured(variant: Variant, space: Mapping[str, Range]) -> dict[str, Any]:
    """The values of these keys before they are tuned."""
    keys, own = variant.config.flat(), make_scheme(variant.config)
    return {key: keys[key] if "." in key else getattr(own, key) for key in space}


def inside(space: Mapping[str, Range], settings: Mapping[str, Any]) -> bool:
    """Whether settings are in the ranges."""
    return all(
        found.holds(settings[key])
        and not (isinstance(found, Between) and found.whole and settings[key] != int(settings[key]))
        for key, found in space.items()
    )


def spread(space: Mapping[str, Range], shares: Sequence[float]) -> dict[str, Any]:
    """The settings at these places between 0 and 1 of each range."""
    return {
        key: _at(found, share) for (key, found), share in zip(space.items(), shares, strict=True)
    }


def _at(found: Range, share: float) -> Any:
    if isinstance(found, OneOf):
        return found.values[min(int(share * len(found.values)), len(found.values) - 1)]
    low, high = float(found.low), float(found.high)
    if found.whole:  # each whole number has the half steps around it
        low, high = low - 0.5, high + 0.5
    value = low * (high / low) ** share if found.log else low + share * (high - low)
    return min(max(round(value), int(found.low)), int(found.high)) if found.whole else value


def tidy(space: Mapping[str, Range], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with numbers that people can copy: four digits, within their ranges."""
    found = dict(settings)
    for key, own in space.items():
        if isinstance(own, Between) and not own.whole:
            found[key] = min(max(float(f"{settings[key]:.4g}"), float(own.low)), float(own.high))
    return found
