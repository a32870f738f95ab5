"""Keys of the configuration in words, and layers of settings merged into one checked value."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from camu.errors import InputError, suggest

Schema = dict[str, Any]
_LONGEST_SETTING = 10_000  # characters of a value
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "a table",
}
_LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


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
    """The keys as a Markdown page, a table per section."""
    lines = [
        "# Configuration",
        "",
        "Every key of a configuration file, printed by `camu config keys --markdown`. "
        "Set a key in a TOML file under its section, or with `--set section.key=value`.",
        "",
        "A preset comes first, then the file (`-c FILE`), then `--set`; "
        "each goes over the one before. "
        'A file names its preset in its first line, `extends = "paper"`, or `--preset` does. '
        "A file without a preset starts from the defaults below; with neither a file nor a preset, "
        "the preset is `demo`. `camu config show` prints the result.",
    ]
    for section, field in model.model_fields.items():
        rows = [key for key in keys if key.section == section]
        if not rows:
            continue
        lines += ["", f"## `{section}`: {field.description}", ""]
        lines += ["| key | default | accepts | meaning |", "|---|---|---|---|"]
        for key in rows:
            cells = (f"`{key.name}`", f"`{key.default}`", key.accepts, key.meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _default(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        if isinstance(value[0], dict):
            return " and ".join(f"{region['devices']} in {region['name']}" for region in value)
        return "[" + ", ".join(f"{number:g}" for number in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


@cache
def section_keys(model: type[BaseModel], section: str) -> dict[str, Schema]:
    """The keys of a section by name, each as JSON schema with `unit` and `decides`."""
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
    return f"{text}; or none" if "null" in kinds else text


def _list_words(own: Schema) -> str:
    if "prefixItems" in own:
        return f"a list of {own['minItems']} numbers"
    return "a list of positions [x, y, z]" if "prefixItems" in own["items"] else "a list of regions"


Layer = tuple[str, Mapping[str, Any]]  # what set it, and its sections
Model = TypeVar("Model", bound=BaseModel)


def compose(
    model: type[Model], layers: Iterable[Layer], base: Mapping[str, Any] | None = None
) -> Model:
    """The layers merged over `base`, as a validated `model`.

    A value of None unsets a key. Tables (``scheme.parameters``) are merged key by key.
    """
    merged = {section: dict(keys) for section, keys in (base or {}).items()}
    origin: dict[str, str] = {}
    for source, layer in layers:
        _check_names(model, layer, source)
        for section, keys in layer.items():
            target = merged.setdefault(section, {})
            for key, value in keys.items():
                origin.pop(f"{section}.{key}", None)  # the last layer that sets a key comes last
                origin[f"{section}.{key}"] = source
                if value is None:
                    target.pop(key, None)
                elif isinstance(value, Mapping):
                    below = target.get(key)
                    whole = {**(below if isinstance(below, Mapping) else {}), **value}
                    target[key] = {name: each for name, each in whole.items() if each is not None}
                else:
                    target[key] = value
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise InputError(_explain(model, error, origin)) from None


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The document of a TOML text; `source` names it in the error."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
    except ValueError:  # Python refuses whole numbers of thousands of digits
        reason = "a number is too long"
    except RecursionError:
        reason = "it is nested too deeply"
    raise InputError(
        f"{source}: is not valid TOML: {reason}; `camu config show` prints a valid one"
    )


def parse_setting(text: str) -> dict[str, Any]:
    """``section.key=value`` with the value read as TOML; a bare word is text, ``none`` unsets."""
    name, equals, raw = text.partition("=")
    section, _, key = name.strip().partition(".")
    if not (equals and section and key):
        raise InputError(f"--set {short(text)}: write section.key=value, for example run.rounds=50")
    if len(raw) > _LONGEST_SETTING or not text.isprintable():
        raise InputError(
            f"--set {short(text)}: the value is longer than {_LONGEST_SETTING} characters, or has "
            "some that cannot be printed; set it in a file with -c FILE"
        )
    try:
        return nested({f"{section}.{key}": parse_value(raw)})
    except (ValueError, RecursionError):
        raise InputError(
            f"--set {short(text)}: a number in it is too long, or it is nested too deeply"
        ) from None


def parse_value(text: str) -> Any:
    """A value as TOML writes it; a bare word is text, and ``none`` is None."""
    raw = text.strip()
    if raw.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Sections with their keys, from ``section.key`` and ``scheme.parameters.name``."""
    layer: dict[str, Any] = {}
    for name, value in flat.items():
        section, _, key = name.partition(".")
        keys = layer.setdefault(section, {})
        if section == "scheme" and key.startswith("parameters."):
            keys["parameters"] = {
                **(keys.get("parameters") or {}),
                key.removeprefix("parameters."): value,
            }
        else:
            keys[key] = value
    return layer


def _check_names(model: type[BaseModel], layer: Mapping[str, Any], source: str) -> None:
    """Refuse unknown sections and keys, and suggest a known one."""
    sections = model.model_fields
    for section, keys in layer.items():
        if section not in sections:
            hint = (
                "; did you mean `extends`?" if section == "preset" else suggest(section, sections)
            )
            raise InputError(
                f"{source}: unknown section `{section}`; sections are {', '.join(sections)}{hint}"
            )
        if not isinstance(keys, Mapping):
            raise InputError(
                f"{source}: `{section}` is a section; write [{section}] with keys below it"
            )
        known = section_keys(model, section)
        for key in keys:
            if key not in known:
                elsewhere = [s for s in sections if key in section_keys(model, s)]
                hint = (
                    f"; did you mean `{elsewhere[0]}.{key}`?"
                    if elsewhere
                    else suggest(key, known, prefix=f"{section}.")
                )
                raise InputError(
                    f"{source}: unknown key `{section}.{key}`{hint}"
                    f" (`camu config keys {section}` lists the keys)"
                )


def _explain(model: type[BaseModel], error: ValidationError, origin: Mapping[str, str]) -> str:
    """One sentence per wrong value: the layer that set it, the key, the value, what is accepted."""
    lines = []
    found = error.errors(include_url=False)
    for item in found:
        own = item["loc"]
        if item["type"] == "too_short" and any(
            own == o["loc"][: len(own)] != o["loc"] for o in found
        ):
            continue  # only because an item of the list is wrong, which is said
        where = [str(part) for part in item["loc"]]
        name = ".".join(where)
        if item["type"] == "rule":
            keys = item["ctx"]["keys"] or [".".join(where[:2])]
            place = "" if item["ctx"]["keys"] else f"{name}: "
            lines.append(f"{_blame(keys, origin)}: {place}{item['msg']}")
            continue
        source = _blame([".".join(where[:2])], origin)
        if where[:2] == ["scheme", "parameters"] and len(where) > 2:
            name, wanted = ".".join(where[:3]), "give a finite number, text, true or false"
        else:
            key = section_keys(model, where[0]).get(where[1]) if len(where) > 1 else None
            wanted = item["msg"] + (f"; accepted: {accepted_values(key)}" if key else "")
        lines.append(f"{source}: {name} = {short(repr(item['input']))}: {wanted}")
    return "\n".join(dict.fromkeys(lines))


def short(text: str) -> str:
    """A user's text as a message quotes it: not too long, and without control characters."""
    text = text if len(text) <= 200 else f"{text[:160]}…"
    return text if text.isprintable() else ascii(text)


def _blame(keys: Iterable[str], origin: Mapping[str, str]) -> str:
    """The layer that set a wrong value: for a rule over several keys, the last that set one."""
    named = [source for key, source in origin.items() if key in keys]
    return named[-1] if named else "configuration"
