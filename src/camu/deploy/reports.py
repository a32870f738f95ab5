"""A node's report on its devices, and the one check of all JSON that nodes send."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

LARGEST_COUNT = 10**9
LARGEST_PARTITION = 10**6
LONGEST_ID = 200
MOST = 100_000  # devices of a node, and labels
# No conversions (a truth value is not a number), no nan.
STRICT = ConfigDict(strict=True, allow_inf_nan=False)

Value = TypeVar("Value")


class Refusal(Exception):
    """The reason why something from a node is not used."""


@dataclass(frozen=True, config=STRICT)
class DeviceReport:
    """One device: its samples of each label, and its speed."""

    id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
    label_counts: Annotated[
        tuple[Annotated[int, Field(ge=0, le=LARGEST_COUNT)], ...], Field(max_length=MOST)
    ]
    # Measured, for one local update; None: the run did not ask for it.
    update_seconds: Annotated[float, Field(ge=1e-9, lt=1e6)] | None
    snr_db: Annotated[float, Field(ge=-300, le=300)] | None = None  # at the base station, if known
    # Measured joules of one local update, and by what; None: the configured energy model holds.
    update_joules: Annotated[float, Field(gt=0, lt=1e9)] | None = None
    joules_source: Literal["model", "rapl", "meter"] = "model"


@dataclass(frozen=True, config=STRICT)
class Report:
    """A node: its devices, and in a trial the number of its part of the data."""

    devices: Annotated[tuple[DeviceReport, ...], Field(max_length=MOST)]
    partition: Annotated[int, Field(ge=0, le=LARGEST_PARTITION)] | None = None
    key: str = ""  # of the node, as the SuperLink knows it: set by the server
    epsilon: Annotated[float, Field(gt=0, le=1e6)] | None = None  # of noise on the counts
    problem: Annotated[str, Field(max_length=500)] = ""  # why the node cannot take part

    @property
    def name(self) -> str:
        """The node's name; it stays the same after a restart, unlike Flower's node id."""
        if self.partition is not None:
            return f"partition {self.partition}"
        return ", ".join(device.id for device in self.devices)


REPORT = TypeAdapter(Report)
REPORTS = TypeAdapter(tuple[Report, ...])


def parse(kind: TypeAdapter[Value], text: str | bytes, what: str) -> Value:
    """The value that a JSON text describes; a Refusal names the first key that is wrong."""
    try:
        return kind.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refusal(f"{what}: {where + ': ' if where else ''}{first['msg']}") from None


def check_report(report: Report, classes: int) -> Report:
    """The report itself; a Refusal where it does not fit a data set of so many classes."""
    if report.problem:
        raise Refusal(f"it cannot take part: {ascii(report.problem)[1:-1]}")
    if not report.devices and report.partition is None:
        raise Refusal("its report names no device")
    if len({device.id for device in report.devices}) < len(report.devices):
        raise Refusal("its report names a device twice")
    for device in report.devices:
        if len(device.label_counts) != classes or not sum(device.label_counts):
            raise Refusal(
                f"device {device.id}: label_counts must be {classes} whole numbers, not all 0"
            )
    return report
