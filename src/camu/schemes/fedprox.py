"""FedProx: local updates are pulled back to the global model, and slow devices do fewer of them."""

from dataclasses import dataclass

from camu.learning.job import LocalRule
from camu.schemes.contract import NonNegative, Plan, Share, State, View, World
from camu.schemes.local_sgd import LocalSgd
from camu.seeding import derive


@dataclass(frozen=True)
class FedProx(LocalSgd):
    """Every device adds (m / 2) ||w - w_global||^2 to its loss, so that it cannot drift far.

    A share of the devices, others in each round, does partial work: from one local update to all.
    """

    proximal: NonNegative = 0.1  # m; the authors try 0.001, 0.01, 0.1 and 1
    straggler_share: Share = 0.0  # of the devices that do partial work; the authors try 0.5 and 0.9
    name = "fedprox"
    tunable = {"proximal": [0.001, 0.01, 0.1, 1.0]}  # the authors' values
    family = "drift"
    citation = "Li et al., Federated optimization in heterogeneous networks, MLSys 2020"
    simplified = []
    choices = [
        "everyone takes part, weighted by data size",
        "which devices do partial work, and how much, follows from the seed and the round",
    ]

    def plan(self, world: World) -> Plan:
        return self._partial(super().plan(world), world, 0)

    def rule(self) -> LocalRule:
        return LocalRule(proximal=self.proximal)

    def revise(self, view: View, state: State) -> Plan | None:
        return self._partial(view.plan, view.world, view.round) if self.straggler_share else None

    def _partial(self, plan: Plan, world: World, round_number: int) -> Plan:
        """The plan with the local updates of one round."""
        slow = round(self.straggler_share * len(plan.units))
        if not slow:
            return plan
        updates = [self.local_updates] * len(plan.units)
        draw = derive(world.seed, "straggler", round_number).numpy()
        for unit in draw.permutation(len(updates))[:slow].tolist():
            updates[unit] = int(draw.integers(1, self.local_updates, endpoint=True))
        return plan.with_updates(updates)
