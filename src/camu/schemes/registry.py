"""The schemes by name, and how one is made from the configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from camu.config import Config
from camu.errors import InputError, suggest
from camu.installed import import_path, installed
from camu.plugins import import_object, is_plugin, missing_name, user_code
from camu.schemes.catalogue import ALIASES, SCHEMES
from camu.schemes.contract import Scheme


def find_scheme(name: str) -> type[Scheme]:
    """The class of a scheme, by its name, as PACKAGE.NAME or as ``module:Class``."""
    name = import_path("schemes", ALIASES.get(name, name))
    if name in SCHEMES:
        return SCHEMES[name]
    if wrong := missing_name(name):
        raise InputError(f"scheme.name = {name}: {wrong}")
    if not is_plugin(name):
        raise InputError(
            f"scheme.name = {name}: no such scheme"
            f"{suggest(name, [*SCHEMES, *ALIASES, *installed('schemes')])}; there are "
            f"{', '.join([*SCHEMES, *installed('schemes')])}, or your own as module:Class"
        )
    found = import_object(name, "scheme.name")
    if not isinstance(found, type):
        raise InputError(f"scheme.name = {name}: this is not a class")
    if not issubclass(found, Scheme):
        raise InputError(
            f"scheme.name = {name}: the class is not a scheme; write "
            f"`class {found.__name__}(camu.Scheme)` and give it a method plan(self, world)"
        )
    if inspect.isabstract(found):
        raise InputError(f"scheme.name = {name}: the class has no method plan(self, world)")
    return found


def earlier_name(name: str) -> list[str]:
    """A sentence where a scheme is called by an earlier name."""
    if name not in ALIASES:
        return []
    found = f"scheme.name = {name} is {ALIASES[name]} now"
    if name == "fedavg":
        found += ", one update by everyone; FedAvg with epochs and a share of devices is "
        found += "fedavg-epochs"
    return [found]


def make_scheme(config: Config, name: str | None = None) -> Scheme:
    """The configured scheme.

    Its fields have their own defaults, unless scheme.parameters sets them.

    Parameters:
        config: the configuration.
        name: replaces scheme.name: a name of `camu schemes`, or ``module:Class``.

    Returns:
        The scheme.
    """
    name = name or config.scheme.name
    kind = find_scheme(name)
    known = _fields(kind)
    own = config.scheme.parameters
    if name != config.scheme.name:  # they were given for another scheme
        own = {field.name: own[field.name] for field in known if field.name in own}
    _check_parameters(name, own, {field.name for field in known})
    values = _checked(name, kind, own)
    for field in known:
        required = field.default is MISSING and field.default_factory is MISSING
        if required and field.name not in values:
            raise InputError(f"scheme {name}: set scheme.parameters.{field.name}")
    with user_code(f"scheme {name}", kind):
        return kind(**values)


def configs_for(config: Config, names: Sequence[str]) -> dict[str, Config]:
    """A configuration for each of these schemes, with those of scheme.parameters that it has.

    A parameter that none of the schemes has is refused.
    """
    given = config.scheme.parameters
    known = {name: field_names(name) for name in names}
    _check_parameters(", ".join(names), given, set().union(*known.values()))
    return {
        name: config.model_copy(
            update={
                "scheme": config.scheme.model_copy(
                    update={
                        "name": name,
                        "parameters": {k: v for k, v in given.items() if k in known[name]},
                    }
                )
            }
        )
        for name in names
    }


def describe(name: str, kind: type[Any]) -> dict[str, Any]:
    """Name, family, first sentence, citation, what differs from it, and parameters of a scheme."""
    sentence = (inspect.getdoc(kind) or "").split("\n")[0]
    return {
        "name": name,
        "family": getattr(kind, "family", ""),
        "sentence": sentence,
        "citation": getattr(kind, "citation", ""),
        "simplified": list(getattr(kind, "simplified", ())),
        "choices": list(getattr(kind, "choices", ())),
        "aliases": [old for old, new in ALIASES.items() if new == name],
        "parameters": {field.name: field.default for field in _fields(kind)},
    }


def field_names(name: str) -> set[str]:
    """The names of a scheme's parameters."""
    return {field.name for field in _fields(find_scheme(name))}


def _fields(kind: type[Any]) -> list[Field[Any]]:
    """The parameters of a scheme: the fields of its dataclass."""
    return [field for field in fields(kind) if field.init] if is_dataclass(kind) else []


def _checked(name: str, kind: type[Scheme], given: Mapping[str, object]) -> dict[str, Any]:
    """The values of parameters, checked against the types of their fields."""
    try:
        types = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):  # of a user: written as text, with names that are not there
        return dict(given)
    found = {}
    for key, value in given.items():
        strict = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
        try:
            found[key] = TypeAdapter(types[key], config=strict).validate_python(value)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]["msg"].replace("Input should", "it should")
            raise InputError(f"scheme.parameters.{key} = {value!r} ({name}): {wrong}") from None
        except PydanticUserError:
            found[key] = value  # of a type of the user's own
    return found


def _check_parameters(name: str, given: Mapping[str, object], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise InputError(
                f"scheme.parameters.{key}: {name} has no such field{suggest(key, known)}; "
                f"its fields are {', '.join(sorted(known)) or 'none'}"
            )
