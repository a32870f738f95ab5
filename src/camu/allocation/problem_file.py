"""The document PROBLEM.json: its keys, what each value may be, and errors that name them.

Pydantic checks the document's keys and types. The range of a number is checked in one place for
documents and for problems built in Python.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from camu.errors import InputError, suggest

LARGEST, SMALLEST, MAX_EXTRA = 1e30, 1e-30, 1_000_000
Number = Annotated[float, Field(strict=True)]
# numpy has no larger integer; `Problem` checks the range.
Whole = Annotated[int, Field(strict=True, ge=-(10**18), le=10**18)]


class ClusterEntry(BaseModel):
    """One entry of `clusters`."""

    model_config = ConfigDict(extra="forbid")

    weight: Number
    gain: Number
    descent: Number
    compute_joules: Number
    bandwidth_hz: Number
    multi_update: StrictBool
    max_extra_updates: Whole
    max_power_watts: Number | None = None
    penalty: Number = 0.0
    compute_seconds: Number | None = None


class ProblemDocument(BaseModel):
    """The whole document."""

    model_config = ConfigDict(extra="forbid")

    clusters: list[ClusterEntry] = Field(min_length=1)
    noise_watts: Number
    payload_bits: Number
    energy_joules: Number
    max_power_watts: Number | None = None
    max_total_power_watts: Number | None = None
    power_law: Literal["power", "amplitude"] = "power"
    first_update_free: StrictBool = False


class Range(NamedTuple):
    """What a number may be besides positive."""

    zero: bool = False
    negative: bool = False


RANGES = {
    "weight": Range(zero=True),
    "gain": Range(),
    "descent": Range(zero=True, negative=True),
    "compute_joules": Range(zero=True),
    "bandwidth_hz": Range(),
    "max_power_watts": Range(),
    "penalty": Range(zero=True),
    "compute_seconds": Range(),
    "noise_watts": Range(),
    "payload_bits": Range(),
    "energy_joules": Range(),
    "max_total_power_watts": Range(),
}


def read_document(document: object, source: str) -> dict[str, Any]:
    """The fields of a `Problem` from the parsed document, one column per key of a cluster."""
    try:
        found = ProblemDocument.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error)}") from None
    clusters = found.clusters
    values = {
        name: np.array([getattr(cluster, name) for cluster in clusters])
        for name in ClusterEntry.model_fields
        if name not in ("max_power_watts", "compute_seconds")
    }
    top = found.model_dump(exclude={"clusters", "max_power_watts"})
    return {
        **values,
        **top,
        "max_power_watts": _caps(found, source),
        "compute_seconds": _seconds(clusters, source),
    }


def check_numbers(value: ArrayLike, name: str, place: str, source: str) -> None:
    """Refuse numbers out of range; ``place`` names the key, with {} for the cluster's index."""
    zero, negative = RANGES[name]
    array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    size = np.abs(array)
    good = np.isfinite(array) & (size <= LARGEST) & ((size >= SMALLEST) | zero)
    good &= negative | (array >= 0)
    if not good.all():
        index = int(np.argmin(good))
        raise InputError(f"{source}: {place.format(index)} is {array[index]:g}; {accepted(name)}")


def accepted(name: str) -> str:
    """What the value of a key must be, as the end of an error message."""
    if name == "clusters":
        return "it must be a list with at least one cluster"
    if name in ("multi_update", "first_update_free"):
        return "it must be true or false"
    if name == "power_law":
        return 'it must be "power" or "amplitude"'
    if name == "max_extra_updates":
        return f"it must be an integer from 0 to {MAX_EXTRA}"
    zero, negative = RANGES[name]
    kind = "number" if negative else "number that is not negative" if zero else "positive number"
    return f"it must be a finite {kind} of at most {LARGEST:g}"


def shown(value: object) -> str:
    """A wrong value as an error message quotes it."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 40 else text[:37] + "..."


def _caps(found: ProblemDocument, source: str) -> list[float]:
    """The power cap of each cluster's leader: its own, or the one at the top."""
    name, common = "max_power_watts", found.max_power_watts
    if common is not None:
        check_numbers(common, name, name, source)
    own = [common if c.max_power_watts is None else c.max_power_watts for c in found.clusters]
    for index, cap in enumerate(own):
        if cap is None:
            raise InputError(
                f"{source}: clusters[{index}].{name} is missing, and so is {name} for all "
                f"clusters; {accepted(name)}"
            )
    return [cap for cap in own if cap is not None]


def _seconds(clusters: list[ClusterEntry], source: str) -> list[float] | None:
    """The time of one local update of each cluster, or None where no cluster has it."""
    given = [c.compute_seconds for c in clusters if c.compute_seconds is not None]
    if given and len(given) != len(clusters):
        raise InputError(
            f"{source}: compute_seconds is given for {len(given)} of {len(clusters)} "
            "clusters; give it for all or for none"
        )
    return given or None


def _explain(error: ValidationError) -> str:
    """One sentence about the first mistake; unknown keys come first, they may be typing errors."""
    unknown = ("extra_forbidden", "invalid_key")
    mistakes = sorted(error.errors(), key=lambda mistake: mistake["type"] not in unknown)
    kind, place = mistakes[0]["type"], mistakes[0]["loc"]
    name = str(place[-1]) if place else ""
    where = f"{place[0]}[{place[1]}]" if len(place) > 1 else ""
    inside = len(place) > 2 or (kind in unknown and len(place) > 1)
    key = f"{where}.{name}" if inside else name
    model = ClusterEntry if where else ProblemDocument
    if kind in unknown:
        known = list(model.model_fields)
        hint = suggest(name, known) or f"; known keys are {', '.join(known)}"
        return f"{key} is not a known key{hint}"
    if kind == "missing":
        return f"{key} is missing; {accepted(name)}"
    if kind in ("model_type", "model_attributes_type"):
        needed = ", ".join(k for k, field in model.model_fields.items() if field.is_required())
        return f"{where or 'the document'} must be an object with {needed}"
    return f"{key} is {shown(mistakes[0]['input'])}; {accepted(name)}"
