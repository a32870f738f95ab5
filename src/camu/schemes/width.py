"""Narrow parts of a model: the first channels of every hidden layer."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from camu.errors import InputError
from camu.planning.codecs import Part
from camu.schemes.contract import View

if TYPE_CHECKING:
    from camu.learning.weights import Layout

Mask = npt.NDArray[np.bool_]
WIDTHS = (1.0, 0.75, 0.5, 0.25)


def trained_part(view: View, unit: int) -> Mask:
    """The parameters that a unit trains: the part with as many as it sends."""
    codec = view.plan.units[unit].codec
    assert isinstance(codec, Part)
    masks = (width_mask(view.weights.layout, width) for width in WIDTHS)
    return next(mask for mask in masks if mask.sum() == codec.entries)


@lru_cache(maxsize=16)
def width_mask(layout: Layout, width: float) -> Mask:
    """Which parameters (q,) belong to the part with this share of each hidden layer's channels.

    Layers must form a chain: each takes the outputs of the one before, also flattened. Inputs and
    the last layer's outputs stay whole.
    """
    layers = [entry for entry in layout.parameters if len(entry.shape) > 1]
    parts: list[Mask] = []
    kept: Mask | None = None  # outputs of the layer before
    for entry in layout.parameters:
        if len(entry.shape) > 1:
            outputs, inputs = entry.shape[:2]
            whole = entry is layers[-1]
            channels = outputs if whole else max(1, math.ceil(width * outputs - 1e-9))
            before = np.ones(inputs, dtype=bool) if kept is None else _spread(kept, inputs)
            kept = np.arange(outputs) < channels
            chosen = kept[:, None] & before[None]
            parts.append(np.repeat(chosen, entry.size // chosen.size))
        elif kept is None or entry.size != kept.size:
            raise InputError(f"width-scaled: {entry.name} does not follow a layer of its size")
        else:
            parts.append(kept)
    mask = np.concatenate(parts)
    mask.setflags(write=False)
    return mask


def _spread(kept: Mask, inputs: int) -> Mask:
    """The inputs that come from these channels; a flattened channel gives several."""
    if inputs % kept.size:
        raise InputError(
            f"width-scaled: a layer with {inputs} inputs follows one with {kept.size} outputs; "
            "the model must be a chain of layers"
        )
    return np.repeat(kept, inputs // kept.size)
