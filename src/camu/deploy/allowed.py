"""The code that a node runs beyond camu: only what its owner allowed on its command line."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from camu.config import Config
from camu.errors import InputError


def check_allowed(config: Config, allowed: Collection[str]) -> None:
    """Refuse a configuration that names code or a download that the node's owner did not allow."""
    for key, value in config.flat().items():
        for name in _names(value):
            if name not in allowed:
                raise InputError(
                    f"{key} = {name}: this node's owner has not allowed it; its node must be "
                    f"started with --allow {name}"
                )


def _names(value: object) -> Iterator[str]:
    """Texts that may name code (module:name) or a data set to download (hf:name)."""
    if isinstance(value, str) and ":" in value:
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _names(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _names(part)
