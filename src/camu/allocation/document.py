"""PROBLEM.json, and what problems P1 and P2 share.

A problem declares each key of the document once, as a field: the annotation holds what the value
may be and, for arrays, the list of the document in which it stands. The same rules hold for
documents and for problems that Python code builds.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from camu.allocation.shannon import priced_nats
from camu.arrays import AnyArray, Float64
from camu.errors import InputError, suggest
from camu.files import read_json


class Rule(NamedTuple):
    """What the value of a key may be: in words, its types in a document, and which of them."""

    text: str
    types: tuple[type, ...]
    holds: Callable[[Any], Any] = lambda value: True  # of a value, or of each entry of an array
    dtype: type = np.float64

    def accepts(self, value: object) -> bool:
        """Whether a value of a document is allowed."""
        return type(value) in self.types and bool(self.holds(value))


def number(kind: str, least: float = 0.0, zero: bool = True) -> Rule:
    """A number up to 1e30; sizes below 1e-30 other than 0 are beyond any radio."""

    def holds(value: Any) -> Any:
        return (value >= least) & (value <= 1e30) & (zero | (abs(value) >= 1e-30))

    return Rule(f"a finite {kind} of at most 1e+30", (int, float), holds)


def integer(least: int, most: int) -> Rule:
    """A whole number in this range."""

    def holds(value: Any) -> Any:
        return (value >= least) & (value <= most)

    return Rule(f"an integer from {least} to {most}", (int,), holds, np.int64)


def objects(name: str) -> Rule:
    """A list of objects."""
    return Rule(f"a list with at least one {name}", (list,), bool)


class Key(NamedTuple):
    """A key of the document: what its value may be, and its value where it is left out."""

    rule: Rule
    default: Any = MISSING


Keys = dict[str, Key]
POSITIVE = number("positive number", zero=False)
FROM_ZERO = number("number that is not negative")
YES_NO = Rule("true or false", (bool,), dtype=np.bool_)
CLUSTERS, DEVICES = "clusters", "devices"  # lists of the document
ClusterPositive = Annotated[Float64, POSITIVE, CLUSTERS]
ClusterFromZero = Annotated[Float64, FROM_ZERO, CLUSTERS]
Positive = Annotated[float, POSITIVE]
SHARE = Rule("a number above 0, at most 1", (int, float), lambda value: 0 < value <= 1)
_QUIET = ("circuit_watts", "amplifier_efficiency")  # left out of the document where they are usual


@dataclass(frozen=True, eq=False, kw_only=True)
class StatedProblem:
    """A problem with a document: a list of clusters or devices, and numbers of all of them."""

    kind: ClassVar[str]
    rows: ClassVar[str]  # the list of the document
    counted: ClassVar[str]  # the column that says how many there are
    source: str = "problem"  # named in error messages

    @property
    def size(self) -> int:
        """The number of clusters, C, or of devices, K."""
        return int(np.size(getattr(self, self.counted)))

    def __post_init__(self) -> None:
        """Freeze the arrays and refuse every value that the problem gives no meaning."""
        if self.size == 0:
            raise InputError(f"{self.source}: {self.rows} must be {objects(self.rows[:-1]).text}")
        for place, keys in keys_of(type(self)).items():
            for name, (rule, _) in keys.items():
                value = getattr(self, name)
                if place and value is not None:
                    self._freeze(place, name, rule, value)
                elif not (value is None or rule.holds(value)):
                    raise wrong_value(self.source, name, value, rule)
        self._check()

    def _freeze(self, place: str, name: str, rule: Rule, value: ArrayLike) -> None:
        """Check a column of a list and keep it as a read-only array."""
        array: AnyArray = np.array(value, dtype=rule.dtype)
        if place == self.rows:
            if array.size != 1 and array.shape != (self.size,):
                raise InputError(
                    f"{self.source}: {name} has shape {array.shape}, but there are {self.size} "
                    f"numbers in {self.counted}; give one per {place[:-1]}"
                )
            array = np.full(self.size, array)
        wrong = np.flatnonzero(~np.asarray(rule.holds(array)))
        if wrong.size:
            index = int(wrong[0])
            raise wrong_value(self.source, f"{place}[{index}].{name}", array[index].item(), rule)
        array.setflags(write=False)
        object.__setattr__(self, name, array)

    def _check(self) -> None:
        """Refuse values that do not fit each other."""

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """Read PROBLEM.json; errors name the file, the key and the values that are accepted."""
        return cls.from_dict(read_problem_document(path), str(path))

    @classmethod
    @abstractmethod
    def from_dict(cls, document: object, source: str = "problem") -> Self:
        """Build the problem from the parsed document of PROBLEM.json."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AllocationProblem(StatedProblem):
    """What P1 and P2 share: leaders with uplinks, a budget of joules, and the document."""

    rows: ClassVar = CLUSTERS
    counted: ClassVar = "weight"
    common: ClassVar[tuple[str, ...]] = ()  # keys of clusters that may stand at the top, for all
    weight: ClusterFromZero  # G_c
    gain: ClusterPositive  # ||h_c||^2 of the leader's uplink
    bandwidth_hz: ClusterPositive  # B_c
    max_power_watts: ClusterPositive  # the cap of the leader
    noise_watts: Positive  # at the base station
    payload_bits: Positive  # of an update
    energy_joules: Positive  # the budget
    circuit_watts: Annotated[float, FROM_ZERO] = 0.0  # of a leader that sends, amplifier apart
    amplifier_efficiency: Annotated[float, SHARE] = 1.0

    @classmethod
    def from_dict(cls, document: object, source: str = "problem") -> Self:
        """Build the problem from the parsed document of PROBLEM.json."""
        keys = keys_of(cls)
        own = dict(keys[CLUSTERS])
        kind = Rule(json.dumps(cls.kind), (str,), lambda value: value == cls.kind)
        head = {"kind": Key(kind, cls.kind), CLUSTERS: Key(objects("cluster")), **keys[""]}
        if keys[DEVICES]:
            own[DEVICES] = Key(objects("device"))
        shared = {name: Key(own[name].rule, None) for name in cls.common}
        top = read_object(document, {**head, **shared}, "", source)
        del top["kind"]
        for name, (rule, _) in shared.items():
            value = top.pop(name)
            text = f"{rule.text}, here or at the top for all clusters"
            own[name] = Key(rule._replace(text=text), MISSING if value is None else value)
        rows = [
            read_object(row, own, f"{CLUSTERS}[{index}]", source)
            for index, row in enumerate(top.pop(CLUSTERS))
        ]
        if keys[DEVICES]:
            devices = [
                (c, read_object(device, keys[DEVICES], f"{CLUSTERS}[{c}].{DEVICES}[{k}]", source))
                for c, row in enumerate(rows)
                for k, device in enumerate(row.pop(DEVICES))
            ]
            top["cluster"] = [c for c, _ in devices]
            top |= {name: [device[name] for _, device in devices] for name in keys[DEVICES]}
        for name in keys[CLUSTERS]:
            column = [row[name] for row in rows]
            if (left_out := column.count(None)) and left_out < len(column):
                raise InputError(
                    f"{source}: {name} is given for {len(column) - left_out} of {len(column)} "
                    "clusters; give it for all or for none"
                )
            top[name] = None if left_out else column
        return cls(**top, source=source)

    def to_dict(self) -> dict[str, Any]:
        """The document of PROBLEM.json; `from_dict` gives the same problem back."""
        keys = keys_of(type(self))
        top = {name: value for name in keys[""] if (value := getattr(self, name)) != {}}
        for name in _QUIET:
            if top[name] == keys[""][name].default:
                del top[name]
        clusters: list[dict[str, Any]] = [{} for _ in range(self.size)]
        for name, key in keys[CLUSTERS].items():
            column = getattr(self, name)
            if column is None or (key.default is not MISSING and (column == key.default).all()):
                continue
            if name in self.common and (column == column[0]).all():
                top[name] = float(column[0])
                continue
            for row, value in zip(clusters, column.tolist(), strict=True):
                row[name] = value
        if keys[DEVICES]:
            columns = [getattr(self, name).tolist() for name in ("cluster", *keys[DEVICES])]
            for c, *values in zip(*columns, strict=True):
                own = dict(zip(keys[DEVICES], values, strict=True))
                clusters[c].setdefault(DEVICES, []).append(own)
        return {"kind": self.kind, CLUSTERS: clusters, **top}

    @cached_property
    def snr_per_watt(self) -> Float64:
        """The leader's signal-to-noise ratio x_c / p_c."""
        return self.gain / self.noise_watts

    @cached_property
    def base_joules(self) -> Float64:
        """Energy of each leader's amplifier as its power goes to 0: x / ln(1 + x) times this."""
        watts = self.snr_per_watt * self.amplifier_efficiency
        return self.payload_bits * math.log(2) / (self.bandwidth_hz * watts)

    @cached_property
    def cheapest_nats(self) -> Float64:
        """ln(1 + x_c) of the least transmission energy within the cap; 0 without circuit power."""
        if self.circuit_watts == 0:
            return np.zeros(self.size)
        circuit = self.amplifier_efficiency * self.circuit_watts * self.snr_per_watt
        return np.minimum(priced_nats(circuit), np.log1p(self.max_power_watts * self.snr_per_watt))

    @cached_property
    def cheapest_watts(self) -> Float64:
        """The power of the least transmission energy; less is never better. 0: the less, the less.

        It is the cap where that is lower.
        """
        watts = np.expm1(self.cheapest_nats) / self.snr_per_watt
        return np.minimum(watts, self.max_power_watts)

    @cached_property
    def least_joules(self) -> Float64:
        """The infimum of each leader's transmission energy."""
        if self.circuit_watts == 0:
            return self.base_joules
        return self.transmit_joules(self.cheapest_watts)

    def transmit_seconds(self, power_watts: ArrayLike) -> Float64:
        """Each leader's time on the air at the Shannon rate."""
        power = np.asarray(power_watts, dtype=np.float64)
        nats = np.log1p(power * self.snr_per_watt)
        return np.asarray(self.payload_bits * math.log(2) / (self.bandwidth_hz * nats))

    def transmit_joules(self, power_watts: ArrayLike) -> Float64:
        """Each leader's transmission energy: amplifier and circuits during its time on the air."""
        drawn = np.asarray(power_watts, dtype=np.float64) / self.amplifier_efficiency
        return (drawn + self.circuit_watts) * self.transmit_seconds(power_watts)


