"""FedNova: updates divided by their steps, so that fast units do not pull the optimum."""

from dataclasses import dataclass

from camu.planning.contribution import gradient_steps
from camu.schemes.camu import Camu
from camu.schemes.compute_rounds import ComputeRounds
from camu.schemes.contract import Plan, World
from camu.schemes.pr_sgd import ParallelRestartedSgd


@dataclass(frozen=True)
class FedNova(ParallelRestartedSgd):
    """Devices update as often as time allows, and each update is divided by its number of steps."""

    name = "fednova"
    family = "drift"
    citation = "Wang et al., FedNova, NeurIPS 2020"
    simplified = ["plain local SGD; no local momentum"]
    choices = [
        "fast devices fill the time of the slowest one's update, as in `pr-sgd`",
        "tau_eff is the mean number of steps, weighted by data size",
    ]

    def plan(self, world: World) -> Plan:
        return normalised(super().plan(world), world)


def normalised(plan: Plan, world: World) -> Plan:
    """The plan with each update divided by its steps and multiplied by the mean of all."""
    steps = [gradient_steps(world, unit) for unit in plan.units]
    mean = sum(unit.weight * own for unit, own in zip(plan.units, steps, strict=True))
    return plan.with_columns(update_scale=[mean / own for own in steps])


@dataclass(frozen=True)
class ClusterNova(ComputeRounds):
    """The plan of `compute-rounds`, each cluster's update divided by its number of steps."""

    name = "cluster-nova"
    family = "drift"
    citation = "Wang et al., FedNova, NeurIPS 2020, on the clusters of CAMU"
    simplified = ["plain local SGD; no local momentum"]
    choices = ["clusters, weights and updates are those of `compute-rounds`"]

    def plan(self, world: World) -> Plan:
        return normalised(super().plan(world), world)


@dataclass(frozen=True)
class CamuNova(Camu):
    """CAMU with each unit's update divided by its number of steps (objective consistency).

    The mean step count gives back the length: sum_c G_c N_c times the mean direction. With equal
    N_c nothing changes.
    """

    name = "camu-nova"
    family = "paper"
    citation = "Wang et al., FedNova, NeurIPS 2020, on CAMU"
    choices = ["normalising CAMU's clusters is not in the CAMU paper"]

    def plan(self, world: World) -> Plan:
        return normalised(super().plan(world), world)
