"""The settings of a page: how they are described to it, and how its changes are applied."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from camu.config import Config, keys_affecting
from camu.config.layers import compose, nested
from camu.config.words import accepted_values, section_keys
from camu.errors import InputError
from camu.schemes import SCHEMES, describe
from camu.simulation.manifest import INPUT_FILES
from camu.world.fleet_file import UPLINKS, Fleet
from camu.world.tables import Table

LARGEST_FLEET = 2000
MOST_SCHEMES = 6
# A page reads and writes nothing but its own run directory, and starts nothing on other machines.
FIXED = frozenset(
    (
        *INPUT_FILES,
        "fleet.board",
        "data.directory",
        "data.input_columns",
        "data.target_column",
        "data.label_column",
        "data.device_column",
        "machine.engine",
        "machine.workers",
        "machine.callbacks",
        "scheme.name",
    )
)
SOURCE = "this page"
Coordinate = Annotated[float, Field(ge=-1e7, le=1e7)]
MEASURED = (*UPLINKS, "distance_m")  # holds for the place where it was measured
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY = re.compile(r"\b[a-z_]+\.[a-z0-9_]+\b")


class _Sent(BaseModel):
    """Something that a page sends."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Added(_Sent):
    """A new device that is otherwise like one of the file."""

    id: Annotated[str, Field(min_length=1, max_length=80)]
    like: str
    x: Coordinate
    y: Coordinate


class FleetEdits(_Sent):
    """What a page changed in a fleet file; places are metres on the map."""

    moved: dict[str, tuple[Coordinate, Coordinate]] = Field(default={}, max_length=2000)
    removed: list[str] = Field(default=[], max_length=2000)
    added: list[Added] = Field(default=[], max_length=2000)


class PageState(_Sent):
    """The settings of one page, as differences from the configuration that the server has."""

    model_config = ConfigDict(strict=True)

    changes: dict[str, Any] = {}
    schemes: list[str] = Field(min_length=1, max_length=MOST_SCHEMES)
    fleet: FleetEdits | None = None


def read_state(document: Any) -> PageState:
    """The state that a page sent; InputError where it has another form."""
    try:
        return PageState.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{SOURCE}: {where}: {first['msg']}") from None


def configured(base: Config, state: PageState) -> Config:
    """The configuration of a page; changes go over the server's as a file's would."""
    own = base.flat()
    for key, value in state.changes.items():
        _check_allowed(key, value, own)
    config = compose(Config, [(SOURCE, nested(state.changes))], base.model_dump(exclude_none=True))
    if config.fleet.file is None and config.fleet.devices > LARGEST_FLEET:
        raise InputError(
            f"{SOURCE}: fleet.regions: {config.fleet.devices} devices; a live page shows at most "
            f"{LARGEST_FLEET}; use camu plan for larger fleets"
        )
    if len(set(state.schemes)) < len(state.schemes):
        raise InputError(f"{SOURCE}: scheme.name: a scheme is named twice")
    for name in state.schemes:
        if not _PLAIN.fullmatch(name) and name != base.scheme.name:
            raise InputError(
                f"{SOURCE}: scheme.name = {name[:80]!r}: your own code is named where camu live is "
                "started, with --scheme"
            )
    return config


def _check_allowed(key: str, value: Any, own: Mapping[str, Any]) -> None:
    """Refuse keys that name files or machines, and texts that could name a file or own code."""
    if key in FIXED and value != own.get(key):
        raise InputError(
            f"{SOURCE}: {key}: a page cannot set this; set it where camu live is started"
        )
    known = own.get(key)
    if key.startswith("scheme.parameters."):
        known = own["scheme.parameters"].get(key.removeprefix("scheme.parameters."))
    texts = value.values() if isinstance(value, Mapping) else [value]
    for text in texts:
        if isinstance(text, str) and text != known and not _PLAIN.fullmatch(text):
            raise InputError(
                f"{SOURCE}: {key} = {text[:80]!r}: a page can set plain names only; paths and your "
                "own code are named where camu live is started"
            )


def in_metres(table: Table, fleet: Fleet) -> Table:
    """The table of a fleet with x and y in place of latitude and longitude."""
    if fleet.origin is None:
        return table
    degrees = ("latitude", "longitude")
    places = fleet.devices.positions[:, :2].tolist()
    rows = [
        {name: cell for name, cell in row.items() if name not in degrees}
        | {"x": None if math.isnan(x) else x, "y": None if math.isnan(y) else y}
        for row, (x, y) in zip(table.rows, places, strict=True)
    ]
    columns = (*(name for name in table.columns if name not in degrees), "x", "y")
    return replace(table, columns=columns, rows=rows)


def edited(table: Table, edits: FleetEdits) -> Table:
    """The fleet with its edits; a device elsewhere loses what was measured of its uplink.

    A new device has the other values of the one that it is like.
    """
    rows = {str(row["id"]).strip(): row for row in table.rows}
    places = dict(zip(rows, table.places, strict=True))
    for name in (*edits.removed, *(one.like for one in edits.added)):
        _check_known(name, rows, table)
    for one in edits.added:
        if one.id in places:
            raise InputError(f"fleet.file: the device {one.id!r} is there already")
        rows[one.id] = _placed({**rows[one.like], "id": one.id}, one.x, one.y)
        places[one.id] = f"device {one.id}"
    for name, (x, y) in edits.moved.items():
        _check_known(name, rows, table)
        rows[name] = _placed(rows[name], x, y)
    kept = [name for name in rows if name not in set(edits.removed)]
    if not kept:
        raise InputError("fleet.file: a fleet needs at least one device")
    columns = (*table.columns, *(name for name in ("x", "y") if name not in table.columns))
    return Table(
        table.path, columns, [rows[name] for name in kept], [places[name] for name in kept]
    )


