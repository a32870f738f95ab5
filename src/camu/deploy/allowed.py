"""The code that a node runs beyond camu: only what its owner allowed on its command line."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from camu.config import Config
from camu.data.own import shape_spec
from camu.errors import InputError


def check_allowed(config: Config, allowed: Collection[str]) -> None:
    """Refuse a configuration that names code or a download that the node's owner did not allow."""
    for key, name in named_code(config):
        if name not in allowed:
            raise InputError(
                f"{key} = {name}: this node's owner has not allowed it; the node must be started "
                f"with --allow {name}"
            )


def named_code(config: Config) -> list[tuple[str, str]]:
    """The keys and values of a configuration that name code or a download."""
    return [(key, name) for key, value in config.flat().items() for name in _names(value)]


def _names(value: object) -> Iterator[str]:
    """Texts that may name code (module:name) or a data set to download (hf:name)."""
    if isinstance(value, str) and ":" in value and shape_spec(value) is None:
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _names(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _names(part)
