"""Benchmark 1: every device for itself, weighted by its data."""

from dataclasses import dataclass

from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Plan, Scheme, World


@dataclass(frozen=True)
class FedAvg(Scheme):
    """Benchmark 1: devices send straight to the base station, weighted by data size."""

    name = "fedavg"
    family = "reference"
    citation = "McMahan et al., AISTATS 2017"
    simplified = [
        "one local update per round, as the CAMU paper compares it; the original runs several "
        "epochs",
        "everyone takes part; the original draws a share of the devices",
    ]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights)
