"""FedAdam: the server takes an Adam step along the mean update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from camu.schemes.contract import State, View
from camu.schemes.local_sgd import LocalSgd

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class FedAdam(LocalSgd):
    """Local SGD whose server treats the mean update as a gradient and takes an Adam step."""

    server_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    adaptivity: float = 1e-3  # tau
    name: ClassVar[str] = "fedadam"
    family: ClassVar[str] = "server"
    citation: ClassVar[str] = "Reddi et al., Adaptive federated optimization, ICLR 2021"
    simplified: ClassVar[tuple[str, ...]] = ("everyone takes part",)
    choices: ClassVar[tuple[str, ...]] = (
        "the server's rate is 0.01; the authors search it per task",
        "no bias correction, as in the paper; v starts at tau^2",
    )

    def aggregate(self, view: View, state: State) -> Weights:
        """m and v follow the mean update d: x <- x + rate m / (sqrt(v) + tau)."""
        mean = super().aggregate(view, state)
        here = view.weights.parameters.astype(np.float64)
        d = mean.parameters - here
        first = state.get("first", np.zeros_like(d))
        second = state.get("second", np.full_like(d, self.adaptivity**2))
        state["first"] = self.beta1 * first + (1 - self.beta1) * d
        state["second"] = self.beta2 * second + (1 - self.beta2) * np.square(d)
        step = state["first"] / (np.sqrt(state["second"]) + self.adaptivity)
        return mean.with_parameters(here + self.server_rate * step)
