"""The base of all sections, their fields, and the error of a rule over several keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import PydanticCustomError, core_schema

from camu.errors import suggest
from camu.installed import Group, import_path, installed
from camu.plugins import HUGGING_FACE, is_path, is_plugin, missing_name

# Limits within which every time, energy and ratio that follows from the numbers is finite.
LARGEST_COORDINATE_M = 1e7
LARGEST_HZ = 1e15
SMALLEST_WATTS, LARGEST_WATTS = 1e-9, 1e6
LARGEST_JOULES = 1e15  # of a battery
LARGEST_GRAMS = 1e6  # of CO2 per kWh
MOST = 10**9  # of anything that is counted
AUTO: Literal["auto"] = "auto"
Count = Annotated[int, Field(ge=1, le=MOST)]
Share = Annotated[float, Field(ge=0, lt=1)]
SchemeName = Annotated[str, AfterValidator(partial(import_path, "schemes"))]
Watts = Annotated[float, Field(ge=SMALLEST_WATTS, le=LARGEST_WATTS)]
Decibels = Annotated[float, Field(ge=-300, le=300)]

# "result": the key changes what a run computes; "stopping": only when it ends, so that a resumed
# run may change it; "none": only how the work is done.
Affects = Literal["result", "stopping", "none"]


def field(
    default: Any, text: str, unit: str = "", affects: Affects = "result", **limits: Any
) -> Any:
    """A field with its sentence, its unit ("" for names and switches) and its limits."""
    extra: dict[str, Any] = {"unit": unit, "affects": affects}
    return Field(default, description=text, json_schema_extra=extra, **limits)


stopping_field = partial(field, affects="stopping")
machine_field = partial(field, affects="none")


def rule_error(text: str, *keys: str) -> PydanticCustomError:
    """The error of a rule over several keys, with the names of these keys."""
    return PydanticCustomError("rule", "{text}", {"text": text, "keys": keys})


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("text", "it has characters that cannot be printed")
    return text


printable = AfterValidator(_check_printable)  # for names that are shown in tables and pictures


@dataclass(frozen=True)
class Choice:
    """One of some names, or with `code` own code as ``module:name``, or with `data` own data.

    What installed packages bring to a `group` is own code by another name.
    """

    names: tuple[str, ...]
    data: bool = False
    code: bool = True
    group: Group | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The schema of a text that is checked."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The names in words."""
        data = ["a path", "hf:NAME"] if self.data else []
        code = ["module:name"] if self.code else []
        return handler(schema) | {"enum": [*self.names, *code, *data]}

    def _check(self, value: str) -> str:
        if self.group:
            value = import_path(self.group, value)
        if value in self.names or (self.code and is_plugin(value)):
            return value
        if self.data and (is_path(value) or value.startswith(HUGGING_FACE)):
            return value
        brought = installed(self.group) if self.group else ()
        hint = suggest(value, [*self.names, *brought])
        if self.data and os.path.exists(value):
            hint = f"; for the path, write ./{value}"
        if self.code and (wrong := missing_name(value)):
            hint = f"; {wrong}"
        raise PydanticCustomError("choice", "no such name{hint}", {"hint": hint})


@dataclass(frozen=True)
class OrAuto:
    """A number between these two, or `auto`."""

    low: float
    high: float

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The schema of a value that is checked."""
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The limits, and the other word."""
        return {"type": "number", "minimum": self.low, "maximum": self.high, "or": AUTO}

    def _check(self, value: Any) -> float | str:
        if value == AUTO:
            return AUTO
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PydanticCustomError("number", "it is neither a number nor `auto`")
        if not self.low <= value <= self.high:
            raise PydanticCustomError("number", "the number is out of range")
        return float(value)


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
