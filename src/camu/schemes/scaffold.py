"""SCAFFOLD: control variates remove the drift of devices with unlike data."""

from dataclasses import dataclass

import numpy as np

from camu.arrays import AnyArray, Float32
from camu.errors import InputError
from camu.learning.method import Method
from camu.learning.weights import WeightedSum
from camu.planning.codecs import Raw
from camu.planning.contribution import gradient_steps
from camu.planning.groups import Groups, clusters, make_plan, single_devices
from camu.schemes.contract import Count, Plan, Scheme, State, View, Weights, World


@dataclass(frozen=True)
class Scaffold(Scheme):
    """Devices step along g - c_i + c, where c_i estimates their own gradient and c the mean one."""

    local_updates: Count = 2
    name = "scaffold"
    tunable = {"local_updates": (1, 20, "log")}
    family = "drift"
    citation = "Karimireddy et al., SCAFFOLD, ICML 2020"
    simplified = ["everyone takes part in every round; the server's step size is 1"]
    choices = [
        "control variates follow option II and are weighted by data size, as the models are",
        "noise of the uplink acts on the model alone, control variates arrive as they are; the "
        "second vector is charged",
    ]

    def groups(self, world: World) -> Groups:
        return single_devices(world)

    def plan(self, world: World) -> Plan:
        """Each unit sends its model and its control variate."""
        if world.config.training.optimiser != "sgd":
            raise InputError(
                f"scheme {self.name}: its control variates are gradients, and steps of "
                f"training.optimiser = {world.config.training.optimiser} are none; use sgd"
            )
        groups = self.groups(world)
        weights = groups.sample_weights
        return make_plan(self, groups, weights, self.local_updates, codec=Raw(copies=2))

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        """c - c_i, nothing in the first round."""
        if "mean" not in state:
            return None
        correction: Float32 = state["mean"] - view.kept.get(unit, np.float32(0))
        return correction

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> Float32:
        """c_i becomes c_i - c + (x - y_i) / (K eta)."""
        own, training = view.plan.units[unit], view.world.config.training
        taken = own.local_updates * own.rule.steps
        factor = Method.of(training).rate_factors(view.round, 0, taken, taken).mean()
        steps = gradient_steps(view.world, own)
        length = np.float32(steps * training.learning_rate * float(factor))
        before = 0 if kept is None else kept
        after: Float32 = before - state.get("mean", np.float32(0)) - change / length
        return after

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean update; c is the mean of all c_i."""
        units = view.plan.units
        mean = WeightedSum(view.weights.parameters.size)
        for unit in sorted(view.kept):
            mean.add(units[unit].weight, view.kept[unit])
        state["mean"] = mean.total.astype(np.float32)
        return super().aggregate(view, state)


@dataclass(frozen=True)
class ClusterScaffold(Scaffold):
    """SCAFFOLD with the dual-segment clusters as its clients, one control variate per cluster."""

    name = "cluster-scaffold"
    family = "drift"
    citation = "Karimireddy et al., SCAFFOLD, ICML 2020, on the clusters of CAMU"
    simplified = Scaffold.simplified
    choices = [
        *Scaffold.choices,
        "the leader holds the control variate; sending it to the members is not charged",
    ]

    def groups(self, world: World) -> Groups:
        return clusters(world)