def _check_known(name: str, rows: dict[str, dict[str, Any]], table: Table) -> None:
    if name not in rows:
        raise InputError(f"fleet.file: there is no device {name[:80]!r} in {table.path}")


def _placed(row: dict[str, Any], x: float, y: float) -> dict[str, Any]:
    measured: dict[str, Any] = {name: None for name in MEASURED if name in row}
    return {**row, **measured, "x": x, "y": y}


def faults(error: Exception) -> list[dict[str, str | None]]:
    """Each sentence of an error with the key that it is about; None where it names none."""
    known = keys_affecting("result", "stopping", "none")
    found: list[dict[str, str | None]] = []
    for line in str(error).splitlines():
        text = line.removeprefix(f"{SOURCE}: ")
        key = next((word for word in _KEY.findall(text) if word in known), None)
        found.append({"key": key, "text": text})
    return found


# The main settings: a name, the span of the slider, and whether it is logarithmic.
MAIN: dict[str, tuple[str, float, float, bool]] = {
    "allocation.energy_joules": ("energy budget of a round", 0.05, 50.0, True),
    "clustering.count": ("number of clusters", 1, 500, True),
    "radio.bits_per_parameter": ("bits per parameter", 1, 32, False),
    "fleet.power_watts": ("transmit power", 0.01, 2.0, True),
    "radio.noise_dbm": ("noise", -120.0, -60.0, False),
    "data.noniid_devices": ("Non-IID devices", 0, 30, False),
    "data.labels_per_device": ("labels per device", 1, 10, False),
    "fleet.cpu_hz": ("CPU spread", 0.05e9, 4e9, True),
    "fleet.battery_joules": ("batteries", 0.1, 1000.0, True),
    "run.seed": ("seed", 0, 99, False),
}
# Main settings without a slider.
_CHOICES = {"clustering.leader": "who leads a cluster"}
# The same for parameters of schemes, with their type.
_PARAMETERS = {
    "threshold_quantile": ("threshold, as a quantile", "number", 0.0, 1.0),
    "max_extra_updates": ("most extra updates", "integer", 0, 12),
    "local_updates": ("local updates", "integer", 1, 12),
}
PARAMETER_SLIDERS = {
    key: {"name": name, "type": kind, "slider": {"low": low, "high": high, "log": False}}
    for key, (name, kind, low, high) in _PARAMETERS.items()
}
# Next to the button that trains.
TRAINING = {"run.rounds": "train for", "run.eval_every": "measure every"}
# Set on the map.
_ON_THE_MAP = ("fleet.devices", "fleet.regions", "fleet.positions", "fleet.base_station")


def describe_controls(base: Config, idle: Collection[str] = ()) -> list[dict[str, Any]]:
    """A control per key that a page may set, section by section, in the configuration's order.

    Those that are `idle` change nothing here, and have none.
    """
    values = base.flat()
    found = []
    for section, field in Config.model_fields.items():
        for name, schema in section_keys(Config, section).items():
            key = f"{section}.{name}"
            if key in FIXED or key in _ON_THE_MAP or key in idle or key == "scheme.parameters":
                continue
            control = {
                "key": key,
                "section": section,
                "about": field.description,
                "text": schema["description"],
                "unit": "" if schema["unit"] == "1" else schema["unit"],
                "accepts": accepted_values(schema),
                "base": plain(values[key]),
                **_kind(schema, values[key]),
            }
            if key in MAIN:
                name, low, high, log = MAIN[key]
                control |= {"name": name, "slider": {"low": low, "high": high, "log": log}}
            if key in _CHOICES:
                control |= {"name": _CHOICES[key], "main": True}
            if key in TRAINING:
                control |= {"name": TRAINING[key], "training": True}
            found.append(control)
    order = list(MAIN)
    return sorted(found, key=lambda one: order.index(one["key"]) if one["key"] in MAIN else 99)


def _kind(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    """The type of a control, its choices and whether it may be unset."""
    kinds = schema.get("anyOf", [schema])
    own = next(kind for kind in kinds if kind["type"] != "null")
    optional = any(kind["type"] == "null" for kind in kinds)
    if "enum" in own:
        names = [name for name in own["enum"] if name != "module:name"]
        if isinstance(value, str) and value not in names:
            names.append(value)  # the user's own code, named where the server was started
        return {"type": "choice", "choices": names, "optional": optional}
    return {"type": own["type"], "choices": [], "optional": optional}


def describe_schemes(base: Config) -> list[dict[str, Any]]:
    """The schemes that a page offers, with their parameters."""
    found = []
    for name, kind in SCHEMES.items():
        about = describe(name, kind)
        parameters = {
            key: plain(value)
            for key, value in about["parameters"].items()
            if isinstance(value, bool | int | float | str)
        }
        found.append({key: about[key] for key in ("name", "family", "sentence")})
        found[-1]["parameters"] = parameters
    if base.scheme.name not in SCHEMES:
        own = {"name": base.scheme.name, "family": "your own", "sentence": "Your own."}
        found.append({**own, "parameters": {}})
    return found


def plain(value: Any) -> Any:
    """A value as JSON can hold it: infinity is the word `inf`."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
