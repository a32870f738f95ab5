"""Compose a configuration from layers: a TOML file, a preset and single settings.

Each layer goes over the one before. Wrong names and values are refused with the layer that set
them, the key, and what would be right.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from camu.config.keys import accepted_values, section_fields
from camu.config.schema import Config
from camu.errors import InputError

PRESETS = ("demo", "paper", "study", "literal")
DEFAULT_PRESET = "demo"

Layer = tuple[str, Mapping[str, Any]]


def load_config(
    file: str | Path | None = None,
    preset: str | None = None,
    settings: Iterable[str] = (),
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """Compose a TOML file, a preset, settings and overrides, each over the one before.

    `settings` are texts ``section.key=value``; `overrides` map ``section.key`` to a Python value.
    With neither a file nor a preset, the preset is ``demo``.
    """
    layers: list[Layer] = []
    if file is not None:
        layers.append((str(file), _read_toml(Path(file))))
    if preset is None and file is None:
        preset = DEFAULT_PRESET
    if preset is not None:
        layers.append((f"preset {preset}", read_preset(preset)))
    layers.extend((f"--set {text}", _parse_setting(text)) for text in settings)
    layers.append(("overrides", _nested(overrides)))
    return compose(layers)


def read_preset(name: str) -> dict[str, Any]:
    """The keys that a preset sets."""
    if name not in PRESETS:
        raise InputError(
            f"--preset {name}: no such preset{_nearest(name, PRESETS)}; "
            f"there are {', '.join(PRESETS)}. A file of your own goes with -c FILE."
        )
    text = (resources.files("camu.config.presets") / f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


def compose(layers: Iterable[Layer], base: Config | None = None) -> Config:
    """Merge the layers over `base` (or the defaults), remembering which layer set each key."""
    merged: dict[str, Any] = base.model_dump(exclude_none=True) if base else {}
    origin: dict[str, str] = {}
    for source, layer in layers:
        _check_names(layer, source)
        for section, keys in layer.items():
            target = merged.setdefault(section, {})
            for key, value in keys.items():
                origin.pop(f"{section}.{key}", None)  # the last layer that sets a key comes last
                origin[f"{section}.{key}"] = source
                if value is None:
                    target.pop(key, None)
                elif isinstance(value, Mapping):  # scheme.parameters: set one by one
                    whole = {**target.get(key, {}), **value}
                    target[key] = {name: each for name, each in whole.items() if each is not None}
                else:
                    target[key] = value
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise InputError(_explain(error, origin)) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a TOML file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{path}: is not valid TOML: {error}; `camu config show` prints a valid one"
        ) from None


def _parse_setting(text: str) -> dict[str, Any]:
    """``section.key=value`` with the value read as TOML; a bare word is text, ``none`` unsets."""
    name, equals, raw = text.partition("=")
    section, _, key = name.strip().partition(".")
    if not (equals and section and key):
        raise InputError(f"--set {text}: write section.key=value, for example run.rounds=50")
    raw = raw.strip()
    value: Any
    if raw.lower() == "none":
        value = None
    else:
        try:
            value = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            value = raw
    return _nested({f"{section}.{key}": value})


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Sections with their keys, from ``section.key`` and ``scheme.parameters.name``."""
    layer: dict[str, Any] = {}
    for name, value in flat.items():
        section, _, key = name.partition(".")
        keys = layer.setdefault(section, {})
        if section == "scheme" and key.startswith("parameters."):
            keys.setdefault("parameters", {})[key.removeprefix("parameters.")] = value
        else:
            keys[key] = value
    return layer


def _check_names(layer: Mapping[str, Any], source: str) -> None:
    """Refuse unknown sections and keys, and say which known one is nearest."""
    for section, keys in layer.items():
        if section not in Config.model_fields:
            raise InputError(
                f"{source}: unknown section `{section}`{_nearest(section, Config.model_fields)}; "
                f"sections are {', '.join(Config.model_fields)}"
            )
        if not isinstance(keys, Mapping):
            raise InputError(
                f"{source}: `{section}` is a section; write [{section}] with keys below it"
            )
        known = section_fields(section)
        for key in keys:
            if key not in known:
                elsewhere = [s for s in Config.model_fields if key in section_fields(s)]
                hint = (
                    f"; did you mean `{elsewhere[0]}.{key}`?"
                    if elsewhere
                    else _nearest(key, known, prefix=f"{section}.")
                )
                raise InputError(
                    f"{source}: unknown key `{section}.{key}`{hint}"
                    f" (`camu config keys {section}` lists the keys)"
                )


def _nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean `{prefix}{close[0]}`?" if close else ""


def _explain(error: ValidationError, origin: Mapping[str, str]) -> str:
    """One sentence per wrong value: the layer that set it, the key, the value, what is accepted."""
    lines = []
    for item in error.errors(include_url=False):
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
            field = section_fields(where[0]).get(where[1]) if len(where) > 1 else None
            wanted = item["msg"] + (f"; accepted: {accepted_values(field)}" if field else "")
        lines.append(f"{source}: {name} = {item['input']!r}: {wanted}")
    return "\n".join(dict.fromkeys(lines))


def _blame(keys: Iterable[str], origin: Mapping[str, str]) -> str:
    """The layer that set a wrong value: for a rule over several keys, the last that set one."""
    named = [source for key, source in origin.items() if key in keys]
    return named[-1] if named else "configuration"


def replace(config: Config, changes: Mapping[str, Any]) -> Config:
    """A validated copy with keys replaced, for example ``replace(config, {"run.seed": 3})``."""
    return compose([("replace", _nested(changes))], base=config)
