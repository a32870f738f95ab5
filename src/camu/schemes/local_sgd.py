"""Local SGD: every device for itself, the same number of local updates for all."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class LocalSgd(Scheme):
    """Devices run the same fixed number H of local updates per round, weighted by data size."""

    local_updates: int = 2
    name: ClassVar[str] = "local-sgd"
    family: ClassVar[str] = "reference"
    citation: ClassVar[str] = "Stich, Local SGD converges fast and communicates little, ICLR 2019"
    simplified: ClassVar[tuple[str, ...]] = (
        "a constant learning rate and the last model; see `local-sgd-decay`",
    )
    choices: ClassVar[tuple[str, ...]] = ("weights by data size; the analysis assumes equal ones",)

    def plan(self, world: World) -> Plan:
        """One device per unit, N = H."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights, self.local_updates)
