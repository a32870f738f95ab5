"""FedProx: local updates are pulled back to the global model."""

from dataclasses import dataclass

from camu.learning.job import LocalRule
from camu.schemes.contract import NonNegative
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class FedProx(LocalSgd):
    """Every device adds (m / 2) ||w - w_global||^2 to its loss, so that it cannot drift far."""

    proximal: NonNegative = 0.1  # m; the authors try 0.001, 0.01, 0.1 and 1
    name = "fedprox"
    family = "drift"
    citation = "Li et al., Federated optimization in heterogeneous networks, MLSys 2020"
    simplified = [
        "all devices do the same number of updates; the original also takes partial work",
    ]
    choices = ["everyone takes part, weighted by data size"]

    def rule(self) -> LocalRule:
        return LocalRule(proximal=self.proximal)
