"""FedPer: the last layers stay at the devices, all others are learned together."""

from dataclasses import dataclass

import numpy as np

from camu.arrays import AnyArray, Float32, Mask
from camu.errors import InputError
from camu.learning.job import PLAIN_RULE, LocalRule
from camu.learning.weights import Layout
from camu.planning.codecs import Part
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, Scheme, State, View, Weights, World


@dataclass(frozen=True)
class FedPer(Scheme):
    """Devices keep parameters of their own, and send only the others."""

    local_updates: Count = 2
    personal: str = ""  # beginnings of the parameters' names, with commas; empty: the last layer
    name = "fedper"
    family = "personal"
    citation = "Arivazhagan et al., Federated learning with personalization layers, 2019"
    simplified = ["everyone takes part in every round"]
    choices = [
        "a device whose update is lost keeps its earlier personal parameters",
        "the broadcast is charged with the whole model",
        "of a model with one layer, the bias is personal",
        "the global model has untrained personal parameters: judge it by mean-device-accuracy",
    ]
    tunable = {"local_updates": (1, 20, "log")}

    def plan(self, world: World) -> Plan:
        groups, mask = (
            single_devices(world),
            personal_mask(world, self.personal),
        )
        return make_plan(
            self,
            groups,
            groups.sample_weights,
            self.local_updates,
            rule=self.rule(),
            codec=Part(int((~mask).sum())),
        )

    def rule(self) -> LocalRule:
        """How every device trains."""
        return PLAIN_RULE

    def start(self, view: View, state: State, unit: int) -> Weights | None:
        """The global model with the device's own parameters."""
        if unit not in view.kept:
            return None
        parameters = view.weights.parameters.copy()
        parameters[personal_mask(view.world, self.personal)] = view.kept[unit]
        return view.weights.with_parameters(parameters)

    def own_model(self, view: View, state: State, unit: int) -> Weights | None:
        return self.start(view, state, unit)

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> Float32:
        """The device's own parameters after its training."""
        begin = self.start(view, state, unit) or view.weights
        mask = personal_mask(view.world, self.personal)
        after: Float32 = (begin.parameters + change)[mask]
        return after

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean of what was sent; the personal parameters of the global model stay."""
        mean = super().aggregate(view, state)
        mask = personal_mask(view.world, self.personal)
        return mean.with_parameters(np.where(mask, view.weights.parameters, mean.parameters))


def personal_mask(world: World, names: str) -> Mask:
    """Which parameters (q,) stay at the devices: those whose names begin so, or the last layer.

    Of a model with one layer, its bias.
    """
    from camu.learning.configured import model_layout

    return world.cached(("personal", names), lambda: _mask(model_layout(world.config), names))


def _mask(layout: Layout, names: str) -> Mask:
    entries = layout.parameters
    beginnings = tuple(part.strip() for part in names.split(",") if part.strip())
    layers = [entry for entry in entries if len(entry.shape) > 1]
    last = layers[-1].name.rpartition(".")[0]
    chosen = [
        entry.name.startswith(beginnings)
        if beginnings
        else entry.name.rpartition(".")[0] == last and (len(layers) > 1 or len(entry.shape) == 1)
        for entry in entries
    ]
    mask = np.repeat(chosen, [entry.size for entry in entries])
    if mask.all() or not mask.any():
        raise InputError(
            f"scheme.parameters.personal = {names!r}: these are {'all' if mask.all() else 'no'} "
            f"parameters of the model; name some of {', '.join(entry.name for entry in entries)}"
        )
    mask.setflags(write=False)
    return mask
