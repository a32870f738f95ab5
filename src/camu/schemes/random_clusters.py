"""A control: CAMU on random clusters of the same sizes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.planning.groups import Groups, assess, clusters
from camu.schemes.camu import Camu
from camu.seeding import derive
from camu.world import World


@dataclass(frozen=True)
class RandomClusters(Camu):
    """A control: CAMU with devices dealt at random to clusters of the sizes that CAMU forms."""

    name: ClassVar[str] = "random-clusters"
    family: ClassVar[str] = "controls"
    citation: ClassVar[str] = "a control of CAMU's clustering"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = ("gate, weights and updates are CAMU's",)

    def groups(self, world: World) -> Groups:
        """The same sizes, other devices; the best uplink leads."""
        sizes = [len(own) for own in clusters(world).members]
        order = derive(world.seed, "random-clusters").numpy().permutation(world.devices.count)
        parts = np.split(order, np.cumsum(sizes)[:-1])
        return assess(world, [sorted(part.tolist()) for part in parts])
