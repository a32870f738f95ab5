"""FedRep: devices first fit their own last layers, then all improve what lies before them."""

from dataclasses import dataclass

from camu.arrays import AnyArray, Float32
from camu.errors import InputError
from camu.learning.job import LocalRule, OwnTraining
from camu.schemes.contract import Count, Plan, State, View, World
from camu.schemes.fedper import FedPer, personal_mask


@dataclass(frozen=True)
class FedRep(FedPer):
    """Devices train their own parameters alone, and then only the others, which they send."""

    head_updates: Count = 2  # of the device's own parameters, before the local updates
    name = "fedrep"
    family = "personal"
    citation = "Collins et al., Exploiting shared representations for personalized FL, ICML 2021"
    simplified = ["everyone takes part in every round; updates in place of epochs"]
    choices = [
        *FedPer.choices,
        "a step on some of the parameters costs as much as one on all",
    ]

    def plan(self, world: World) -> Plan:
        training = world.config.training
        if training.momentum or training.optimiser != "sgd":
            raise InputError(
                f"scheme {self.name}: parts of a model are trained by plain steps; set "
                "training.optimiser = sgd and training.momentum = 0"
            )
        return super().plan(world)

    def rule(self) -> LocalRule:
        return LocalRule(work=(self.local_updates + self.head_updates) / self.local_updates)

    def own_training(self, view: View, state: State, unit: int) -> OwnTraining:
        """The device's own parameters, before its update."""
        begin = self.start(view, state, unit) or view.weights
        mask = personal_mask(view.world, self.personal)
        return OwnTraining(begin.parameters, self.head_updates, only=mask, first=True)

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> Float32:
        """The device's own parameters; `change` are those that it trained for itself."""
        own: Float32 = change[personal_mask(view.world, self.personal)]
        return own
