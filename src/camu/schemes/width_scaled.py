"""Width-scaled models: slow devices train narrow parts of the model, as often as time allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.learning.job import LocalRule
from camu.planning.codecs import Part
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.schemes.width import WIDTHS, trained_part, width_mask
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class WidthScaled(Scheme):
    """Devices train as wide a part of the model as fits into the median device's time."""

    local_updates: int = 2  # of the median device, which trains the whole model
    max_extra_updates: int = 4
    name: ClassVar[str] = "width-scaled"
    family: ClassVar[str] = "compression"
    citation: ClassVar[str] = (
        "after Diao et al., HeteroFL, ICLR 2021, with adaptive updates after Yan et al., Heroes, "
        "arXiv 2312.01617"
    )
    simplified: ClassVar[tuple[str, ...]] = (
        "nested parts of the plain model; the composed low-rank layers of Heroes are not here, "
        "and neither is its choice of the blocks that were trained least",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "computing is in proportion to the part's parameters",
        "the last width is 1/4; updates fill the median device's time, the queue of `tdma` left "
        "out",
        "scheme.aggregation does not apply",
    )

    def plan(self, world: World) -> Plan:
        """The widest part, then the most updates, that end with the median device."""
        from camu.learning.configured import model_layout

        layout, groups = model_layout(world.config), single_devices(world)
        sizes = [int(width_mask(layout, width).sum()) for width in WIDTHS]
        work, air = groups.step_seconds, groups.once.uplink_seconds
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
