"""SCAFFOLD between clusters: control variates remove the drift of unlike clusters."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import Groups, clusters
from camu.schemes.scaffold import Scaffold
from camu.world import World


@dataclass(frozen=True)
class ClusterScaffold(Scaffold):
    """SCAFFOLD with the dual-segment clusters as its clients, one control variate per cluster."""

    name: ClassVar[str] = "cluster-scaffold"
    family: ClassVar[str] = "drift"
    citation: ClassVar[str] = "Karimireddy et al., SCAFFOLD, ICML 2020, on the clusters of CAMU"
    simplified: ClassVar[tuple[str, ...]] = Scaffold.simplified
    choices: ClassVar[tuple[str, ...]] = (
        *Scaffold.choices,
        "the leader holds the control variate; what it sends to its members is not charged",
    )

    def groups(self, world: World) -> Groups:
        """The clusters."""
        return clusters(world)
