"""The document of a problem P2: its keys, what each value may be, and errors that name them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from camu.errors import InputError, suggest

MOST_UPDATES, MOST_ROUNDS = 100, 100_000
SMALLEST, LARGEST = 1e-40, 1e30  # products of several such numbers still are floats
Positive = Annotated[float, Field(strict=True, ge=SMALLEST, le=LARGEST)]
FromZero = Annotated[float, Field(strict=True, ge=0, le=LARGEST)]


class DeviceEntry(BaseModel):
    """One entry of `clusters[].devices`."""

    model_config = ConfigDict(extra="forbid")

    cycles: Positive
    capacitance: FromZero
    max_hz: Positive


class HorizonCluster(BaseModel):
    """One entry of `clusters`."""

    model_config = ConfigDict(extra="forbid")

    weight: Positive
    divergence: FromZero
    dissimilarity: FromZero
    variance: FromZero = 0.0
    gain: Positive
    bandwidth_hz: Positive
    gather_seconds: FromZero
    gather_joules: FromZero
    max_updates: Annotated[int, Field(strict=True, ge=1, le=MOST_UPDATES)]
    max_power_watts: Positive
    devices: list[DeviceEntry] = Field(min_length=1)


class HorizonDocument(BaseModel):
    """The whole document."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["P2"]
    clusters: list[HorizonCluster] = Field(min_length=1)
    noise_watts: Positive
    payload_bits: Positive
    convexity: Positive
    smoothness: Positive
    learning_rate: Positive
    initial_gap: Positive
    energy_joules: Positive
    seconds: Positive
    max_rounds: Annotated[int, Field(strict=True, ge=1, le=MOST_ROUNDS)] = 10_000
    origin: dict[str, str] = {}


PER_CLUSTER = tuple(name for name in HorizonCluster.model_fields if name != "devices")
TOP = tuple(
    name for name in HorizonDocument.model_fields if name not in ("kind", "clusters", "origin")
)


def read_horizon(document: object, source: str) -> dict[str, Any]:
    """The fields of a `HorizonProblem` from the parsed document."""
    try:
        found = HorizonDocument.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error)}") from None
    clusters = found.clusters
    columns = {name: np.array([getattr(one, name) for one in clusters]) for name in PER_CLUSTER}
    devices = [(c, device) for c, one in enumerate(clusters) for device in one.devices]
    return {
        **columns,
        "cluster": np.array([c for c, _ in devices]),
        "cycles": np.array([device.cycles for _, device in devices]),
        "capacitance": np.array([device.capacitance for _, device in devices]),
        "max_hz": np.array([device.max_hz for _, device in devices]),
        **{name: getattr(found, name) for name in TOP},
        "origin": found.origin,
    }


def _explain(error: ValidationError) -> str:
    """One sentence about the first mistake; unknown keys come first, they may be typing errors."""
    mistakes = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    first = mistakes[0]
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]]
    key = "".join(parts).removeprefix(".") or "the document"
    if first["type"] == "extra_forbidden":
        depth = sum(isinstance(part, int) for part in first["loc"])
        model = (HorizonDocument, HorizonCluster, DeviceEntry)[depth]
        known = list(model.model_fields)
        hint = suggest(str(first["loc"][-1]), known) or f"; known keys are {', '.join(known)}"
        return f"{key} is not a known key{hint}"
    if first["type"] == "missing":
        return f"{key} is missing"
    said = first["msg"].removeprefix("Input should be ")
    return f"{key} is {first['input']!r:.40}; it must be {said}"


def check_range(source: str, name: str, values: ArrayLike) -> None:
    """Refuse numbers that the document could not have, also in problems that Python code builds."""
    field = (HorizonCluster if name in PER_CLUSTER else HorizonDocument).model_fields[name]
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    zero = field.annotation is float and any(
        getattr(rule, "ge", None) == 0 for rule in field.metadata
    )
    good = np.isfinite(array) & (array <= LARGEST) & ((array >= SMALLEST) | (zero & (array >= 0)))
    if not good.all():
        index = int(np.argmin(good))
        place = f"clusters[{index}].{name}" if name in PER_CLUSTER else name
        kind = "number that is not negative" if zero else "positive number"
        raise InputError(
            f"{source}: {place} is {array[index]:g}; it must be a {kind} of at most {LARGEST:g}"
        )
