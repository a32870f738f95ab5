"""What charts leave open: names of axes, and lists that are filled in when the runs are known."""

from __future__ import annotations

from typing import Any

AXES = {"rounds": "rounds", "joules": "joules, all devices together", "seconds": "virtual seconds"}
# Markers in a chart; the page and the figures put the values of a world in their place.
SCHEME_NAMES, COLOURS, DASHES = "$schemes", "$colours", "$dashes"


def fill(spec: Any, values: dict[str, list[Any]]) -> Any:
    """The specification with every list that holds a marker alone replaced by its values."""
    if isinstance(spec, dict):
        return {key: fill(value, values) for key, value in spec.items()}
    if isinstance(spec, list):
        if len(spec) == 1 and isinstance(spec[0], str) and spec[0] in values:
            return values[spec[0]]
        return [fill(value, values) for value in spec]
    return spec
