"""What a page asks for: changed settings, schemes and fleet edits, checked as a file would be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from camu.config import Config, keys_that_decide
from camu.config.keys import compose, nested
from camu.errors import InputError
from camu.live.fleet_edits import FleetEdits
from camu.simulation.directory import INPUT_FILES

LARGEST_FLEET = 2000
MOST_SCHEMES = 6
# A page reads and writes nothing but its own run directory, and starts nothing on other machines.
FIXED = frozenset(
    (
        *INPUT_FILES,
        "data.directory",
        "run.engine",
        "run.workers",
        "run.tensorboard",
        "run.mlflow",
        "scheme.name",
    )
)
SOURCE = "this page"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY = re.compile(r"\b[a-z_]+\.[a-z0-9_]+\b")


class PageState(BaseModel):
    """The settings of one page, as differences from the configuration that the server has."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

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


def faults(error: Exception) -> list[dict[str, str | None]]:
    """Each sentence of an error with the key that it is about; None where it names none."""
    known = keys_that_decide("bits", "end", "nothing")
    found: list[dict[str, str | None]] = []
    for line in str(error).splitlines():
        text = line.removeprefix(f"{SOURCE}: ")
        key = next((word for word in _KEY.findall(text) if word in known), None)
        found.append({"key": key, "text": text})
    return found
