"""Places on the earth as metres on a local plane, and the file of base stations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from camu.arrays import Float64
from camu.errors import InputError, suggest
from camu.files import to_csv
from camu.world.tables import Table, read_table

FARTHEST_M = 500_000.0  # from the origin; farther away the plane is no longer a fair picture
MOST_STATIONS = 200
_STATION_HEIGHT_M = 10.0
_COLUMNS = ("id", "x", "y", "z", "latitude", "longitude")

_EQUATOR_M = 6_378_137.0  # WGS 84
_ECCENTRICITY = 6.694379990141e-3  # squared


class Origin(NamedTuple):
    """The point of the earth that is (0, 0) on the plane, in degrees."""

    latitude: float
    longitude: float

    @classmethod
    def amid(cls, latitude: Float64, longitude: Float64) -> Origin:
        """The median latitude and longitude of places; they may lie across the date line."""
        known = ~np.isnan(latitude)
        first = float(longitude[known][0])
        east = first + float(np.median(_turned(longitude[known] - first)))
        return cls(float(np.median(latitude[known])), float(_turned(np.array(east))))

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


def to_metres(
    table: Table, origin: Origin, latitude: Float64, longitude: Float64
) -> tuple[Float64, Float64]:
    """Metres to the east and to the north of the origin; rows that are too far away are refused."""
    east, north = origin.metres(latitude, longitude)
    far = np.nan_to_num(np.hypot(east, north))
    for row in table.sound_rows(far > FARTHEST_M):
        table.fail(
            row,
            "latitude",
            f"{latitude[row]:g}, {longitude[row]:g} is {far[row] / 1000:.0f} km from the middle of "
            f"the fleet; at most {FARTHEST_M / 1000:g} km can be; check signs and order",
        )
    return east, north


def station_ids(path: str | Path) -> tuple[str, ...]:
    """The names of the base stations in a file, in its order."""
    return read_table(Path(path)).ids()


def read_stations(path: str | Path, origin: Origin | None) -> Float64:
    """Positions (S, 3), metres, of the base stations in a CSV or JSON file: id, x, y, z.

    latitude and longitude may replace x and y where the devices have them too: `origin` is the
    point of the earth that the devices' metres are counted from.
    """
    table = read_table(Path(path))
    if not table.rows:
        raise InputError(f"{path}: holds 0 base stations; write at least one row below the header")
    if len(table.rows) > MOST_STATIONS:
        raise InputError(
            f"{path}: holds {len(table.rows)} base stations; at most {MOST_STATIONS} can be"
        )
    for name in table.columns:
        if name not in _COLUMNS:
            hint = suggest(name, _COLUMNS) or "; leave it out"
            raise InputError(
                f"{path}, column {name}: is not known{hint}; there are {', '.join(_COLUMNS)}"
            )
    table.ids()
    x, y, z, latitude, longitude = (table.numbers(name) for name in _COLUMNS[1:])
    table.refuse_half("x", "y", x, y)
    table.refuse_half("latitude", "longitude", latitude, longitude)
    in_degrees = ~np.isnan(latitude)
    rule = "give x and y in metres, or latitude and longitude"
    table.refuse(np.isnan(x) != in_degrees, "x", rule)
    if in_degrees.any():
        if origin is None:
            table.fail(
                int(np.argmax(in_degrees)),
                "latitude",
                "the devices are placed in metres; write x and y here, or latitude and longitude "
                "in the fleet file",
            )
        assert origin is not None  # the table is refused at once
        east, north = to_metres(table, origin, latitude, longitude)
        x, y = np.where(in_degrees, east, x), np.where(in_degrees, north, y)
    return np.column_stack([x, y, np.where(np.isnan(z), _STATION_HEIGHT_M, z)])


def stations_csv(stations: Float64, names: Sequence[str] = ()) -> str:
    """Base stations (S, 3) as a file that reads back as the same, in metres; with their names."""
    ids = names or [f"station-{k}" for k in range(len(stations))]
    rows = ([name, *place] for name, place in zip(ids, stations.tolist(), strict=True))
    return to_csv([["id", "x", "y", "z"], *rows])
