"""Width-scaled models: slow devices train narrow parts of the model, as often as time allows."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from camu.errors import InputError
from camu.learning.job import LocalRule
from camu.learning.weights import Layout
from camu.planning.codecs import Part
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, CountFromZero, Plan, Scheme, State, View, Weights, World


@dataclass(frozen=True)
class WidthScaled(Scheme):
    """Devices train as wide a part of the model as fits into the median device's time."""

    local_updates: Count = 2  # of the median device, which trains the whole model
    max_extra_updates: CountFromZero = 4
    name = "width-scaled"
    tunable = {"local_updates": (1, 20, "log")}
    family = "compression"
    citation = (
        "after Diao et al., HeteroFL, ICLR 2021, with adaptive updates after Yan et al., Heroes, "
        "arXiv 2312.01617"
    )
    simplified = [
        "nested parts of the plain model; the composed low-rank layers of Heroes are not here, "
        "and neither is its choice of the blocks that were trained least",
    ]
    choices = [
        "computing is in proportion to the part's parameters",
        "the last width is 1/4; updates fill the median device's time, the queue of `tdma` left "
        "out",
        "scheme.aggregation does not apply",
    ]

    def plan(self, world: World) -> Plan:
        """The widest part, then the most updates, that end with the median device."""
        from camu.learning.configured import model_layout

        layout, groups = model_layout(world.config), single_devices(world)
        sizes = [int(width_mask(layout, width).sum()) for width in WIDTHS]
        work, air = groups.step_seconds, groups.costs_of_one_update.uplink_seconds
        limit = float(np.median(self.local_updates * work + air))
        rules, codecs, updates = [], [], []
        for step, send in zip(work, air, strict=True):
            shares = [size / sizes[0] for size in sizes]
            fitting = [s for s in shares if s * (self.local_updates * step + send) <= limit]
            share = max(fitting, default=shares[-1])
            rules.append(LocalRule(work=share))
            codecs.append(Part(sizes[shares.index(share)]))
            fits = int((limit - share * send) / (share * step) + 1e-9)
            updates.append(min(max(fits, 1), self.local_updates + self.max_extra_updates))
        return make_plan(self, groups, groups.sample_weights, updates, rule=rules, codec=codecs)

    def start(self, view: View, state: State, unit: int) -> Weights | None:
        """The global model, all but the device's part set to zero; zeros stay zero."""
        return view.weights.with_parameters(view.weights.parameters * trained_part(view, unit))

    def aggregate(self, view: View, state: State) -> Weights:
        """Each parameter moves by the mean over the devices that trained it."""
        mean = super().aggregate(view, state)  # of the buffers
        moved, total = np.zeros(mean.parameters.size), np.zeros(mean.parameters.size)
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            trained = arrival.weight * trained_part(view, arrival.unit)
            moved += trained * arrival.update
            total += trained
        return mean.with_parameters(view.weights.parameters + moved / np.maximum(total, 1e-300))


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
