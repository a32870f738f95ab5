"""What installed packages bring: schemes, models, data sets and channels, by name.

A package declares them as entry points of the groups `camu.schemes`, `camu.models`,
`camu.datasets` and `camu.channels`. Their names begin with that of the package, so that none can
stand for another package's or for one of camu's own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

Group = Literal["schemes", "models", "datasets", "channels"]


@functools.cache
def installed(group: Group) -> Mapping[str, str]:
    """The import paths, ``module:name``, of what installed packages bring, by PACKAGE.NAME."""
    from importlib.metadata import entry_points

    return {
        f"{point.dist.name}.{point.name}": f"{point.module}:{point.attr}"
        for point in sorted(entry_points(group=f"camu.{group}"))
        if point.dist is not None
    }


def import_path(group: Group, name: str) -> str:
    """The import path behind PACKAGE.NAME; any other name as it is."""
    if "." not in name or ":" in name or "/" in name:
        return name
    return installed(group).get(name, name)
