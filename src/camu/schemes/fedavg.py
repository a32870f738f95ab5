"""Benchmark 1: every device for itself, weighted by its data."""

from dataclasses import dataclass
from typing import ClassVar

from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class FedAvg(Scheme):
    """Benchmark 1: devices send straight to the base station, weighted by data size."""

    name: ClassVar[str] = "fedavg"
    family: ClassVar[str] = "reference"
    citation: ClassVar[str] = "McMahan et al., AISTATS 2017"
    simplified: ClassVar[tuple[str, ...]] = (
        "one local update per round, as the CAMU paper compares it; the original runs several "
        "epochs",
        "everyone takes part; the original draws a share of the devices",
    )
    choices: ClassVar[tuple[str, ...]] = ()

    def plan(self, world: World) -> Plan:
        """One device per unit."""
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights)
