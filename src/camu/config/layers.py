"""Layers of settings (presets, files, `--set`), merged into one checked value."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from camu.config.former import FORMER
from camu.config.presets import PRESETS
from camu.config.words import accepted_values, section_keys
from camu.errors import InputError, suggest

_LONGEST_SETTING = 10_000  # characters of a value
# Setting the first of these in a layer replaces the other of the layers below.
_ONE_OF = (
    ("training", "batch_fraction", "batch_samples"),
    ("training", "batch_samples", "batch_fraction"),
    ("fleet", "regions", "devices"),
)
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
            for where, key, other in _ONE_OF:
                if section == where and keys.get(key) is not None and other not in keys:
                    target.pop(other, None)  # the later layer chooses
            for key, value in keys.items():
                origin.pop(f"{section}.{key}", None)  # the last layer that sets a key comes last
                origin[f"{section}.{key}"] = source
                _check_text(f"{source}: {section}.{key}", value)
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


def document_layers(
    source: str, document: Mapping[str, Any], preset: str | None = None
) -> list[Layer]:
    """The layers of the preset that a document extends, or of `preset`, and then its own."""
    own = dict(document)
    extends = own.pop("extends", None)
    if preset is not None and extends not in (None, preset):
        raise InputError(
            f"{source} extends the preset `{extends}`, but --preset is `{preset}`; "
            "leave one of them out"
        )
    below: list[Layer] = []
    if extends is not None:
        below = preset_layers(extends, f"{source}: extends =")
    elif preset is not None:
        below = preset_layers(preset, "--preset")
    return [*below, (source, own)]


def preset_layers(name: Any, source: str) -> list[Layer]:
    """The layers of a preset: those that it extends, and then its own."""
    if name not in PRESETS:
        raise InputError(
            f"{source} {name or repr(name)}: not one of the presets {', '.join(PRESETS)}"
            f"{suggest(str(name), PRESETS)} (a file of your own goes with -c FILE)"
        )
    text = (resources.files("camu.config.presets") / f"{name}.toml").read_text("utf-8")
    return document_layers(f"preset {name}", tomllib.loads(text))


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


def _check_text(where: str, value: Any) -> None:
    """Refuse bytes of a file name that no configuration file could hold."""
    if isinstance(value, str) and value.encode(errors="replace").decode() != value:
        raise InputError(f"{where} = {short(value)}: the name is not UTF-8; rename the file")


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
            if key == "parameters" and not isinstance(keys[key], Mapping | None):
                raise InputError(
                    f"{source}: {section}.{key} = {short(repr(keys[key]))}: this is a table; write "
                    f"{section}.{key}.NAME=VALUE"
                )
            if former := FORMER.get(f"{section}.{key}"):
                raise InputError(f"{source}: `{section}.{key}` {former.now}")
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
            name, wanted = ".".join(where[:3]), "give a number, text, true or false"
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
