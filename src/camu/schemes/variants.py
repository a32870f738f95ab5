"""The schemes of a comparison as users write them: names, families, and variants with parameters.

`camu@threshold_quantile=0.3` is the scheme `camu` with another parameter. Several follow one
another: `camu@threshold=0@max_extra_updates=2`. `local-sgd@training.learning_rate=0.3` sets a key
of the configuration for this scheme alone; keys that make the world are those of all schemes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camu.config import Config
from camu.config.layers import parse_value
from camu.errors import InputError, suggest
from camu.installed import import_path, installed
from camu.schemes.catalogue import ALIASES, FAMILIES, SCHEMES
from camu.schemes.registry import configs_for, field_names, find_scheme, make_scheme

ALL = "all"
_FOR_EVERY_SCHEME = ("aggregation", "faulty_share")
# Keys that a scheme may have for itself, with what is left out: that makes the world or the score.
_OWN_SECTIONS = ("training", "clustering", "contribution", "allocation", "readings")
_OF_ALL = (
    *("training.model", "training.loss", "training.metrics", "training.normalisation"),
    "clustering.min_link_snr_db",
)
_OWN_KEYS = ("fleet.dvfs",)


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
        label = label_of(name, given)
        if label in found:
            raise InputError(f"--schemes: {label} is given twice")
        own = configs[name]
        if given:
            try:
                own = own.replace(_keys(name, given))
            except InputError as error:
                said = str(error).removeprefix("replace: ")
                raise InputError(f"--schemes {word}: {said}") from None
        make_scheme(own)  # a wrong value is refused before work starts
        found[label] = Variant(word, label, name, find_scheme(name).family, own)
    return list(found.values())


def label_of(name: str, given: Mapping[str, Any]) -> str:
    """A scheme with the parameters that were given to it, for people."""
    return " ".join([name, *(f"{key}={_say(value)}" for key, value in given.items())])


def word_of(name: str, given: Mapping[str, Any]) -> str:
    """A scheme with its parameters as `read_variants` reads it."""
    return "@".join([name, *(f"{key}={_write(value)}" for key, value in given.items())])


def keys_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the configuration that make this scheme with these parameters."""
    return {"scheme.name": name, **_keys(name, given)}


def with_parameters(config: Config, word: str) -> Config:
    """The configuration of one scheme as users write it: `fedprox@proximal=1`."""
    found = read_variants(config, [word])
    if len(found) != 1:
        raise InputError(f"--scheme {word}: this is a family of {len(found)} schemes; name one")
    return found[0].config


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
        name = import_path("schemes", name)
        if name not in (*SCHEMES, *ALIASES) and ":" not in name and not name.endswith(".py"):
            words = [*SCHEMES, *ALIASES, *installed("schemes"), ALL, *FAMILIES]
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


def _keys(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the configuration that set these parameters of a scheme."""
    known = field_names(name)
    keys = {}
    for key, value in given.items():
        if "." in key:
            _check_own_key(key)
            keys[key] = value
            continue
        if key not in known and key not in _FOR_EVERY_SCHEME:
            raise InputError(
                f"{key}: {name} has no such parameter{suggest(key, known)}; it "
                f"has {', '.join(sorted(known)) or 'none'}, and every scheme has "
                f"{' and '.join(_FOR_EVERY_SCHEME)}"
            )
        section = "scheme.parameters" if key in known else "scheme"
        keys[f"{section}.{key}"] = value
    return keys


def _check_own_key(key: str) -> None:
    """Refuse a key that makes the world, or the score, of all schemes of a comparison."""
    own = key.partition(".")[0] in _OWN_SECTIONS and key not in _OF_ALL
    if not own and key not in _OWN_KEYS:
        raise InputError(
            f"{key}: this key is the same for all schemes of a comparison; set it "
            f"with --set. A scheme may have its own of {', '.join(_OWN_SECTIONS)} (without "
            f"{', '.join(_OF_ALL)}), and {', '.join(_OWN_KEYS)}"
        )


def _write(value: Any) -> str:
    """A value as `parse_value` reads it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _say(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