def keys_of(kind: type[Any]) -> Mapping[str, Keys]:
    """The keys of a problem: those at the top (""), of `clusters[]` and of their `devices[]`."""
    found: dict[str, Keys] = {"": {}, CLUSTERS: {}, DEVICES: {}}
    hints = get_type_hints(kind, include_extras=True)
    for own in fields(kind):
        for hint in (hints[own.name], *get_args(hints[own.name])):  # an optional one is inside
            if marks := getattr(hint, "__metadata__", ()):
                default = own.default if own.default_factory is MISSING else own.default_factory()
                found["".join(marks[1:])][own.name] = Key(marks[0], default)
    return found


def read_problem_document(path: str | Path) -> Any:
    """The parsed text of PROBLEM.json."""
    return read_json(path, "a problem as docs/allocation.md describes")


def read_object(document: object, keys: Keys, place: str, source: str) -> dict[str, Any]:
    """The value of each key; the error names the first key that is wrong, and what it may be."""
    if not isinstance(document, dict):
        needed = ", ".join(name for name, key in keys.items() if key.default is MISSING)
        raise InputError(f"{source}: {place or 'the document'} must be an object with {needed}")
    inside = f"{place}." if place else ""
    for name in document:
        if name not in keys:
            hint = suggest(name, keys) or f"; known keys are {', '.join(keys)}"
            raise InputError(f"{source}: {inside}{name} is not a known key{hint}")
    for name, key in keys.items():
        if name not in document and key.default is MISSING:
            raise InputError(f"{source}: {inside}{name} is missing; it must be {key.rule.text}")
        value = document.get(name)
        if name in document and not (key.rule.accepts(value) or value is key.default is None):
            raise wrong_value(source, inside + name, value, key.rule)
    return {name: document.get(name, key.default) for name, key in keys.items()}


def wrong_value(source: str, place: str, value: object, rule: Rule) -> InputError:
    """The error of a value that is not allowed."""
    text = json.dumps(value, default=repr)
    shown = text if len(text) <= 40 else text[:37] + "..."
    return InputError(f"{source}: {place} is {shown}; it must be {rule.text}")
