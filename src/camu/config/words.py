"""The keys of the configuration in words: lists, the page on configuration, accepted values."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "a table",
}
_LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


_INTRODUCTION = """# Configuration

Every key of a configuration file, printed by `camu config keys --markdown`. Set a key in a TOML
file under its section, or with `--set section.key=value`.

A preset comes first, then the file (`-c FILE`), then `--set`; each goes over the one before. A file
names its preset in its first line, `extends = "paper"`, or `--preset` does. A file without a preset
starts from the defaults below; with neither a file nor a preset, the preset is `demo`.
`camu config show` prints the result.

Each key is given with its default and, in parentheses, what it accepts."""


@dataclass(frozen=True)
class Key:
    """One key: section, name, default, accepted values and meaning."""

    section: str
    name: str
    default: str
    accepts: str
    meaning: str


def describe_keys(model: type[BaseModel]) -> list[Key]:
    """All keys of a configuration model, section by section."""
    return [
        Key(section, name, _default(key["default"]), accepted_values(key), key["description"])
        for section in model.model_fields
        for name, key in section_keys(model, section).items()
    ]


def as_markdown(model: type[BaseModel], keys: list[Key]) -> str:
    """The keys as a Markdown page, a list per section."""
    lines = [_INTRODUCTION]
    for section, field in model.model_fields.items():
        rows = [key for key in keys if key.section == section]
        if rows:
            lines += ["", f"## `{section}`: {field.description}", ""]
        for key in rows:
            text = f"- **`{key.name}`** = `{key.default}` ({key.accepts}). {key.meaning}"
            lines += textwrap.wrap(
                text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines)


def _default(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        if all(isinstance(one, str) for one in value):
            return "[" + ", ".join(value) + "]"
        if isinstance(value[0], dict):
            return " and ".join(f"{region['devices']} in {region['name']}" for region in value)
        return "[" + ", ".join(f"{number:g}" for number in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


@cache
def section_keys(model: type[BaseModel], section: str) -> dict[str, Schema]:
    """The keys of a section by name, each as JSON schema with `unit` and `affects`."""
    properties: dict[str, Schema] = section_model(model, section).model_json_schema()["properties"]
    return properties


def section_model(model: type[BaseModel], section: str) -> type[BaseModel]:
    """The model of a section."""
    kind = model.model_fields[section].annotation
    assert isinstance(kind, type)
    assert issubclass(kind, BaseModel)
    return kind


def accepted_values(key: Schema) -> str:
    """The values that a key accepts, in words: its choices, or its type, limits and unit."""
    kinds = [kind["type"] for kind in key.get("anyOf", [key])]
    own: Schema = next(kind for kind in key.get("anyOf", [key]) if kind["type"] != "null")
    if "enum" in own:
        return " | ".join(own["enum"])
    text = _list_words(own) if own["type"] == "array" else _WORDS[own["type"]]
    limits = [f"{sign} {own[name]:g}" for name, sign in _LIMITS.items() if name in own]
    if limits:
        text += " " + " and ".join(limits)
    if key["unit"] not in ("", "1"):
        text += f", unit {key['unit']}"
    if "or" in own:
        text += f"; or {own['or']}"
    return f"{text}; or none" if "null" in kinds else text


def _list_words(own: Schema) -> str:
    if "prefixItems" in own:
        return f"a list of {own['minItems']} numbers"
    if own["items"].get("type") == "string":
        return "a list of names"
    return "a list of positions [x, y, z]" if "prefixItems" in own["items"] else "a list of regions"
