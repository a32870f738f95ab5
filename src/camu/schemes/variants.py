"""The schemes of a comparison as users write them: names, families, and variants with parameters.

`camu@threshold_quantile=0.3` is the scheme `camu` with another parameter. Several follow one
another: `camu@threshold=0@max_extra_updates=2`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from camu.config import Config
from camu.config.layers import parse_value
from camu.errors import InputError, suggest
from camu.schemes.catalogue import ALIASES, FAMILIES, SCHEMES
from camu.schemes.registry import configs_for, field_names, find_scheme, make_scheme

ALL = "all"
_FOR_EVERY_SCHEME = ("aggregation", "faulty_share")


@dataclass(frozen=True)
class Variant:
    """A scheme of a comparison, with the configuration that makes it."""

    word: str  # as the user wrote it: the scheme, its family, or all
    label: str  # its name, and the parameters that were given with it
    name: str
    family: str
    config: Config


def read_variants(config: Config, schemes: Sequence[str]) -> list[Variant]:
    """The schemes that these words name, in their order.

    Each word is a name, a name with parameters, a family or `all`. A word for several schemes
    leaves out those that have a word of their own. Wrong names and values are refused.
    """
    entries = list(_entries(schemes))
    names = [name for _, name, _ in entries]
    if not names:
        raise InputError("--schemes: name at least one scheme")
    configs = configs_for(config, list(dict.fromkeys(names)))
    found: dict[str, Variant] = {}
    for word, name, given in entries:
        label = " ".join([name, *(f"{key}={_say(value)}" for key, value in given.items())])
        if label in found:
            raise InputError(f"--schemes: {label} is given twice")
        own = configs[name].replace(_keys(name, given)) if given else configs[name]
        make_scheme(own)  # a wrong value is refused before work starts
        found[label] = Variant(word, label, name, find_scheme(name).family, own)
    return list(found.values())


def split_schemes(text: str) -> list[str]:
    """The words of a list that is separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def in_families(name: str) -> list[str]:
    """The schemes of a family, or of all families in their order; none for any other name."""
    wanted = name.replace("-", " ")
    families = list(FAMILIES) if name == ALL else [wanted]
    return [own for family in families for own, kind in SCHEMES.items() if kind.family == family]


def _entries(schemes: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each word, a name and the parameters given to it; families become their schemes."""
    plain = {word for word in schemes if not in_families(word)}
    for word in schemes:
        name, *given = (part.strip() for part in word.split("@"))
        if members := in_families(name):
            if given:
                raise InputError(f"--schemes {word}: parameters go with one scheme, not with many")
            yield from ((word, member, {}) for member in members if member not in plain)
            plain.update(members)
            continue
        if name not in (*SCHEMES, *ALIASES) and ":" not in name and not name.endswith(".py"):
            words = [*SCHEMES, *ALIASES, ALL, *FAMILIES]
            raise InputError(
                f"--schemes: {name or word}: no such scheme{suggest(name, words)}; `camu schemes` "
                f"lists them; families are {', '.join(FAMILIES)}; or your own as module:Class"
            )
        yield word, name, dict(_parameter(word, part) for part in given)


def _parameter(word: str, text: str) -> tuple[str, Any]:
    key, equals, raw = text.partition("=")
    if not (equals and key.strip() and raw.strip()):
        raise InputError(
            f"--schemes {word}: write name@parameter=value, for example camu@threshold_quantile=0.3"
        )
    return key.strip(), parse_value(raw)


def _keys(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The keys of the configuration that set these parameters of a scheme."""
    known = field_names(name)
    keys = {}
    for key, value in given.items():
        if key not in known and key not in _FOR_EVERY_SCHEME:
            raise InputError(
                f"--schemes {name}@{key}: {name} has no such parameter{suggest(key, known)}; it "
                f"has {', '.join(sorted(known)) or 'none'}, and every scheme has "
                f"{' and '.join(_FOR_EVERY_SCHEME)}"
            )
        section = "scheme.parameters" if key in known else "scheme"
        keys[f"{section}.{key}"] = value
    return keys


def _say(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
