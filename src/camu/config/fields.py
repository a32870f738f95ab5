"""The base of all sections, their fields, and the error of a rule over several keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

# "bits": the key decides what a run computes; "end": only when it ends, so that a resumed run may
# change it; "nothing": only how the work is done.
Decides = Literal["bits", "end", "nothing"]


def field(default: Any, text: str, unit: str = "", decides: Decides = "bits", **limits: Any) -> Any:
    """A field with its sentence, its unit ("" for names and switches) and its limits."""
    extra: dict[str, Any] = {"unit": unit, "decides": decides}
    return Field(default, description=text, json_schema_extra=extra, **limits)


def broken(text: str, *keys: str) -> PydanticCustomError:
    """The error of a rule over several keys, with the names of these keys."""
    return PydanticCustomError("rule", "{text}", {"text": text, "keys": keys})


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
