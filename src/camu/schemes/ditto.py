"""Ditto: beside the global model, each device has one of its own that is pulled to it."""

from dataclasses import dataclass

from camu.arrays import AnyArray, Float32
from camu.learning.job import LocalRule, OwnTraining
from camu.schemes.contract import NonNegative, State, View, Weights
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class Ditto(LocalSgd):
    """Devices train the global model, and as often their own with (m / 2) ||v - w||^2 added."""

    pull: NonNegative = 1.0  # m; the authors try 0.1, 1 and 2
    name = "ditto"
    family = "personal"
    citation = "Li et al., Ditto: fair and robust federated learning through personalization, 2021"
    simplified = ["as many updates of a device's own model as of the global one"]
    choices = [
        "everyone takes part; a device whose update is lost keeps its earlier own model",
        "judge it by mean-device-accuracy",
    ]

    def rule(self) -> LocalRule:
        return LocalRule(work=2.0)

    def own_training(self, view: View, state: State, unit: int) -> OwnTraining:
        """The device's own model, from where it was, pulled to the global one."""
        begin = view.kept.get(unit, view.weights.parameters)
        return OwnTraining(begin, self.local_updates, proximal=self.pull)

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> Float32:
        """`change` are the parameters that the device trained for itself."""
        return change

    def own_model(self, view: View, state: State, unit: int) -> Weights | None:
        """The device's own model, once it has one."""
        return view.weights.with_parameters(view.kept[unit]) if unit in view.kept else None
