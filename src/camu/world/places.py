"""Places on the earth as metres on a local plane, and the file of base stations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from camu.arrays import Float64
from camu.errors import InputError, suggest
from camu.world.cells import (
    EMPTY,
    Coordinate,
    Latitude,
    Longitude,
    Name,
    first_fault,
    refuse,
)
from camu.world.table import Table, read_table
from camu.world.uplinks import MOST_STATIONS

FARTHEST_M = 500_000.0  # from the origin; farther away the plane is no longer a fair picture
ALIASES = {"lat": "latitude", "lon": "longitude"}

_EQUATOR_M = 6_378_137.0  # WGS 84
_ECCENTRICITY = 6.694379990141e-3  # squared


class Origin(NamedTuple):
    """The point of the earth that is (0, 0) on the plane, in degrees."""

    latitude: float
    longitude: float

    @classmethod
    def amid(cls, latitude: Float64, longitude: Float64) -> Origin:
        """The median latitude and longitude of places; they may lie across the date line."""
        first = float(longitude[0])
        east = first + float(np.median(_turned(longitude - first)))
        return cls(float(np.median(latitude)), float(_turned(np.array(east))))

    def metres(self, latitude: Float64, longitude: Float64) -> tuple[Float64, Float64]:
        """Metres to the east and to the north on the plane that touches the earth here."""
        sine = math.sin(math.radians(self.latitude))
        flat = 1.0 - _ECCENTRICITY * sine**2
        east_m = _EQUATOR_M / math.sqrt(flat) * math.cos(math.radians(self.latitude))
        north_m = _EQUATOR_M * (1.0 - _ECCENTRICITY) / flat**1.5
        east = np.radians(_turned(longitude - self.longitude)) * east_m
        return east, np.radians(latitude - self.latitude) * north_m


def _turned(degrees: Float64) -> Float64:
    """The same angles between -180 and 180 degrees."""
    return np.asarray((degrees + 180.0) % 360.0 - 180.0, dtype=np.float64)


def renamed(table: Table) -> Table:
    """The table with short names of columns written out: `lat` is `latitude`."""
    names = {
        name: full
        for name, full in ALIASES.items()
        if name in table.columns and full not in table.columns
    }
    if not names:
        return table
    rows = [{names.get(name, name): cell for name, cell in row.items()} for row in table.rows]
    columns = tuple(names.get(name, name) for name in table.columns)
    return table._replace(columns=columns, rows=rows)


class StationRow(BaseModel):
    """A base station as its row describes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    x: Coordinate = None
    y: Coordinate = None
    z: Coordinate = None
    latitude: Latitude = None
    longitude: Longitude = None

    @model_validator(mode="after")
    def _is_placed(self) -> StationRow:
        if (self.x is None) != (self.y is None):
            refuse(f"{EMPTY}; give x and y", "x" if self.x is None else "y")
        if (self.latitude is None) != (self.longitude is None):
            column = "latitude" if self.latitude is None else "longitude"
            refuse(f"{EMPTY}; give latitude and longitude", column)
        if (self.x is None) == (self.latitude is None):
            refuse("give x and y in metres, or latitude and longitude", "x")
        return self


class Stations(NamedTuple):
    """The base stations of a file: their names and positions in metres (S, 3)."""

    ids: tuple[str, ...]
    positions: Float64


def read_stations(path: str | Path, origin: Origin | None) -> Stations:
    """The base stations in a CSV or JSON file with the columns id, x, y, z.

    latitude and longitude may stand for x and y where the devices have them too: `origin` is the
    point of the earth that the devices' metres are counted from.
    """
    table = renamed(read_table(Path(path)))
    if not table.rows:
        raise InputError(f"{path}: holds 0 base stations; write at least one row below the header")
    if len(table.rows) > MOST_STATIONS:
        raise InputError(
            f"{path}: holds {len(table.rows)} base stations; at most {MOST_STATIONS} can be"
        )
    for name in table.columns:
        if name not in StationRow.model_fields:
            hint = suggest(name, StationRow.model_fields) or "; leave it out"
            raise InputError(
                f"{path}, column {name}: is not known{hint}; "
                f"there are {', '.join(StationRow.model_fields)}"
            )
    rows = [_station(table, number) for number in range(len(table.rows))]
    seen: dict[str, str] = {}
    for row, place in zip(rows, table.places, strict=True):
        if row.id in seen:
            raise InputError(
                f"{path}, {place}, column id: {row.id!r} is already the id of {seen[row.id]}; "
                "ids must differ"
            )
        seen[row.id] = place
    ids = tuple(row.id for row in rows)
    return Stations(ids, np.array([_position(row, path, origin) for row in rows]))


def _station(table: Table, number: int) -> StationRow:
    values: dict[str, Any] = table.rows[number]
    try:
        return StationRow.model_validate(values)
    except ValidationError as error:
        column, text = first_fault(error) if "id" in values else ("id", "is missing; name it")
        place = table.places[number]
        raise InputError(f"{table.path}, {place}, column {column}: {text}") from None


def _position(row: StationRow, path: str | Path, origin: Origin | None) -> list[float]:
    height = 10.0 if row.z is None else row.z
    if row.x is not None and row.y is not None:
        return [row.x, row.y, height]
    assert row.latitude is not None  # the row was checked
    assert row.longitude is not None
    if origin is None:
        raise InputError(
            f"{path}, base station {row.id}, column latitude: the devices are placed in metres; "
            "write x and y here, or latitude and longitude in the fleet file"
        )
    east, north = origin.metres(np.array(row.latitude), np.array(row.longitude))
    distance = math.hypot(float(east), float(north))
    if distance > FARTHEST_M:
        raise InputError(
            f"{path}, base station {row.id}, column latitude: it is {distance / 1000:.0f} km from "
            f"the middle of the fleet; at most {FARTHEST_M / 1000:g} km can be"
        )
    return [float(east), float(north), height]
