"""Regions of a fleet, and how many devices are in each."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from camu.config.fields import LARGEST_COORDINATE_M, Section, field, printable, rule_error

MOST_DEVICES = 10_000_000
Metres = Annotated[float, Field(ge=-LARGEST_COORDINATE_M, le=LARGEST_COORDINATE_M)]
Span = tuple[Metres, Metres]
Position = Annotated[tuple[Metres, Metres, Metres], Field(strict=False)]


class Region(Section):
    """A box in which some of the devices are placed at random."""

    name: Annotated[str, printable] = field(
        ..., "Name of the region, shown in plans and maps.", min_length=1, max_length=200
    )
    devices: int = field(..., "Devices placed in this region.", "devices", ge=1, le=MOST_DEVICES)
    x: Span = field(..., "Lowest and highest x coordinate.", "m", strict=False)
    y: Span = field(..., "Lowest and highest y coordinate.", "m", strict=False)
    z: Span = field((0.0, 0.0), "Lowest and highest z coordinate.", "m", strict=False)

    @model_validator(mode="after")
    def _ordered(self) -> Region:
        for axis in ("x", "y", "z"):
            low, high = getattr(self, axis)
            if low > high:
                raise rule_error(f"{axis} = [{low}, {high}]: the first number must not be larger")
        return self


REGIONS = (
    Region(name="Region I", devices=15, x=(-10.0, 0.0), y=(-5.0, 5.0)),
    Region(name="Region II", devices=15, x=(10.0, 20.0), y=(-5.0, 5.0)),
)


def with_devices(values: dict[str, Any]) -> dict[str, Any]:
    """The keys of a fleet whose `devices` and `regions` say the same; `devices` counts if given."""
    try:
        regions = TypeAdapter(tuple[Region, ...]).validate_python(
            values.get("regions", REGIONS), strict=False
        )
    except ValidationError:
        return values  # said where regions are checked
    counts = [region.devices for region in regions]
    wanted = values.get("devices", sum(counts))
    if wanted == sum(counts) or type(wanted) is not int or not counts:
        return {**values, "devices": wanted}
    if not len(counts) <= wanted <= MOST_DEVICES:
        return {**values, "devices": wanted} if wanted > 0 else values
    dealt = _dealt(wanted, counts)
    placed = [
        region.model_copy(update={"devices": own})
        for region, own in zip(regions, dealt, strict=True)
    ]
    return {**values, "regions": tuple(placed)}


def _dealt(wanted: int, counts: list[int]) -> list[int]:
    """So many devices in these proportions, at least one each; the largest remainders get more."""
    shares = [wanted * count / sum(counts) for count in counts]
    found = [max(1, int(share)) for share in shares]
    while sum(found) != wanted:
        off = [share - own for share, own in zip(shares, found, strict=True)]
        if sum(found) < wanted:
            found[off.index(max(off))] += 1
        else:  # regions with a share below one device have one
            found[found.index(max(found))] -= 1
    return found
