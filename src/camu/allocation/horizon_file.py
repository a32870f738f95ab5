"""The document of a problem P2: its keys, what each value may be, and errors that name them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from camu.errors import InputError, suggest

if TYPE_CHECKING:
    from camu.allocation.horizon import HorizonProblem

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


PER_CLUSTER = tuple(name for name in HorizonCluster.model_fields if name != "devices")
TOP = tuple(name for name in HorizonDocument.model_fields if name not in ("kind", "clusters"))


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


def check_horizon(problem: HorizonProblem) -> None:
    """Refuse values that P2 gives no meaning, also for problems that are built in Python."""
    for name, model in [(n, HorizonCluster) for n in PER_CLUSTER] + [
        (n, HorizonDocument) for n in TOP
    ]:
        _check_range(problem, name, model)
    source = problem.source
    if problem.size == 0 or np.bincount(problem.cluster, minlength=problem.size).min() == 0:
        raise InputError(f"{source}: every cluster needs at least one device (clusters[].devices)")
    total = float(problem.weight.sum())
    if not math.isclose(total, 1, abs_tol=1e-6):
        raise InputError(
            f"{source}: clusters[].weight add up to {total:.6g}; they must add up to 1"
        )
    if problem.convexity > problem.smoothness:
        raise InputError(f"{source}: convexity must not be larger than smoothness")
    if problem.learning_rate > 2 / problem.smoothness:
        raise InputError(
            f"{source}: learning_rate = {problem.learning_rate:g} is above 2 / smoothness = "
            f"{2 / problem.smoothness:g}, and the bound does not hold there"
        )
    if (most := most_descent(problem)) > 1:
        raise InputError(
            f"{source}: the bound takes {most:.3g} of the gap in one round, more than all of it; "
            "give a smaller convexity, or dissimilarities of at least 1"
        )


def most_descent(problem: HorizonProblem) -> float:
    """No round descends more: every cluster's best number of updates, without noise."""
    counts = np.arange(1, int(problem.max_updates.max()) + 1)[:, None]
    clean, _ = problem.descent_terms(counts, counts)  # nothing is aside where all do as many
    clean = np.where(counts <= problem.max_updates, clean, -np.inf)
    return float(clean.max(axis=0).sum())


def _check_range(problem: HorizonProblem, name: str, model: type[BaseModel]) -> None:
    array = np.atleast_1d(np.asarray(getattr(problem, name), dtype=np.float64))
    zero = model.model_fields[name].annotation is float and any(
        getattr(rule, "ge", None) == 0 for rule in model.model_fields[name].metadata
    )
    good = np.isfinite(array) & (array <= LARGEST) & ((array >= SMALLEST) | (zero & (array >= 0)))
    if not good.all():
        index = int(np.argmin(good))
        place = f"clusters[{index}].{name}" if name in PER_CLUSTER else name
        kind = "number that is not negative" if zero else "positive number"
        raise InputError(
            f"{problem.source}: {place} is {array[index]:g}; it must be a {kind} of at most "
            f"{LARGEST:g}"
        )
