"""FedNova on clusters that fill their waiting time."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.plan import Plan
from camu.schemes.compute_rounds import ComputeRounds
from camu.schemes.nova import normalised
from camu.world import World


@dataclass(frozen=True)
class ClusterNova(ComputeRounds):
    """The plan of `compute-rounds`, each cluster's update divided by its number of steps."""

    name: ClassVar[str] = "cluster-nova"
    family: ClassVar[str] = "drift"
    citation: ClassVar[str] = "Wang et al., FedNova, NeurIPS 2020, on the clusters of CAMU"
    simplified: ClassVar[tuple[str, ...]] = ("plain local SGD; no local momentum",)
    choices: ClassVar[tuple[str, ...]] = (
        "clusters, weights and updates are those of `compute-rounds`",
    )

    def plan(self, world: World) -> Plan:
        """Scaled updates."""
        return normalised(super().plan(world), world)
